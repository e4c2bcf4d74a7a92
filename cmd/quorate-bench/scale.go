package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/quorate/quorate/bench/client"
	"github.com/quorate/quorate/bench/scale"
	"github.com/quorate/quorate/internal/cli"
	"github.com/quorate/quorate/internal/playground"
	"github.com/spf13/cobra"
)

// benchScaleOptions are the flags of `quorate bench scale`.
type benchScaleOptions struct {
	scale.Options
	sizes  string
	set    []string
	output benchOutput
}

func benchScaleCommand() *cobra.Command {
	o := benchScaleOptions{Options: scale.DefaultOptions()}
	c := &cobra.Command{
		Use:   "scale POINT",
		Short: "Measure a cluster of a size that others have published figures for",
		Long: `Starts clusters of three nodes on loopback with a tenth, a third and all of what POINT
says (--size), measures them, and removes them. Prints for each row the nodes' CPU time
and memory, the latencies, and those of another client's gets meanwhile; how they grow
with the size; and what others have published; --output-dir also writes JSON, CSV, an
HTML page with the curves, and percentile files. The objects come from a backup that is
multiplied: no request creates them.

` + scale.Describe(),
		Example: `  quorate bench scale configmaps
  quorate bench scale kep2340 --size 0.1,1 --duration 20s --output-dir report`,
		ValidArgs: scale.Names(),
	}
	var point string
	benchRuns(c, func(ctx context.Context, cmd *cobra.Command) error {
		return o.run(ctx, point, cmd.OutOrStdout(), cmd.ErrOrStderr())
	})
	c.Args = func(cmd *cobra.Command, args []string) error {
		if err := cli.Exactly("POINT")(cmd, args); err != nil {
			return unmeasured(err)
		}
		point = args[0]
		return nil
	}
	cli.ExitCodes(c,
		cli.Note{"1", "a request failed"},
		cli.Note{"2", "it could not be measured"},
		cli.Note{"130", "it was stopped by a signal; what it had started is gone"})
	f := c.Flags()
	f.StringVar(&o.sizes, "size", "", "shares of the full size to measure (default: 0.1,0.3,1; of kep3157 0.0625,0.25,1)")
	f.DurationVar(&o.Duration, "duration", o.Duration, "how long to measure what goes on for a time")
	f.Float64Var(&o.Gets, "gets", o.Gets, "gets per second of the other client")
	f.StringArrayVar(&o.set, "set", nil, "setting for every node, as flag=value")
	o.output.flags(f, "scale", true)
	f.Lookup("csv").Usage = "file for the rows as CSV"
	f.Lookup("output-dir").Usage = "directory for scale.json, scale.csv, scale.html and percentile files (.hgrm) of each row"
	return c
}

func (o *benchScaleOptions) run(ctx context.Context, point string, out, progress io.Writer) (err error) {
	o.Point = point
	o.Command, o.Commit = provenance()
	if o.Sizes, err = scale.ParseSizes(o.sizes); err != nil {
		return fmt.Errorf("--size: %w", err)
	}
	if err := errors.Join(o.Validate(), playground.CheckSettings(ctx, o.set), o.output.complete("scale")); err != nil {
		return err
	}
	lab := func(ctx context.Context, nodes int, backup string, settings []string) (scale.Machines, error) {
		t, end, err := playground.Temporary(ctx, playground.Options{Nodes: nodes, Set: slices.Concat(settings, o.set), Backup: backup}, progress)
		if err != nil {
			return nil, err
		}
		return &scaleMachines{t, end}, nil
	}
	report, err := scale.Run(ctx, lab, o.Options, progress)
	if err != nil {
		return err
	}
	return o.output.finish("scale", report, out, "requests failed")
}

// scaleMachines is a temporary playground.
type scaleMachines struct {
	*playground.Target
	end func() error
}

func (m *scaleMachines) Cluster() client.Cluster { return benchTarget(m.Target) }

func (m *scaleMachines) End() error { return m.end() }
