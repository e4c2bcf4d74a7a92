package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/quorate/quorate/bench/load"
	"github.com/quorate/quorate/bench/report"
	"github.com/quorate/quorate/internal/cli"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// benchLoadOptions are the flags of `quorate bench load`.
type benchLoadOptions struct {
	load.Options
	mix     string
	cluster benchCluster
	output  benchOutput
	form    string // -o
	against string
	etcd    benchEtcd
}

func benchLoadCommand() *cobra.Command {
	o := benchLoadOptions{Options: load.DefaultOptions()}
	c := &cobra.Command{
		Use:   "load",
		Short: "Measure throughput, latency and CPU of operations, of any Kubernetes API or of etcd",
		Long: `Makes 10,000 ConfigMaps of 1 KiB in a namespace of its own, works through the rows,
and deletes what it made: for each row operations per second, latency, errors, and
the CPU time of all servers per operation where their processes are known.

Rows: ` + strings.Join(load.RowNames(), ", ") + `
  get and list read with resourceVersion unset, get0 and list0 with 0, page the
  first 500; update is a PUT with resourceVersion, patch a merge patch, apply a
  server-side apply; watch is events delivered to 200 watchers. --mix mixes them by
  weight instead; in a mix, a watch is opened until it has the state of one object.

Without --rate it is a closed loop: --workers, each of which sends its next operation
when the last one is answered. It finds the peak. With --rate operations are due at
random times, so many per second, whatever the servers do, and latency counts from
when they were due: what clients see at that rate. --sweep doubles the rate until the
99th percentile, the errors or the throughput give way, and looks for the knee.

It measures a cluster of its own, three voters that it starts and removes, or
  --data-dir     a running one of 'quorate dev',
  --kubeconfig   any server of the Kubernetes API, kube-apiserver too (several servers
                 by --server or --context, several times; --pids for their CPU),
  --etcd         etcd itself, with plain keys: no patch, apply or watch.

Exit code 0 says that every operation succeeded. Ctrl-C ends it with what was measured
until then; a second one at once.`,
		Example: `  quorate bench load
  quorate bench load --rows create,get,update --output-dir report
  quorate bench load --mix get=70,update=20,list=5,create=5 --rate 500 --duration 30s
  quorate bench load --rows get --sweep --data-dir .quorate
  quorate bench load --kubeconfig ~/.kube/config --context kind-kind --objects 1000
  quorate bench load --etcd https://127.0.0.1:2379 --etcd-cacert ca.crt --etcd-cert client.crt --etcd-key client.key`,
	}
	benchRuns(c, func(ctx context.Context, cmd *cobra.Command) error {
		if err := o.exclusive(cmd.Flags()); err != nil {
			return err
		}
		return o.run(ctx, cmd.OutOrStdout(), cmd.ErrOrStderr())
	})
	cli.ExitCodes(c,
		cli.Note{"1", "an operation failed (or, with --goals, a row is above its limit)"},
		cli.Note{"2", "it could not be measured"},
		cli.Note{"130", "it was stopped by a signal; what it had started is gone"})
	f := c.Flags()
	f.StringSliceVar(&o.Rows, "rows", o.Rows, "rows to measure, or all")
	f.StringVar(&o.mix, "mix", "", "operations with their weights, as in get=80,update=20")
	f.DurationVar(&o.Duration, "duration", o.Duration, "time per row, or per rate of a sweep (create and watch are counted instead)")
	f.IntVar(&o.Workers, "workers", o.Workers, "workers of the closed loop; lists use 4")
	f.IntVar(&o.Connections, "connections", o.Connections, "HTTP/2 connections, to the servers in turn")
	f.IntVar(&o.Objects, "objects", o.Objects, "ConfigMaps in the namespace, or keys")
	f.Float64Var(&o.Rate, "rate", 0, "operations that are due per second: an open loop")
	f.BoolVar(&o.Sweep, "sweep", false, "raise the rate, from --rate or 100 on, to the knee")
	f.DurationVar(&o.SweepP99, "sweep-p99", o.SweepP99, "99th percentile above which a rate is too high")
	f.Float64Var(&o.SweepErrors, "sweep-errors", o.SweepErrors, "share of failed operations above which a rate is too high")
	f.DurationVar(&o.Timeout, "timeout", o.Timeout, "when an operation is given up")
	f.IntVar(&o.Repeat, "repeat", o.Repeat, "how often to measure all of it, each time with objects of its own")
	f.StringVar(&o.Namespace, "namespace", "", "namespace to use; one that is there already must have the objects of a run with --keep (default: a new one)")
	f.BoolVar(&o.Keep, "keep", false, "leave the namespace and its objects behind")
	f.BoolVar(&o.Goals, "goals", false, "judge the rows by the goals of bench/README.md")
	f.BoolVar(&o.Calibrate, "calibrate", false, "measure a bare HTTPS server too, and judge by CPU times at the speed of the machine that the goals are from")
	f.StringVar(&o.against, "against", "", "report of another server on this machine (--json) to print beside this one, and to judge by")
	o.cluster.flags(f, 0)
	o.cluster.otherFlags(f)
	f.Lookup("pids").Usage = "processes on this machine whose CPU time and memory are the servers'"
	f.StringSliceVar(&o.etcd.urls, "etcd", nil, "measure etcd at these client URLs")
	f.StringVar(&o.etcd.ca, "etcd-cacert", "", "CA that etcd's servers are verified with")
	f.StringVar(&o.etcd.cert, "etcd-cert", "", "client certificate for etcd")
	f.StringVar(&o.etcd.key, "etcd-key", "", "its key")
	o.output.flags(f, "load", true)
	f.Lookup("csv").Usage = "file for the rows as CSV"
	f.Lookup("output-dir").Usage = "directory for load.json, load.csv, load.html and a percentile file (.hgrm) of each row"
	f.StringVar(&o.output.svg, "svg", "", "file for the figure of latencies, or of the sweep, as SVG")
	f.StringVarP(&o.form, "output", "o", "table", "table, or json for the JSON on standard output")
	cli.CompleteOutput(c, "table", "json")
	return c
}

