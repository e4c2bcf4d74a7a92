package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/clientcmd/api"

	"github.com/quorate/quorate/bench/client"
	"github.com/quorate/quorate/bench/host"
)

// errFailed says that a load has shown what must not be.
var errFailed = errors.New("the servers did not stand the load")

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	switch err := run(ctx, os.Args[1:], os.Stdout, os.Stderr); {
	case errors.Is(err, errFailed):
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	case err != nil:
		fmt.Fprintln(os.Stderr, "load:", err)
		os.Exit(2)
	}
}

func run(ctx context.Context, args []string, out, progress io.Writer) error {
	f := flag.NewFlagSet("load", flag.ContinueOnError)
	f.SetOutput(progress)
	tools := f.String("tools", "", "directory of the tools")
	tool := f.String("tool", "", "run the rows of this tool")
	only := f.String("only", "", "run rows whose names contain this")
	cluster := f.String("cluster", "", "file that describes the servers")
	etcd := f.String("etcd", "", "URLs of etcd's members behind the servers, separated by commas")
	side := f.String("side", ours, "of which the servers are")
	number := f.Int("run", 1, "number of this run")
	work := f.String("work", "", "directory for what the tools leave")
	table := f.String("table", "", "print the results of this file, and run nothing")
	if err := f.Parse(args); err != nil {
		return err
	}
	if *table != "" {
		results, err := load(*table)
		if err != nil {
			return err
		}
		if bad := write(out, results); bad != nil {
			return fmt.Errorf("%w:\n%w", errFailed, bad)
		}
		return nil
	}
	b, err := open(*cluster, *etcd, *tools, *work)
	if err != nil {
		return err
	}
	defer b.close()
	if *tool == "kperf" {
		if err := fill(ctx, b.rest); err != nil {
			return fmt.Errorf("make what kperf reads: %w", err)
		}
	}
	for _, r := range rows {
		name := r.tool + " " + r.name
		if r.tool != *tool || !strings.Contains(name, *only) {
			continue
		}
		fmt.Fprintf(progress, "%s: %s, run %d\n", *side, name, *number)
		m := b.measure(ctx, r)
		m.Side, m.Row, m.Run = *side, name, *number
		if err := json.NewEncoder(out).Encode(m); err != nil {
			return err
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
	}
	return nil
}

// load reads results, one after the other.
func load(file string) ([]result, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var all []result
	for d := json.NewDecoder(f); ; {
		var r result
		switch err := d.Decode(&r); {
		case errors.Is(err, io.EOF):
			return all, nil
		case err != nil:
			return nil, fmt.Errorf("read %s: %w", file, err)
		}
		all = append(all, r)
	}
}

// bench is what rows are run on.
type bench struct {
	tools, work string
	kubeconfigs []string // one for each server, and behind them one for all in turns
	metrics     []string // URLs of what the servers count
	pids        []int
	client      *http.Client
	rest        *rest.Config
	turns       net.Listener
	wg          sync.WaitGroup
}

// open prepares to run loads on servers.
func open(cluster, etcd, tools, work string) (*bench, error) {
	c, err := client.ReadCluster(cluster)
	if err != nil {
		return nil, err
	}
	files := struct{ CAFile, AdminCertFile, AdminKeyFile string }{}
	raw, err := os.ReadFile(cluster)
	if err == nil {
		err = json.Unmarshal(raw, &files)
	}
	if err != nil {
		return nil, err
	}
	b := &bench{tools: tools, work: work, client: &http.Client{Transport: &http.Transport{TLSClientConfig: c.TLS, ForceAttemptHTTP2: true}, Timeout: time.Minute}}
	var urls, servers []string
	for _, n := range c.Nodes {
		b.pids = append(b.pids, n.PID)
		if n.API != "" {
			urls = append(urls, n.API)
			servers = append(servers, strings.TrimPrefix(n.API, "https://"))
		}
	}
	for _, u := range append(strings.FieldsFunc(etcd, func(r rune) bool { return r == ',' }), urls...) {
		b.metrics = append(b.metrics, u+"/metrics")
	}
	if b.turns, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
		return nil, err
	}
	b.wg.Go(func() { inTurns(b.turns, servers) })
	for i, u := range append(urls, "https://"+b.turns.Addr().String()) {
		k := api.NewConfig()
		k.CurrentContext = "load"
		k.Clusters["load"] = &api.Cluster{Server: u, CertificateAuthority: files.CAFile}
		k.AuthInfos["load"] = &api.AuthInfo{ClientCertificate: files.AdminCertFile, ClientKey: files.AdminKeyFile}
		k.Contexts["load"] = &api.Context{Cluster: "load", AuthInfo: "load", Namespace: "default"}
		name := filepath.Join(work, fmt.Sprintf("kubeconfig%d", i))
		if err := clientcmd.WriteToFile(*k, name); err != nil {
			return nil, err
		}
		b.kubeconfigs = append(b.kubeconfigs, name)
	}
	b.rest, err = clientcmd.BuildConfigFromFlags("", b.kubeconfigs[0])
	if err != nil {
		return nil, err
	}
	b.rest.QPS = -1
	return b, nil
}

