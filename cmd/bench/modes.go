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
	"github.com/quorate/quorate/bench/measure"
	"github.com/quorate/quorate/bench/modes"
	"github.com/quorate/quorate/bench/probe"
	"github.com/quorate/quorate/bench/report"
	"github.com/quorate/quorate/internal/cli"
	"github.com/quorate/quorate/internal/playground"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// Exit codes of the bench commands, beside 0.
const (
	exitBroken     = 1 // everything was measured, and a promise was broken
	exitUnmeasured = 2
)

// benchModesOptions are the flags of `quorate bench modes`.
type benchModesOptions struct {
	modes.Options
	load      string
	modeNames []string
	cluster   benchCluster
	output    benchOutput
}

// benchCluster are the flags that say what is measured.
type benchCluster struct {
	voters    int
	nonvoters int
	dataDir   string
	set       []string
	// What is done to nodes needs these of a temporary cluster: see playground.Options.
	partitions, slowDisks bool
}

// benchOutput are the flags that say where the report goes. Empty: nowhere.
type benchOutput struct {
	dir  string
	json string
	html string
	csv  string // not all commands have it
}

// benchReport is what a bench command has measured: its JSON, and what of the other forms it has.
type benchReport interface{ Failed() bool }

func benchModesCommand() *cobra.Command {
	o := benchModesOptions{Options: modes.DefaultOptions()}
	c := &cobra.Command{
		Use:   "modes",
		Short: "Measure what each read mode costs and how stale its answers are",
		Long: `Measures Any, Not older than N, Exact N and Most Recent, get and list, on a leader,
a follower and a non-voter, all at once and under writes: latency from when each
read was due, and how far its answer was behind what had been acknowledged; and how
often a client that reads at one node and then at another goes back in time. Prints a
table; --output-dir also writes JSON, CSV, an HTML page and percentile files.

It starts a cluster of its own and removes it, unless --data-dir names one of
'quorate dev' that runs.`,
		Example: `  quorate bench modes
  quorate bench modes --load half --output-dir report
  quorate bench modes --data-dir .quorate --modes any,most-recent --nodes n1,n3 --rate 200`,
	}
	benchRuns(c, func(ctx context.Context, cmd *cobra.Command) error {
		if err := o.exclusive(cmd.Flags()); err != nil {
			return err
		}
		return o.run(ctx, cmd.OutOrStdout(), cmd.ErrOrStderr())
	})
	cli.ExitCodes(c,
		cli.Note{"1", "a promise was broken (a stale Most Recent read, for instance), or a request failed"},
		cli.Note{"2", "it could not be measured"},
		cli.Note{"130", "it was stopped by a signal; what it had started is gone"})
	f := c.Flags()
	f.DurationVar(&o.Duration, "duration", o.Duration, "how long to measure")
	f.Float64Var(&o.Rate, "rate", o.Rate, "reads per second of each cell (mode, verb and node)")
	f.StringVar(&o.load, "load", "", "instead of --rate, shares of the throughput, which is found first: half, or numbers below 1, separated by commas")
	f.Float64Var(&o.Writes, "writes", o.Writes, "writes per second meanwhile")
	f.IntVar(&o.Objects, "objects", o.Objects, "objects in the collection that is listed")
	f.IntVar(&o.Size, "size", o.Size, "bytes of each object's value")
	f.StringSliceVar(&o.modeNames, "modes", names(o.Modes), "modes to measure")
	f.StringSliceVar(&o.Nodes, "nodes", o.Nodes, "nodes to measure: roles or names")
	o.cluster.flags(f, 1)
	o.output.flags(f, "modes", true)
	f.Lookup("csv").Usage = "file for the cells as CSV"
	f.Lookup("output-dir").Usage = "directory for modes.json, modes.csv, modes.html and percentile files (.hgrm) of each cell"
	return c
}

