package watches

import (
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/quorate/quorate/internal/must"
	"github.com/quorate/quorate/test/harness/cluster"
)

// watcherCount is how many watches one node has to carry: QUORATE_WATCHERS, or a
// number that leaves two processors time for other tests.
func watcherCount(t *testing.T) int {
	t.Helper()
	s := os.Getenv("QUORATE_WATCHERS")
	if s == "" {
		return 2000
	}
	n, err := strconv.Atoi(s)
	if err != nil || n < cluster.WatchesPerConn {
		t.Fatalf("QUORATE_WATCHERS=%q: must be a number, at least %d", s, cluster.WatchesPerConn)
	}
	return n
}

// bytesPerWatch is the budget for one watch, its share of a connection included.
const bytesPerWatch = 20 << 10

// TestManyWatches opens many watches on one node: each of an object of its own, as
// kubelets have, and all of one collection. It measures memory and processor time,
// and then the clients vanish.
func TestManyWatches(t *testing.T) {
	cluster.SkipInShort(t, "it measures times and memory")
	const writes = 100
	n := watcherCount(t)
	node := cluster.Start(t, 1).Nodes()[0]
	cluster.AwaitFurnished(t, node, "default") // a watch of the collection shows what the test writes alone
	client := node.Typed(t).CoreV1().ConfigMaps("default")
	var last string // resourceVersion
	write := func(i int) {
		t.Helper()
		cm, err := client.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("c", i)}}, metav1.CreateOptions{})
		must.OK(t, err)
		last = cm.ResourceVersion
	}
	write(n) // the connection is open, the table is there
	base := node.Usage(t)
	own := node.Metric(t, "quorate_watchers") // of the controllers that the leader runs
	alone := measureWrites(t, node, writes, func(i int) { write(n + 1 + i) })

	for _, row := range []struct {
		name string
		path func(i int) string
		per  int // events per write
	}{
		{"one object each", func(i int) string {
			return fmt.Sprintf("/api/v1/namespaces/default/configmaps?watch=1&resourceVersion=%s&fieldSelector=metadata.name%%3Dc%d", last, i)
		}, 1},
		{"all of one collection", func(int) string {
			return "/api/v1/namespaces/default/configmaps?watch=1&resourceVersion=" + last
		}, n},
	} {
		before := node.Usage(t)
		watches := cluster.WatchMany(t, node, n, row.path)
		after := node.Usage(t)
		each := (after.Live - before.Live) / int64(n)
		t.Logf("%d watches, %s: %d bytes live each, %d resident, %.2f goroutines", n, row.name, each,
			(after.Resident-before.Resident)/int64(n), float64(after.Goroutines-before.Goroutines)/float64(n))
		if each > bytesPerWatch {
			t.Errorf("a watch costs %d bytes, the budget is %d", each, bytesPerWatch)
		}
		first := 0
		if row.per > 1 {
			first = 3 * n
		}
		count := writes
		if row.per > 1 {
			count = 20
		}
		want := int64(count * row.per)
		cost := measureWrites(t, node, count, func(i int) { write(first + i) })
		cluster.Await(t, time.Minute, "all events", func() string {
			if got := watches.Events.Load(); got < want {
				return fmt.Sprintf("%d of %d", got, want)
			}
			return ""
		})
		cost.CPU = node.CPU(t) - cost.began
		t.Logf("%d writes: %s of CPU each (%s without watches), %d events, %s of CPU per event", count, cost.CPU/time.Duration(count),
			alone.CPU/writes, want, max(0, cost.CPU-alone.CPU/writes*time.Duration(count))/time.Duration(want))
		if got := watches.Events.Load(); got != want {
			t.Errorf("%s: %d events, want %d", row.name, got, want)
		}
		if ended := watches.Ended.Load(); ended != 0 {
			t.Errorf("%s: the server has ended %d watches", row.name, ended)
		}
		watches.Close()
		began := time.Now()
		cluster.Await(t, 30*time.Second, "the node has forgotten the watches", func() string {
			if open := node.Metric(t, "quorate_watchers"); open > own+4 {
				return fmt.Sprintf("%.0f are open", open)
			}
			return ""
		})
		cluster.Await(t, 30*time.Second, "goroutines and memory are as before", func() string {
			u := node.Usage(t)
			if u.Goroutines > base.Goroutines+20 || u.Live > base.Live+16<<20 {
				return fmt.Sprintf("%+v, before %+v", u, base)
			}
			return ""
		})
		t.Logf("all forgotten after %s", time.Since(began).Round(time.Millisecond))
	}
}

type cost struct {
	CPU   time.Duration
	began time.Duration
}

func measureWrites(t *testing.T, node *cluster.Node, n int, write func(i int)) cost {
	t.Helper()
	began := node.CPU(t)
	for i := range n {
		write(i)
	}
	return cost{node.CPU(t) - began, began}
}