func (b *bench) close() {
	b.turns.Close()
	b.wg.Wait()
}

// inTurns passes each connection on to the next server, until the listener is closed.
func inTurns(l net.Listener, servers []string) {
	for n := 0; ; n++ {
		from, err := l.Accept()
		if err != nil {
			return
		}
		go func() {
			to, err := net.Dial("tcp", servers[n%len(servers)])
			if err != nil {
				from.Close()
				return
			}
			go func() {
				_, _ = io.Copy(to, from)
				_ = to.(*net.TCPConn).CloseWrite()
			}()
			_, _ = io.Copy(from, to)
			from.Close()
			to.Close()
		}()
	}
}

func freePort() (int, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port, nil
}

// directory makes an empty directory for what an instance of a row's tool reads and leaves.
func (b *bench) directory(name string, i int) (string, error) {
	dir := filepath.Join(b.work, strings.Map(func(r rune) rune {
		if r == ' ' || r == ',' || r == '×' {
			return '-'
		}
		return r
	}, name)+fmt.Sprintf("-%d", i))
	return dir, errors.Join(os.RemoveAll(dir), os.MkdirAll(dir, 0o700))
}

// measure runs a row.
func (b *bench) measure(ctx context.Context, r row) result {
	m, err := b.try(ctx, r)
	if err != nil {
		m.Error = err.Error()
	}
	return m
}

func (b *bench) try(ctx context.Context, r row) (result, error) {
	ctx, cancel := context.WithTimeout(ctx, perRow)
	defer cancel()
	var m result
	before, err := b.read(ctx)
	if err != nil {
		return m, err
	}
	used, err := host.CPUTimes(b.pids)
	if err != nil {
		return m, err
	}
	start := time.Now()
	sampled, most := make(chan struct{}), make(chan int64)
	go func() { most <- b.mostMemory(sampled) }()
	failed, ran := r.run(ctx, b, r.name)
	close(sampled)
	m.MemoryMiB = <-most >> 20
	m.Seconds, m.Failed = time.Since(start).Seconds(), failed
	now, err := host.CPUTimes(b.pids)
	if err != nil {
		return m, errors.Join(ran, fmt.Errorf("a server is gone: %w", err))
	}
	for i := range now {
		m.CPU += (now[i] - used[i]).Seconds()
	}
	after, err := b.read(ctx)
	if err != nil {
		return m, errors.Join(ran, err)
	}
	_, m.Refused = after.answers(before, "429")
	m.ErrorsOf, m.Errors = after.answers(before, "5")
	m.Elections = int(after.terms - before.terms)
	m.Ms = map[string][]float64{}
	for kind := range after.took {
		m.Ms[kind] = []float64{1000 * after.quantile(before, kind, 0.5), 1000 * after.quantile(before, kind, 0.99)}
	}
	return m, ran
}

// mostMemory returns the most bytes that all servers had resident at one time, until enough is closed.
func (b *bench) mostMemory(enough <-chan struct{}) (most int64) {
	tick := time.NewTicker(250 * time.Millisecond)
	defer tick.Stop()
	for {
		if n, err := host.ResidentMemory(b.pids); err == nil {
			most = max(most, n)
		}
		select {
		case <-enough:
			return most
		case <-tick.C:
		}
	}
}
