// Program commits makes writes, each of a new object of the same size, to a cluster of
// Quorate, to kube-apiserver, or to etcd itself, by one or more clients without pauses,
// and says how long they took and how many batches the leader's log has written. bench/syncs.sh
// runs it beside strace.
//
// etcd gets its own protocol's Put, by the same raw HTTP/2 as the others, with a value as
// long as the body that the others get.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/quorate/quorate/bench/client"
	"github.com/quorate/quorate/bench/measure"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "commits:", err)
		os.Exit(2)
	}
}

// target is what is written to.
type target interface {
	// open returns what makes a write, of the object with a number and of some length.
	open(ctx context.Context) (write func(ctx context.Context, i int64) error, err error)
	// batches is how many the leader's log has written; 0 if it does not say.
	batches(ctx context.Context) (int64, error)
	// leader names the one that writes go to.
	leader() string
}

// result is what is printed.
type result struct {
	Leader     string          `json:"leader"`
	BeganNanos int64           `json:"beganNanos"`
	EndedNanos int64           `json:"endedNanos"`
	Writes     int64           `json:"writes"`
	PerSecond  float64         `json:"perSecond"`
	Batches    int64           `json:"batches"`
	Latency    measure.Latency `json:"latency"`
}

func run(ctx context.Context, args []string) error {
	f := flag.NewFlagSet("commits", flag.ContinueOnError)
	cluster := f.String("cluster", "", "cluster.json of `quorate dev`, or of kube-apiservers: objects are created")
	etcd := f.String("etcd", "", "client URLs of etcd, separated by commas: keys are put")
	workers := f.Int("workers", 1, "clients")
	writes := f.Int64("writes", 500, "writes of all of them")
	warm := f.Int64("warm", 100, "writes before, which do not count")
	size := f.Int("size", 1024, "bytes of an object's value")
	if err := f.Parse(args); err != nil {
		return err
	}
	var t target
	var err error
	switch {
	case (*cluster == "") == (*etcd == ""), *workers < 1, *writes < 1, *warm < 0, f.NArg() > 0:
		return errors.New("want --cluster or --etcd, and at least one worker and one write")
	case *etcd != "":
		t, err = findEtcd(ctx, strings.Split(*etcd, ","), *size)
	default:
		t, err = findNodes(ctx, *cluster, *size)
	}
	if err != nil {
		return err
	}
	write, err := t.open(ctx)
	if err != nil {
		return err
	}
	if _, err := load(ctx, write, *workers, *warm, 0); err != nil {
		return fmt.Errorf("before: %w", err)
	}
	r := result{Leader: t.leader(), Writes: *writes}
	before, err := t.batches(ctx)
	if err != nil {
		return err
	}
	began := time.Now()
	h, err := load(ctx, write, *workers, *writes, *warm)
	ended := time.Now()
	if err != nil {
		return err
	}
	after, err := t.batches(ctx)
	if err != nil {
		return err
	}
	r.BeganNanos, r.EndedNanos, r.Batches, r.Latency = began.UnixNano(), ended.UnixNano(), after-before, h.Latency()
	r.PerSecond = float64(r.Writes) / ended.Sub(began).Seconds()
	return json.NewEncoder(os.Stdout).Encode(r)
}

// load makes so many writes, from an index on, and measures each.
func load(ctx context.Context, write func(context.Context, int64) error, workers int, writes, from int64) (measure.Histogram, error) {
	var next atomic.Int64
	var mu sync.Mutex
	var failed error
	all := measure.NewHistogram()
	var running sync.WaitGroup
	for range workers {
		running.Go(func() {
			h := measure.NewHistogram()
			var err error
			for err == nil {
				i := next.Add(1) - 1
				if i >= writes {
					break
				}
				began := time.Now()
				err = write(ctx, from+i)
				h.RecordTime(time.Since(began))
			}
			mu.Lock()
			defer mu.Unlock()
			all.Merge(h.Histogram)
			failed = errors.Join(failed, err)
		})
	}
	running.Wait()
	return all, failed
}

// body is a ConfigMap with a value of some length.
func body(name string, size int) []byte {
	return []byte(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"` + name + `","namespace":"default"},"data":{"value":"` +
		strings.Repeat("x", size) + `"}}`)
}

// names makes names that no other run has.
func names() func(i int64) string {
	run := time.Now().UnixNano()
	return func(i int64) string { return fmt.Sprintf("commits-%x-%06d", run, i) }
}

// nodes are servers of the Kubernetes API.
type nodes struct {
	node client.Node
	conn *client.Conn
	size int
}

// findNodes connects to the node that leads, or to the first one if none says that it does.
func findNodes(ctx context.Context, file string, size int) (*nodes, error) {
	c, err := client.ReadCluster(file)
	if err != nil {
		return nil, err
	}
	n := &nodes{size: size}
	for _, node := range c.Servers() {
		role, err := c.Role(ctx, node)
		if err != nil {
			return nil, err
		}
		if n.node.API == "" || role == client.Leader {
			n.node = node
		}
	}
	n.conn, err = n.node.Dial(ctx, c.TLS)
	return n, err
}

func (n *nodes) leader() string { return n.node.Name }

func (n *nodes) open(context.Context) (func(context.Context, int64) error, error) {
	name := names()
	return func(ctx context.Context, i int64) error {
		var answer bytes.Buffer
		_, err := n.conn.Do(ctx, client.Request{
			Method: "POST", Path: "/api/v1/namespaces/default/configmaps", Header: client.JSONBody, Body: body(name(i), n.size),
		}, &answer)
		return err
	}, nil
}

func (n *nodes) batches(ctx context.Context) (int64, error) {
	var answer bytes.Buffer
	if _, err := n.conn.Do(ctx, client.Request{Method: "GET", Path: "/metrics", Header: client.Plain}, &answer); err != nil {
		return 0, err
	}
	return batchesIn(answer.String()), nil
}

// batchesIn finds how many writes of the log a server's metrics count. kube-apiserver has
// no log.
func batchesIn(metrics string) int64 {
	for line := range strings.Lines(metrics) {
		var n float64
		if rest, ok := strings.CutPrefix(line, "etcd_disk_wal_fsync_duration_seconds_count "); ok {
			if _, err := fmt.Sscan(rest, &n); err == nil {
				return int64(n)
			}
		}
	}
	return 0
}
