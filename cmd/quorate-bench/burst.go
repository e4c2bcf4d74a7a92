package main

import (
	"context"
	"errors"
	"io"
	"strings"

	"github.com/quorate/quorate/bench/burst"
	"github.com/quorate/quorate/internal/cli"
	"github.com/spf13/cobra"
)

// benchBurstOptions are the flags of `quorate bench burst`.
type benchBurstOptions struct {
	burst.Options
	cluster benchCluster
	output  benchOutput
}

func benchBurstCommand() *cobra.Command {
	o := benchBurstOptions{Options: burst.DefaultOptions()}
	c := &cobra.Command{
		Use:   "burst",
		Short: "Measure what a burst of patches does to the cluster and to its other clients",
		Long: `Many clients patch the same Deployments through all nodes, each as fast as it is
answered. Prints how many patches were answered, refused and lost, what a patch costs,
and what others see meanwhile: gets, renewals of leases, node statuses, watches and the
readiness of each node; the elections, and how long Raft waited for a processor. In the
end it reads what was patched: no patch that was acknowledged may be missing.

It starts a cluster of its own and removes it, unless --data-dir names one of
'quorate dev' that runs.`,
		Example: `  quorate bench burst
  quorate bench burst --user tenant --duration 10m
  quorate bench burst --patches apply,json,strategic --clients 100 --json burst.json`,
	}
	benchRuns(c, func(ctx context.Context, cmd *cobra.Command) error {
		if err := o.cluster.exclusive(cmd.Flags()); err != nil {
			return err
		}
		return o.run(ctx, cmd.OutOrStdout(), cmd.ErrOrStderr())
	})
	cli.ExitCodes(c,
		cli.Note{"1", "a patch was lost, another client was not served, a watch was cut, or there was an election"},
		cli.Note{"2", "it could not be measured"},
		cli.Note{"130", "it was stopped by a signal; what it had started is gone"})
	f := c.Flags()
	f.DurationVar(&o.Duration, "duration", o.Duration, "how long to send patches")
	f.IntVar(&o.Clients, "clients", o.Clients, "clients of each node")
	f.IntVar(&o.Objects, "objects", o.Objects, "Deployments that they patch")
	f.StringVar(&o.User, "user", o.User, "who sends the patches: "+strings.Join(burst.Users, " or "))
	f.StringSliceVar(&o.Patches, "patches", o.Patches, "kinds of patches, of "+strings.Join(burst.PatchKinds(), ", "))
	f.DurationVar(&o.Timeout, "timeout", o.Timeout, "when a request is given up")
	o.cluster.flags(f, 0)
	f.StringVar(&o.output.json, "json", "", "file for the JSON, - for standard output instead of the table")
	return c
}

func (o *benchBurstOptions) run(ctx context.Context, out, progress io.Writer) error {
	o.Command, o.Commit = provenance()
	if err := errors.Join(o.output.complete("burst"), o.Validate()); err != nil {
		return err
	}
	target, end, err := o.cluster.target(ctx, progress)
	if err != nil {
		return err
	}
	report, err := burst.Run(ctx, target, o.Options)
	if err := errors.Join(err, end()); err != nil {
		return err
	}
	return o.output.finish("burst", report, out, "patches were lost, or others were not served")
}
