package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"runtime/debug"
	"strings"
	"syscall"

	"github.com/quorate/quorate/bench/client"
	"github.com/quorate/quorate/bench/modes"
	"github.com/quorate/quorate/bench/probe"
	"github.com/quorate/quorate/internal/playground"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// Exit codes of the bench commands, beside 0.
const (
	exitBroken     = 1 // everything was measured, and a promise was broken
	exitUnmeasured = 2
	exitStopped    = 130 // by a signal; what was started is gone
)

// benchModesOptions are the flags of `quorate bench modes`.
type benchModesOptions struct {
	modes.Options
	load      string
	modeNames []string
	voters    int
	nonvoters int
	dataDir   string
	set       []string
	outputDir string
	json      string
	html      string
}

func benchCommand() *cobra.Command {
	c := group(&cobra.Command{Use: "bench", Short: "Measure a cluster"})
	c.AddCommand(benchModesCommand())
	return c
}

func benchModesCommand() *cobra.Command {
	o := benchModesOptions{Options: modes.DefaultOptions()}
	c := &cobra.Command{
		Use:   "modes",
		Short: "Measure what each read mode costs and how stale its answers are",
		Long: `Measures Any, Not older than N, Exact N and Most Recent, get and list, on a leader,
a follower and a non-voter, all at once and under writes: latency from when each
read was due, and how far its answer was behind what had been acknowledged.
Prints a table; --output-dir also writes modes.json and modes.html.

It starts a cluster of its own and removes it, unless --data-dir names one of
'quorate dev' that runs.`,
		Example: `  quorate bench modes
  quorate bench modes --load half --output-dir report
  quorate bench modes --data-dir .quorate --modes any,most-recent --nodes n1,n3 --rate 200`,
		Args: func(cmd *cobra.Command, args []string) error { return unmeasured(noArguments(cmd, args)) },
		RunE: func(cmd *cobra.Command, args []string) error {
			// The terminal that goes away must not leave a cluster behind.
			ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGHUP)
			defer stop()
			if err := o.exclusive(cmd.Flags()); err != nil {
				return unmeasured(err)
			}
			err := o.run(ctx, cmd.OutOrStdout(), cmd.ErrOrStderr())
			var exit exitError
			switch {
			case err == nil || errors.As(err, &exit):
				return err
			case ctx.Err() != nil && errors.Is(err, context.Canceled):
				return exitError{code: exitStopped, text: "stopped"}
			}
			return unmeasured(err)
		},
	}
	c.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return unmeasured(err) })
	exitCodes(c,
		note{"1", "a promise was broken (a stale Most Recent read, for instance), or a request failed"},
		note{"2", "it could not be measured"},
		note{"130", "it was stopped by a signal; what it had started is gone"})
	f := c.Flags()
	f.DurationVar(&o.Duration, "duration", o.Duration, "how long to measure")
	f.Float64Var(&o.Rate, "rate", o.Rate, "reads per second of each cell (mode, verb and node)")
	f.StringVar(&o.load, "load", "", "instead of --rate, a share of the throughput, which is found first: half, or a number below 1")
	f.Float64Var(&o.Writes, "writes", o.Writes, "writes per second meanwhile")
	f.IntVar(&o.Objects, "objects", o.Objects, "objects in the collection that is listed")
	f.IntVar(&o.Size, "size", o.Size, "bytes of each object's value")
	f.StringSliceVar(&o.modeNames, "modes", names(o.Modes), "modes to measure")
	f.StringSliceVar(&o.Nodes, "nodes", o.Nodes, "nodes to measure: roles or names")
	f.StringVar(&o.dataDir, "data-dir", "", "measure the running cluster of this directory (see 'quorate dev')")
	f.IntVar(&o.voters, "voters", 3, "voters of the temporary cluster")
	f.IntVar(&o.nonvoters, "nonvoters", 1, "nodes without a vote of the temporary cluster")
	f.StringArrayVar(&o.set, "set", nil, "setting for every node of the temporary cluster, as flag=value")
	f.StringVar(&o.outputDir, "output-dir", "", "directory for modes.json and modes.html")
	f.StringVar(&o.json, "json", "", "file for the JSON, - for standard output instead of the table")
	f.StringVar(&o.html, "html", "", "file for the HTML page")
	return c
}

