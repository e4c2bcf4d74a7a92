package main

import (
	"context"
	"errors"
	"io"

	"github.com/quorate/quorate/bench/churn"
	"github.com/quorate/quorate/internal/cli"
	"github.com/spf13/cobra"
)

// benchChurnOptions are the flags of `quorate bench churn`.
type benchChurnOptions struct {
	churn.Options
	cluster benchCluster
	output  benchOutput
}

func benchChurnCommand() *cobra.Command {
	o := benchChurnOptions{Options: churn.DefaultOptions()}
	c := &cobra.Command{
		Use:   "churn",
		Short: "Measure what files and memory take while objects come and go",
		Long: `Clients make ConfigMaps of mixed sizes until there are as many as --objects says; then
30 % of their writes are creates, 40 % updates and 30 % deletes. Meanwhile, and for
--rest after the last write, it notes what the files of each node have of the disk
(state.db, the log, the log's reserve, the rest), each node's resident memory, and the
bytes of the objects. Prints the most of each third of the writes, and what is left in
the end. --svg draws it.

It starts a cluster of its own and removes it, unless --data-dir names one of
'quorate dev' that runs. Its nodes must be on this machine. Ctrl-C ends it with what was
measured until then.`,
		Example: `  quorate bench churn --svg churn.svg
  quorate bench churn --writes 100000 --voters 1 --rest 30s --set history-retention=10s
  quorate bench churn --objects 200 --smallest 1048576 --largest 1048576 --writes 400 --csv churn.csv`,
	}
	benchRuns(c, func(ctx context.Context, cmd *cobra.Command) error {
		if err := o.cluster.exclusive(cmd.Flags()); err != nil {
			return err
		}
		return o.run(ctx, cmd.OutOrStdout(), cmd.ErrOrStderr())
	})
	cli.ExitCodes(c,
		cli.Note{"1", "a write failed"},
		cli.Note{"2", "it could not be measured"},
		cli.Note{"130", "it was stopped by a signal; what it had started is gone"})
	f := c.Flags()
	f.Int64Var(&o.Writes, "writes", o.Writes, "writes of all clients")
	f.DurationVar(&o.Duration, "duration", 0, "end the writes after this time, if there are not as many yet; 0: when there are")
	f.IntVar(&o.Objects, "objects", o.Objects, "ConfigMaps that live at a time, with a tenth more or less")
	f.IntVar(&o.Clients, "clients", o.Clients, "clients, at the nodes in turn")
	f.IntVar(&o.Smallest, "smallest", o.Smallest, "bytes of the smallest value; the logarithm of the size is uniform")
	f.IntVar(&o.Largest, "largest", o.Largest, "bytes of the largest value")
	f.Uint64Var(&o.Seed, "seed", o.Seed, "what the clients' choices follow from")
	f.DurationVar(&o.Every, "every", o.Every, "time between samples")
	f.DurationVar(&o.Rest, "rest", o.Rest, "how long to take samples after the last write")
	f.DurationVar(&o.Timeout, "timeout", o.Timeout, "when a request is given up")
	o.cluster.flags(f, 0)
	f.StringVar(&o.output.json, "json", "", "file for the JSON, - for standard output instead of the table")
	f.StringVar(&o.output.csv, "csv", "", "file for the samples as CSV")
	f.StringVar(&o.output.svg, "svg", "", "file for the figure, as SVG")
	return c
}

func (o *benchChurnOptions) run(ctx context.Context, out, progress io.Writer) error {
	o.Command, o.Commit = provenance()
	if err := errors.Join(o.output.complete("churn"), o.Validate()); err != nil {
		return err
	}
	target, end, err := o.cluster.target(ctx, progress)
	if err != nil {
		return err
	}
	report, err := churn.Run(ctx, target, o.Options, progress)
	err = errors.Join(err, end())
	if report == nil {
		return err
	}
	if err != nil || report.Stopped {
		if err = errors.Join(err, o.output.write("churn", report, out)); err == nil {
			err = cli.ExitError{Code: cli.ExitStopped, Text: "stopped"}
		}
		return err
	}
	return o.output.finish("churn", report, out, "writes failed")
}
