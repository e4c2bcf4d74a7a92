package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/quorate/quorate/bench/faults"
	"github.com/quorate/quorate/bench/report"
	"github.com/quorate/quorate/internal/cli"
	"github.com/spf13/cobra"
	"golang.org/x/term"
)

// benchFaultsOptions are the flags of `quorate bench faults`.
type benchFaultsOptions struct {
	faults.Options
	faults  []string
	cluster benchCluster
	output  benchOutput
}

func benchFaultsCommand() *cobra.Command {
	o := benchFaultsOptions{Options: faults.DefaultOptions()}
	c := &cobra.Command{
		Use:   "faults",
		Short: "Measure for how long writes and reads are not served when nodes fail",
		Long: `Sends writes and reads of each mode to all nodes at random times while nodes are
killed, paused, restarted and cut off, or their disks are slow. Prints, for each fault
and mode, the longest time without a success, when 95 % of the throughput was there
again, and when the node itself served again; of slow disks also the latencies
meanwhile. --output-dir also writes faults.json, faults.csv and faults.html with the
time line in bins of 100 ms. It checks meanwhile that no acknowledged write is lost
and that reads keep what their mode promises.

A fault is KIND:TARGET@AT+FOR. TARGET: a role (leader, follower, nonvoter) or a
node's name. AT is when, since the measurement began, FOR how long; without them a
fault lasts 5s and the next one begins 10s later. The kinds:

  kill            SIGKILL, and started again at the end
  pause           SIGSTOP, SIGCONT at the end
  restart         SIGTERM, and started again at once
  partition       cut off from the other nodes, not from clients
  partition=in    it hears nothing of them
  partition=out   they hear nothing of it
  slow-disk=20ms  each sync of its disk takes so much longer (without a time 20ms)

It starts a cluster of its own and removes it, unless --data-dir names one of
'quorate dev' that runs: that one's nodes are killed and started again. For a partition
what nodes send to each other goes through this program, for a slow disk the kernel
asks it about each sync (Linux 5.5; no privileges): both only in a cluster of its own.`,
		Example: `  quorate bench faults
  quorate bench faults --fault kill:leader --repeat 20 --output-dir report
  quorate bench faults --fault pause:follower@5s+8s --fault restart:n2 --writes 300
  quorate bench faults --fault partition:leader@2s+6s --after 3s --repeat 3
  quorate bench faults --fault slow-disk=20ms:leader --fault slow-disk=20ms:follower`,
	}
	benchRuns(c, func(ctx context.Context, cmd *cobra.Command) error {
		if err := o.cluster.exclusive(cmd.Flags()); err != nil {
			return err
		}
		return o.run(ctx, cmd.OutOrStdout(), cmd.ErrOrStderr())
	})
	cli.ExitCodes(c,
		cli.Note{"1", "a promise was broken: an acknowledged write was lost, or a read was staler than its mode allows"},
		cli.Note{"2", "it could not be measured"},
		cli.Note{"130", "it was stopped by a signal; what it had started is gone, what it had stopped runs"})
	f := c.Flags()
	var usual []string
	for _, x := range faults.DefaultFaults() {
		usual = append(usual, x.String())
	}
	f.StringSliceVar(&o.faults, "fault", usual, "what happens, one after the other")
	f.IntVar(&o.Repeat, "repeat", o.Repeat, "how often all of it happens")
	f.DurationVar(&o.After, "after", o.After, "how long to measure behind the last fault")
	f.Float64Var(&o.Writes, "writes", o.Writes, "writes per second, all nodes together")
	f.Float64Var(&o.Reads, "reads", o.Reads, "reads per second of each mode on each node")
	f.DurationVar(&o.Timeout, "timeout", o.Timeout, "when a request is given up")
	f.IntVar(&o.Size, "size", o.Size, "bytes of each object's value")
	o.cluster.flags(f, 0)
	o.output.flags(f, "faults", true)
	return c
}

func (o *benchFaultsOptions) run(ctx context.Context, out, progress io.Writer) error {
	if err := o.complete(); err != nil {
		return err
	}
	target, end, err := o.cluster.open(ctx, progress)
	if err != nil {
		return err
	}
	r, err := faults.Run(ctx, faults.Target{Cluster: benchTarget(target), Machines: target}, o.Options, report.Progress{Lines: progress, Status: statusLine(progress)})
	if err := errors.Join(err, end()); err != nil {
		return err
	}
	return o.output.finish("faults", r, out, "a promise was broken")
}

func (o *benchFaultsOptions) complete() error {
	var all []faults.Fault
	for _, text := range o.faults {
		f, err := faults.ParseFault(text)
		if err != nil {
			return err
		}
		all = append(all, f)
	}
	o.Faults = faults.Schedule(all)
	o.cluster.partitions, o.cluster.slowDisks = faults.Needs(all)
	if o.cluster.dataDir != "" && (o.cluster.partitions || o.cluster.slowDisks) {
		return errors.New("the nodes of a running cluster cannot be cut off, nor their disks slowed: their connections and syncs would have to go through this program from the start. Leave out --data-dir, or partition and slow-disk")
	}
	o.Command, o.Commit = provenance()
	if err := o.output.complete("faults"); err != nil {
		return err
	}
	return o.Validate()
}

// statusLine shows a text in the last line of a terminal, in place of the one before; an empty
// one removes it. It is nil if w is none.
func statusLine(w io.Writer) func(string) {
	if f, ok := w.(*os.File); !ok || !term.IsTerminal(int(f.Fd())) {
		return nil
	}
	return func(text string) { fmt.Fprintf(w, "\r\x1b[K%s", text) }
}