// unmeasured is an error with the exit code for what could not be measured. The
// code 1 is for broken promises alone.
func unmeasured(err error) error {
	if err == nil {
		return nil
	}
	return exitError{code: exitUnmeasured, text: "error: " + err.Error()}
}

// exclusive refuses flags of which one makes the other meaningless.
func (o *benchModesOptions) exclusive(f *pflag.FlagSet) error {
	for _, pair := range [][2]string{{"load", "rate"}, {"data-dir", "voters"}, {"data-dir", "nonvoters"}, {"data-dir", "set"}} {
		if f.Changed(pair[0]) && f.Changed(pair[1]) {
			return fmt.Errorf("--%s and --%s exclude each other", pair[0], pair[1])
		}
	}
	return nil
}

func names(list []probe.Mode) []string {
	var out []string
	for _, m := range list {
		out = append(out, string(m))
	}
	return out
}

func (o *benchModesOptions) run(ctx context.Context, out, progress io.Writer) (err error) {
	if err := o.complete(); err != nil {
		return err
	}
	// This program shares the machine with what it measures: it collects garbage
	// seldom.
	defer debug.SetGCPercent(debug.SetGCPercent(400))
	target, end, err := o.cluster(ctx, progress)
	if err != nil {
		return err
	}
	report, err := modes.Run(ctx, target, o.Options, progress)
	if err := errors.Join(err, end()); err != nil {
		return err
	}
	if err := o.write(report, out); err != nil {
		return err
	}
	if report.Failed() {
		return exitError{code: exitBroken, text: "error: a promise was broken or a request failed: see above"}
	}
	return nil
}

// complete checks the flags and resolves what they say together.
func (o *benchModesOptions) complete() (err error) {
	if o.Load, err = modes.ParseLoad(o.load); err != nil {
		return fmt.Errorf("--%w", err)
	}
	o.Modes = nil
	for _, m := range o.modeNames {
		o.Modes = append(o.Modes, probe.Mode(m))
	}
	o.Command, o.Commit = strings.Join(os.Args, " "), commit
	if o.Commit == "" {
		o.Commit = "unknown"
	}
	if o.outputDir != "" {
		if o.json == "" {
			o.json = filepath.Join(o.outputDir, "modes.json")
		}
		if o.html == "" {
			o.html = filepath.Join(o.outputDir, "modes.html")
		}
		if err := os.MkdirAll(o.outputDir, 0o755); err != nil {
			return err
		}
	}
	// What cannot be written is found out before anything is measured.
	for _, file := range []string{o.json, o.html} {
		if info, err := os.Stat(filepath.Dir(file)); err != nil {
			return err
		} else if !info.IsDir() {
			return fmt.Errorf("%s is not a directory", filepath.Dir(file))
		}
	}
	return o.Validate()
}

// cluster opens the running cluster that is named, or starts one. end stops and
// removes what was started.
func (o *benchModesOptions) cluster(ctx context.Context, progress io.Writer) (out client.Cluster, end func() error, err error) {
	var t *playground.Target
	if o.dataDir != "" {
		t, err = playground.Running(o.dataDir)
		end = func() error { return nil }
	} else if err = checkSettings(o.set); err == nil {
		t, end, err = playground.Temporary(ctx, playground.Options{Nodes: o.voters, Nonvoters: o.nonvoters, Set: o.set}, progress)
	}
	if err != nil {
		return out, nil, err
	}
	out = client.Cluster{TLS: t.TLS, Dir: t.Dir}
	for _, n := range t.Nodes {
		out.Nodes = append(out.Nodes, client.Node{Name: n.Name, API: n.API, PID: n.PID})
	}
	return out, end, nil
}

func (o *benchModesOptions) write(r *modes.Report, out io.Writer) error {
	if o.json == "-" {
		if err := r.WriteJSON(out); err != nil {
			return err
		}
	} else if err := r.WriteTable(out); err != nil {
		return err
	}
	for _, x := range []struct {
		file  string
		write func(io.Writer) error
	}{{o.json, r.WriteJSON}, {o.html, r.WriteHTML}} {
		if x.file == "" || x.file == "-" {
			continue
		}
		if err := writeFile(x.file, x.write); err != nil {
			return err
		}
		if o.json != "-" {
			fmt.Fprintf(out, "\n%s", x.file)
		}
	}
	if o.json != "-" {
		fmt.Fprintln(out)
	}
	return nil
}

func writeFile(path string, write func(io.Writer) error) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	return errors.Join(write(f), f.Close())
}
