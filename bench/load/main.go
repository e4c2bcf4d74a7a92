package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/quorate/quorate/bench/client"
)

// options are the flags of the program.
type options struct {
	cluster   string
	scenarios string
	duration  time.Duration
	workers   int
	objects   int
	namespace string
	keep      bool
	calibrate bool
	against   string
	output    string
}

// errAbove is returned when everything was measured and a row is above its limit.
var errAbove = errors.New("not every row is within its limit")

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	var err error
	if len(os.Args) == 2 && os.Args[1] == bareArgument {
		err = serveBare(os.Stdin, os.Stdout)
	} else {
		err = run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	}
	switch {
	case err == nil, errors.Is(err, flag.ErrHelp):
	case errors.Is(err, errAbove):
		fmt.Fprintln(os.Stderr, "load:", err)
		os.Exit(1)
	default:
		fmt.Fprintln(os.Stderr, "load:", err)
		os.Exit(2)
	}
}

func parse(args []string, errOut io.Writer) (options, error) {
	o := options{}
	f := flag.NewFlagSet("load", flag.ContinueOnError)
	f.SetOutput(errOut)
	f.StringVar(&o.cluster, "cluster", ".cache/dev/cluster.json", "cluster.json of `quorate dev`")
	f.StringVar(&o.scenarios, "scenarios", "all", "comma-separated rows: "+strings.Join(names(scenarios), ", "))
	f.DurationVar(&o.duration, "duration", 5*time.Second, "time per row (create and watch are counted instead)")
	f.IntVar(&o.workers, "workers", 32, "concurrent requests; lists use 4")
	f.IntVar(&o.objects, "objects", 10000, "ConfigMaps in the namespace")
	f.StringVar(&o.namespace, "namespace", "", "namespace to use; one that is there already keeps its objects (default: a new one)")
	f.BoolVar(&o.keep, "keep", false, "leave the namespace and its objects behind")
	f.BoolVar(&o.calibrate, "calibrate", true, "measure a bare Go HTTPS server too, and judge by CPU times at the speed of the peer's machine")
	f.StringVar(&o.against, "against", "", "report of another cluster (-o json) to print beside this one")
	f.StringVar(&o.output, "o", "table", "output: table or json")
	if err := f.Parse(args); err != nil {
		return o, err
	}
	switch {
	case f.NArg() > 0:
		return o, fmt.Errorf("unexpected argument %q", f.Arg(0))
	case o.output != "table" && o.output != "json":
		return o, fmt.Errorf("-o %s: want table or json", o.output)
	case o.workers < 1 || o.objects < o.workers:
		return o, fmt.Errorf("--workers %d, --objects %d: want at least one worker, and an object for each", o.workers, o.objects)
	}
	if o.namespace == "" {
		o.namespace = "bench-" + strconv.FormatInt(time.Now().Unix(), 36)
	}
	return o, nil
}

func run(ctx context.Context, args []string, out, errOut io.Writer) error {
	o, err := parse(args, errOut)
	if err != nil {
		return err
	}
	chosen, err := choose(o.scenarios)
	if err != nil {
		return err
	}
	read, err := client.ReadCluster(o.cluster)
	if err != nil {
		return err
	}
	cluster := &cluster{read}
	var peer *report
	if o.against != "" {
		if peer, err = readReport(o.against); err != nil {
			return err
		}
	}
	conns, err := cluster.connect(ctx, connections)
	if err != nil {
		return err
	}
	defer client.CloseAll(conns)

	b := newBench(o, cluster, conns)
	report, err := b.measure(ctx, chosen, errOut)
	if !o.keep {
		err = errors.Join(err, b.clean(context.WithoutCancel(ctx)))
	}
	if err != nil {
		return err
	}
	switch {
	case o.output == "json":
		err = report.writeJSON(out)
	case peer != nil:
		err = errors.Join(report.writeTable(out), report.writeAgainst(out, peer))
	default:
		err = report.writeTable(out)
	}
	if err == nil && !report.passed(peer) {
		err = errAbove
	}
	return err
}