// TestBadReaders has clients that never read, and that read a byte a second, watch a
// collection of large objects that changes all the time. A watch beside them must
// not notice, and the node must not keep for them what they do not take, nor call it a stall
// of its own.
func TestBadReaders(t *testing.T) {
	cluster.SkipInShort(t, "it measures times and memory")
	const bad, objects, size = 60, 60, 200 << 10
	node := cluster.Start(t, 1).Nodes()[0]
	const ns = "/api/v1/namespaces/default/configmaps"
	client := node.Typed(t).CoreV1().ConfigMaps("default")
	base := node.Usage(t)
	good := func(from, to int) []time.Duration {
		var latencies []time.Duration
		w, err := client.Watch(t.Context(), metav1.ListOptions{LabelSelector: "small=1", ResourceVersion: "0"})
		must.OK(t, err)
		defer w.Stop()
		for i := from; i < to; i++ {
			name := fmt.Sprint("small-", i)
			if _, err := client.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "big-" + name}, Data: map[string]string{"k": strings.Repeat("x", size)}}, metav1.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
			began := time.Now()
			if _, err := client.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"small": "1"}}}, metav1.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
			for seen := false; !seen; {
				select {
				case e, ok := <-w.ResultChan():
					if !ok {
						t.Fatal("the good watch has ended")
					}
					cm, _ := e.Object.(*corev1.ConfigMap)
					seen = cm != nil && cm.Name == name
				case <-time.After(10 * time.Second):
					t.Fatalf("no event for %s within 10s", name)
				}
			}
			latencies = append(latencies, time.Since(began))
		}
		slices.Sort(latencies)
		return latencies
	}
	without := good(0, objects)
	before := node.Usage(t)

	config, err := node.TLS()
	must.OK(t, err)
	config = config.Clone()
	config.NextProtos = []string{"http/1.1"}
	var wg sync.WaitGroup
	defer wg.Wait()
	for i := range bad {
		conn, err := tls.Dial("tcp", strings.TrimPrefix(node.API, "https://"), config)
		must.OK(t, err)
		defer conn.Close()
		// Some get stuck in what there is, some in what comes.
		query := "watch=1"
		if i%4 >= 2 {
			query += "&resourceVersionMatch=NotOlderThan&sendInitialEvents=false"
		}
		if _, err := fmt.Fprintf(conn, "GET %s?%s HTTP/1.1\r\nHost: x\r\n\r\n", ns, query); err != nil {
			t.Fatal(err)
		}
		if i%2 == 0 {
			wg.Go(func() {
				// Ends when the connection is closed.
				for b := make([]byte, 1); ; time.Sleep(time.Second) {
					if _, err := conn.NetConn().Read(b); err != nil {
						return
					}
				}
			})
		}
	}
	cluster.Await(t, 30*time.Second, "the bad watches are open", func() string {
		if open, _ := node.LookupMetric(t, "apiserver_longrunning_requests"); open < bad {
			return fmt.Sprintf("%.0f are open", open)
		}
		return ""
	})
	with := good(objects, 2*objects)
	u := node.Usage(t)
	p := func(l []time.Duration, of int) time.Duration { return l[len(l)*of/100].Round(10 * time.Microsecond) }
	t.Logf("write to event: p50 %s, p90 %s without, p50 %s, p90 %s beside %d bad readers", p(without, 50), p(without, 90), p(with, 50), p(with, 90), bad)
	if p(with, 50) > 5*p(without, 50)+20*time.Millisecond {
		t.Errorf("p50 is %s beside bad readers, %s without", p(with, 50), p(without, 50))
	}
	if n := node.Metric(t, "quorate_watch_delivery_seconds_count"); n < 4*objects { // two stages of two events each
		t.Errorf("the node has measured %.0f deliveries, want %d at least", n, 4*objects)
	}
	if stalls := node.Metric(t, "quorate_watch_delivery_stalls_total"); stalls != 0 {
		t.Errorf("the node says that it has stalled %.0f times: it was the clients", stalls)
	}
	// The same objects again, and what the bad readers hold: a piece of the stream each.
	grown, again := before.Live-base.Live, u.Live-before.Live
	t.Logf("the live memory has grown by %d KiB without, by %d KiB beside bad readers", grown>>10, again>>10)
	if again > grown+bad*(512<<10) {
		t.Errorf("the live memory has grown by %d KiB without, by %d KiB beside bad readers", grown>>10, again>>10)
	}
	if os.Getenv("QUORATE_WATCHERS") == "" {
		return
	}
	began := time.Now()
	cluster.Await(t, 2*time.Minute, "bad readers lose their connections", func() string {
		if open, _ := node.LookupMetric(t, "apiserver_longrunning_requests"); open > 10 {
			return fmt.Sprintf("%.0f are open", open)
		}
		return ""
	})
	t.Logf("all were cut off after %s", time.Since(began).Round(time.Second))
	resp, err := node.HTTP(t).Get(node.API + ns + "?limit=1")
	must.OK(t, err)
	defer resp.Body.Close()
	if _, err := io.Copy(io.Discard, resp.Body); err != nil || resp.StatusCode != http.StatusOK {
		t.Error(resp.Status, err)
	}
}
