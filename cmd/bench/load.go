package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"slices"
	"strings"

	"github.com/quorate/quorate/bench/client"
	"github.com/quorate/quorate/bench/load"
	"github.com/quorate/quorate/internal/cli"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// benchLoadOptions are the flags of `quorate bench load`.
type benchLoadOptions struct {
	load.Options
	mix     string
	cluster benchCluster
	output  benchOutput
	form    string // -o
	against string
	target  benchTargets
}

// benchTargets are the flags that name what was not started by quorate.
type benchTargets struct {
	clusterFile string
	kubeconfig  string
	contexts    []string
	etcd        []string
	etcdCA      string
	etcdCert    string
	etcdKey     string
	pids        []int
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
  --kubeconfig   any server of the Kubernetes API, kube-apiserver too (--context NAME,
                 several times for several servers; --pids for their CPU),
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
	f.StringVar(&o.target.clusterFile, "cluster", "", "measure the nodes of a cluster.json, as 'quorate dev' writes it")
	f.StringVar(&o.target.kubeconfig, "kubeconfig", "", "measure the server of this kubeconfig")
	f.StringSliceVar(&o.target.contexts, "context", nil, "context of the kubeconfig (default: the current one)")
	f.StringSliceVar(&o.target.etcd, "etcd", nil, "measure etcd at these client URLs")
	f.StringVar(&o.target.etcdCA, "etcd-cacert", "", "CA that etcd's servers are verified with")
	f.StringVar(&o.target.etcdCert, "etcd-cert", "", "client certificate for etcd")
	f.StringVar(&o.target.etcdKey, "etcd-key", "", "its key")
	f.IntSliceVar(&o.target.pids, "pids", nil, "processes on this machine whose CPU time and memory are the servers'")
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
	errs := []error{o.cluster.exclusive(f), excludeEachOther(f, "mix", "rows")}
	targets := []string{"data-dir", "cluster", "kubeconfig", "etcd"}
	for i, one := range targets {
		for _, other := range targets[i+1:] {
			errs = append(errs, excludeEachOther(f, one, other))
		}
		for _, own := range []string{"voters", "nonvoters", "set"} {
			if one != "data-dir" { // the cluster's flags say that
				errs = append(errs, excludeEachOther(f, one, own))
			}
		}
	}
	need := func(one, other string) {
		if f.Changed(one) && !f.Changed(other) {
			errs = append(errs, fmt.Errorf("--%s needs --%s", one, other))
		}
	}
	need("context", "kubeconfig")
	for _, x := range []string{"etcd-cacert", "etcd-cert", "etcd-key"} {
		need(x, "etcd")
	}
	need("etcd-cert", "etcd-key")
	need("etcd-key", "etcd-cert")
	need("sweep-p99", "sweep")
	need("sweep-errors", "sweep")
	need("calibrate", "goals")
	if f.Changed("pids") && !f.Changed("kubeconfig") && !f.Changed("etcd") {
		errs = append(errs, errors.New("--pids needs --kubeconfig or --etcd: of quorate's own clusters the processes are known"))
	}
	return errors.Join(errs...)
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
	target, end, err := o.open(ctx, progress)
	if err != nil {
		return err
	}
	report, err := load.Run(ctx, target, o.Options, load.Progress{Lines: progress, Status: statusLine(progress)})
	stopped := errors.Is(err, load.ErrStopped) && report != nil
	if ended := end(); err != nil && !stopped || ended != nil {
		return errors.Join(err, ended)
	}
	if err := o.output.write("load", report, out); err != nil {
		return err
	}
	if peer != nil && o.output.json != "-" {
		if err := report.WriteAgainst(out, peer); err != nil {
			return err
		}
	}
	switch {
	case stopped:
		return cli.ExitError{Code: cli.ExitStopped, Text: "stopped"}
	case peer != nil && report.FailedBeside(peer), peer == nil && report.Failed():
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

// open finds or starts what is measured.
func (o *benchLoadOptions) open(ctx context.Context, progress io.Writer) (t load.Target, end func() error, err error) {
	nothing := func() error { return nil }
	switch {
	case o.target.clusterFile != "":
		t.Cluster, err = client.ReadCluster(o.target.clusterFile)
		return t, nothing, err
	case o.target.kubeconfig != "":
		t.Cluster, err = o.target.fromKubeconfig()
		return t, nothing, err
	case len(o.target.etcd) > 0:
		t.Etcd = true
		t.Cluster, err = o.target.fromEtcd()
		return t, nothing, err
	}
	own, end, err := o.cluster.open(ctx, progress)
	if err != nil {
		return t, nil, err
	}
	t.Cluster = benchTarget(own)
	return t, end, nil
}

// processes are nodes without an API: only what they cost counts.
func (b *benchTargets) processes() (out []client.Node, err error) {
	for _, pid := range b.pids {
		if pid <= 0 {
			return nil, fmt.Errorf("--pids %d: must be a process", pid)
		}
		if _, err := os.Stat(fmt.Sprintf("/proc/%d/stat", pid)); err != nil {
			return nil, fmt.Errorf("--pids %d: there is no such process on this machine", pid)
		}
		out = append(out, client.Node{Name: fmt.Sprintf("pid %d", pid), PID: pid})
	}
	return out, nil
}

// fromKubeconfig is the servers of a kubeconfig's contexts, which the same user reaches.
func (b *benchTargets) fromKubeconfig() (c client.Cluster, err error) {
	contexts := b.contexts
	if len(contexts) == 0 {
		contexts = []string{""}
	}
	for i, name := range contexts {
		read := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(&clientcmd.ClientConfigLoadingRules{ExplicitPath: b.kubeconfig}, &clientcmd.ConfigOverrides{CurrentContext: name})
		config, err := read.ClientConfig()
		if err == nil && name == "" {
			raw, failed := read.RawConfig()
			name, err = raw.CurrentContext, failed
		}
		if err != nil {
			return c, fmt.Errorf("--kubeconfig %s: %w", b.kubeconfig, err)
		}
		one, token, err := credentials(config)
		if err != nil {
			return c, fmt.Errorf("--kubeconfig %s: %w", b.kubeconfig, err)
		}
		switch {
		case i == 0:
			c.TLS, c.Token = one, token
		case token != c.Token || !sameTLS(one, c.TLS):
			return c, fmt.Errorf("--context %s: it has another user or another CA than %s", name, contexts[0])
		}
		c.Nodes = append(c.Nodes, client.Node{Name: name, API: config.Host})
	}
	more, err := b.processes()
	c.Nodes = append(c.Nodes, more...)
	return c, err
}

// credentials are how a server is reached. What a load cannot do as the kubeconfig says is
// refused.
func credentials(config *rest.Config) (*tls.Config, string, error) {
	switch {
	case config.ExecProvider != nil:
		return nil, "", fmt.Errorf("its user has an exec plugin (%s), which is not run: put a token or a certificate in its place", config.ExecProvider.Command)
	case config.AuthProvider != nil:
		return nil, "", errors.New("its user has an auth-provider, which is not supported")
	case config.Username != "" || config.Password != "":
		return nil, "", errors.New("its user has a password: servers of the Kubernetes API take none any more")
	case config.Impersonate.UserName != "" || config.Impersonate.UID != "" || len(config.Impersonate.Groups) > 0 || len(config.Impersonate.Extra) > 0:
		return nil, "", errors.New("its user acts as another one (as, as-groups), which is not supported")
	case config.Proxy != nil:
		return nil, "", errors.New("its cluster has a proxy-url, which is not supported")
	}
	if u, err := url.Parse(config.Host); err != nil || u.Scheme != "https" {
		return nil, "", fmt.Errorf("its server is %q: want https://HOST:PORT", config.Host)
	}
	t, err := rest.TLSConfigFor(config)
	if err != nil {
		return nil, "", err
	}
	if t == nil {
		t = &tls.Config{MinVersion: tls.VersionTLS12}
	}
	if t.GetClientCertificate != nil && len(t.Certificates) == 0 {
		cert, err := t.GetClientCertificate(nil)
		if err != nil {
			return nil, "", err
		}
		t.Certificates = []tls.Certificate{*cert}
	}
	t.NextProtos = []string{"h2"}
	token := config.BearerToken
	if token == "" && config.BearerTokenFile != "" {
		raw, err := os.ReadFile(config.BearerTokenFile)
		if err != nil {
			return nil, "", err
		}
		token = strings.TrimSpace(string(raw))
	}
	return t, token, nil
}

func sameTLS(a, b *tls.Config) bool {
	certs := func(c *tls.Config) (all []byte) {
		for _, x := range c.Certificates {
			for _, der := range x.Certificate {
				all = append(all, der...)
			}
		}
		return all
	}
	roots := a.RootCAs == nil && b.RootCAs == nil || a.RootCAs != nil && b.RootCAs != nil && a.RootCAs.Equal(b.RootCAs)
	return roots && a.ServerName == b.ServerName && a.InsecureSkipVerify == b.InsecureSkipVerify && slices.Equal(certs(a), certs(b))
}

// fromEtcd is the members of an etcd.
func (b *benchTargets) fromEtcd() (c client.Cluster, err error) {
	c.TLS = &tls.Config{MinVersion: tls.VersionTLS12, NextProtos: []string{"h2"}}
	for _, text := range b.etcd {
		u, err := url.Parse(text)
		if err != nil || u.Scheme != "https" && u.Scheme != "http" || u.Host == "" {
			return c, fmt.Errorf("--etcd %q: must be the client URL of a member, as https://127.0.0.1:2379", text)
		}
		c.Nodes = append(c.Nodes, client.Node{Name: u.Host, API: text})
	}
	if b.etcdCA != "" {
		pem, err := os.ReadFile(b.etcdCA)
		if err != nil {
			return c, fmt.Errorf("--etcd-cacert: %w", err)
		}
		c.TLS.RootCAs = x509.NewCertPool()
		if !c.TLS.RootCAs.AppendCertsFromPEM(pem) {
			return c, fmt.Errorf("--etcd-cacert: no certificate in %s", b.etcdCA)
		}
	}
	if b.etcdCert != "" {
		pair, err := tls.LoadX509KeyPair(b.etcdCert, b.etcdKey)
		if err != nil {
			return c, fmt.Errorf("--etcd-cert, --etcd-key: %w", err)
		}
		c.TLS.Certificates = []tls.Certificate{pair}
	}
	more, err := b.processes()
	c.Nodes = append(c.Nodes, more...)
	return c, err
}