// benchRuns lets a command run what measures, with the exit codes of all bench commands.
func benchRuns(c *cobra.Command, run func(ctx context.Context, cmd *cobra.Command) error) {
	if c.Args == nil {
		c.Args = func(cmd *cobra.Command, args []string) error { return unmeasured(cli.NoArguments(cmd, args)) }
	}
	c.RunE = func(cmd *cobra.Command, _ []string) error {
		// The terminal that goes away must not leave a cluster behind.
		ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGHUP)
		defer stop()
		err := run(ctx, cmd)
		var exit cli.ExitError
		switch {
		case err == nil || errors.As(err, &exit):
			return err
		case ctx.Err() != nil && errors.Is(err, context.Canceled):
			return cli.ExitError{Code: cli.ExitStopped, Text: "stopped"}
		}
		return unmeasured(err)
	}
	c.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return unmeasured(err) })
}

func (b *benchCluster) flags(f *pflag.FlagSet, nonvoters int) {
	f.StringVar(&b.dataDir, "data-dir", "", "measure the running cluster of this directory (see 'quorate dev')")
	f.IntVar(&b.voters, "voters", 3, "voters of the temporary cluster")
	f.IntVar(&b.nonvoters, "nonvoters", nonvoters, "nodes without a vote of the temporary cluster")
	f.StringArrayVar(&b.set, "set", nil, "setting for every node of the temporary cluster, as flag=value")
}

// flags adds those of the output. name is that of the files in the directory.
func (b *benchOutput) flags(f *pflag.FlagSet, name string, csv bool) {
	files := name + ".json and " + name + ".html"
	if csv {
		files = name + ".json, " + name + ".csv and " + name + ".html"
		f.StringVar(&b.csv, "csv", "", "file for the time line as CSV")
	}
	f.StringVar(&b.dir, "output-dir", "", "directory for "+files)
	f.StringVar(&b.json, "json", "", "file for the JSON, - for standard output instead of the table")
	f.StringVar(&b.html, "html", "", "file for the HTML page")
}

// unmeasured is an error with the exit code for what could not be measured. The
// code 1 is for broken promises alone.
func unmeasured(err error) error {
	if err == nil {
		return nil
	}
	return cli.ExitError{Code: exitUnmeasured, Text: "error: " + err.Error()}
}

// exclusive refuses flags of which one makes the other meaningless.
func (o *benchModesOptions) exclusive(f *pflag.FlagSet) error {
	return errors.Join(excludeEachOther(f, "load", "rate"), o.cluster.exclusive(f))
}

func (b *benchCluster) exclusive(f *pflag.FlagSet) error {
	for _, other := range []string{"voters", "nonvoters", "set"} {
		if err := excludeEachOther(f, "data-dir", other); err != nil {
			return err
		}
	}
	return nil
}

