package main

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/quorate/quorate/bench/modes"
	"github.com/quorate/quorate/bench/probe"
	"github.com/quorate/quorate/internal/cli"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// benchModesOptions are the flags of `quorate bench modes`.
type benchModesOptions struct {
	modes.Options
	load      string
	modeNames []string
	cluster   benchCluster
	output    benchOutput
}

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
'quorate dev' that runs, or --kubeconfig servers of any cluster, kube-apiserver too:
several by --server or --context, several times. What has no roles is measured as it
is named, and Any has no promise where servers say no bound.`,
		Example: `  quorate bench modes
  quorate bench modes --load half --output-dir report
  quorate bench modes --data-dir .quorate --modes any,most-recent --nodes n1,n3 --rate 200
  quorate bench modes --kubeconfig ~/.kube/config --server https://10.0.0.1:6443,https://10.0.0.2:6443`,
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
	o.cluster.otherFlags(f)
	o.output.flags(f, "modes", true)
	f.Lookup("csv").Usage = "file for the cells as CSV"
	f.Lookup("output-dir").Usage = "directory for modes.json, modes.csv, modes.html and percentile files (.hgrm) of each cell"
	return c
}

// exclusive refuses flags of which one makes the other meaningless.
func (o *benchModesOptions) exclusive(f *pflag.FlagSet) error {
	return errors.Join(excludeEachOther(f, "load", "rate"), o.cluster.exclusive(f))
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
	target, end, err := o.cluster.target(ctx, progress)
	if err != nil {
		return err
	}
	r, err := modes.Run(ctx, target, o.Options, progress)
	if err := errors.Join(err, end()); err != nil {
		return err
	}
	return o.output.finish("modes", r, out, "a promise was broken or a request failed")
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