// bareServerCommand is what `--calibrate` measures: the least that a Go HTTPS server can do.
func bareServerCommand() *cobra.Command {
	return &cobra.Command{
		Use: load.BareArguments[0], Hidden: true, Args: cli.NoArguments, Short: "Be the bare HTTPS server that --calibrate measures, until standard input ends",
		RunE: func(cmd *cobra.Command, _ []string) error { return load.ServeBare(cmd.InOrStdin(), os.Stdout) },
	}
}

// exclusive refuses flags of which one makes the other meaningless.
func (o *benchLoadOptions) exclusive(f *pflag.FlagSet) error {
	return errors.Join(o.cluster.exclusive(f), excludeEachOther(f, "mix", "rows"), need(f, "etcd-cacert", "etcd"), need(f, "etcd-cert", "etcd"), need(f, "etcd-key", "etcd"),
		need(f, "etcd-cert", "etcd-key"), need(f, "etcd-key", "etcd-cert"), need(f, "sweep-p99", "sweep"), need(f, "sweep-errors", "sweep"), need(f, "calibrate", "goals"))
}

func (o *benchLoadOptions) run(ctx context.Context, out, progress io.Writer) error {
	if err := o.complete(); err != nil {
		return err
	}
	var peer *load.Report
	if o.against != "" {
		var err error
		if peer, err = load.ReadReport(o.against); err != nil {
			return err
		}
	}
	target, end, err := load.Target{Etcd: len(o.etcd.urls) > 0}, func() error { return nil }, error(nil)
	if target.Etcd {
		target.Cluster, err = o.etcd.members(o.cluster.pids)
	} else {
		target.Cluster, end, err = o.cluster.target(ctx, progress)
	}
	if err != nil {
		return err
	}
	r, err := load.Run(ctx, target, o.Options, report.Progress{Lines: progress, Status: statusLine(progress)})
	stopped := errors.Is(err, load.ErrStopped) && r != nil
	if ended := end(); err != nil && !stopped || ended != nil {
		return errors.Join(err, ended)
	}
	if err := o.output.write("load", r, out); err != nil {
		return err
	}
	if peer != nil && o.output.json != "-" {
		if err := r.WriteAgainst(out, peer); err != nil {
			return err
		}
	}
	switch {
	case stopped:
		return cli.ExitError{Code: cli.ExitStopped, Text: "stopped"}
	case peer != nil && r.FailedBeside(peer), peer == nil && r.Failed():
		return cli.ExitError{Code: exitBroken, Text: "error: operations failed, or a row is above its limit: see above"}
	}
	return nil
}

// complete checks the flags and resolves what they say together.
func (o *benchLoadOptions) complete() (err error) {
	if o.mix != "" {
		o.Rows = nil
		if o.Mix, err = load.ParseMix(o.mix); err != nil {
			return fmt.Errorf("--%w", err)
		}
	}
	switch o.form {
	case "table":
	case "json":
		if o.output.json != "" {
			return errors.New("-o json and --json exclude each other")
		}
	default:
		return fmt.Errorf("--output %q: must be table or json", o.form)
	}
	o.Command, o.Commit = provenance()
	if c := os.Getenv("BENCH_COMMAND"); c != "" {
		o.Command = strings.TrimSpace(c) // what a person types, if a script does it for them
	}
	if err := o.output.complete("load"); err != nil {
		return err
	}
	if o.form == "json" {
		o.output.json = "-"
	}
	return o.Validate()
}