func excludeEachOther(f *pflag.FlagSet, one, other string) error {
	if f.Changed(one) && f.Changed(other) {
		return fmt.Errorf("--%s and --%s exclude each other", one, other)
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
	target, end, err := o.cluster.open(ctx, progress)
	if err != nil {
		return err
	}
	r, err := modes.Run(ctx, benchTarget(target), o.Options, progress)
	if err := errors.Join(err, end()); err != nil {
		return err
	}
	if err := o.output.write(r, out); err != nil {
		return err
	}
	if err := o.output.histograms(r.Histograms(), "modes", out); err != nil {
		return err
	}
	if r.Failed() {
		return cli.ExitError{Code: exitBroken, Text: "error: a promise was broken or a request failed: see above"}
	}
	return nil
}

// complete checks the flags and resolves what they say together.
func (o *benchModesOptions) complete() (err error) {
	if o.Loads, err = modes.ParseLoads(o.load); err != nil {
		return fmt.Errorf("--%w", err)
	}
	o.Modes = nil
	for _, m := range o.modeNames {
		o.Modes = append(o.Modes, probe.Mode(m))
	}
	o.Command, o.Commit = provenance()
	if err := o.output.complete("modes"); err != nil {
		return err
	}
	return o.Validate()
}

// provenance is the command line and the commit, for reports.
func provenance() (command, builtFrom string) {
	builtFrom = commit
	if builtFrom == "" {
		builtFrom = "unknown"
	}
	return strings.Join(os.Args, " "), builtFrom
}

// complete names the files in the directory and finds out what cannot be written, before
// anything is measured.
func (b *benchOutput) complete(name string) error {
	if b.dir != "" {
		for end, file := range map[string]*string{".json": &b.json, ".html": &b.html, ".csv": &b.csv} {
			if *file == "" {
				*file = filepath.Join(b.dir, name+end)
			}
		}
		if err := os.MkdirAll(b.dir, 0o755); err != nil {
			return err
		}
	}
	for _, file := range []string{b.json, b.html, b.csv} {
		if info, err := os.Stat(filepath.Dir(file)); err != nil {
			return err
		} else if !info.IsDir() {
			return fmt.Errorf("%s is not a directory", filepath.Dir(file))
		}
	}
	return nil
}

// open opens the running cluster that is named, or starts one. end stops and removes
// what was started.
func (b *benchCluster) open(ctx context.Context, progress io.Writer) (t *playground.Target, end func() error, err error) {
	if b.dataDir != "" {
		t, err = playground.Running(b.dataDir)
		return t, func() error { return nil }, err
	}
	if err := playground.CheckSettings(ctx, b.set); err != nil {
		return nil, nil, err
	}
	return playground.Temporary(ctx, playground.Options{
		Nodes: b.voters, Nonvoters: b.nonvoters, Set: b.set, Partitions: b.partitions, SlowDisks: b.slowDisks,
	}, progress)
}

// benchTarget is a playground as those who measure know it.
func benchTarget(t *playground.Target) client.Cluster {
	out := client.Cluster{TLS: t.TLS, Dir: t.Dir}
	for _, n := range t.Nodes {
		out.Nodes = append(out.Nodes, client.Node{Name: n.Name, API: n.API, PID: n.PID})
	}
	return out
}

// write writes the report in all forms that are asked for.
func (b *benchOutput) write(r benchReport, out io.Writer) error {
	type form struct {
		file  string
		write func(io.Writer) error
	}
	json := func(w io.Writer) error { return report.WriteJSON(w, r) }
	if r, ok := r.(interface{ WriteJSON(io.Writer) error }); ok {
		json = r.WriteJSON
	}
	var shown any = r
	if r, ok := r.(interface{ Doc() *report.Doc }); ok {
		shown = r.Doc()
	}
	table := json
	if b.json != "-" {
		table = shown.(interface{ WriteTable(io.Writer) error }).WriteTable
	}
	if err := table(out); err != nil {
		return err
	}
	forms := []form{{b.json, json}}
	if page, ok := shown.(interface{ WriteHTML(io.Writer) error }); ok {
		forms = append(forms, form{b.html, page.WriteHTML})
	}
	if r, ok := r.(interface{ WriteCSV(io.Writer) error }); ok {
		forms = append(forms, form{b.csv, r.WriteCSV})
	}
	for _, x := range forms {
		if x.file == "" || x.file == "-" {
			continue
		}
		if err := writeFile(x.file, x.write); err != nil {
			return err
		}
		if b.json != "-" {
			fmt.Fprintf(out, "\n%s", x.file)
		}
	}
	if b.json != "-" {
		fmt.Fprintln(out)
	}
	return nil
}

// histograms writes the percentile files into the directory, if there is one.
func (b *benchOutput) histograms(all []measure.Named, name string, out io.Writer) error {
	if b.dir == "" {
		return nil
	}
	err := measure.WriteFiles(b.dir, name, all)
	if err == nil && b.json != "-" && len(all) > 0 {
		fmt.Fprintln(out, filepath.Join(b.dir, name+"-*.hgrm"))
	}
	return err
}

func writeFile(path string, write func(io.Writer) error) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	return errors.Join(write(f), f.Close())
}
