package reads

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/quorate/quorate/internal/must"
	"github.com/quorate/quorate/test/harness/cluster"
)

const (
	// listStreams are read at once, slowStreams of them slowly.
	listStreams, slowStreams = 64, 6
	listObjects              = 10_000
	// listGrowth is what the lists of one form may cost the node in resident memory,
	// allGrowth what all forms may, one after the other: what is kept beside versions
	// for each form comes together then.
	listGrowth = 64 << 20
	allGrowth  = 96 << 20
)

// listForms are what lists are asked for in.
var listForms = []struct{ name, accept, encoding string }{
	{"JSON", "application/json", ""},
	{"JSON, gzip", "application/json", "gzip"},
	{"protobuf", "application/vnd.kubernetes.protobuf", ""},
	{"protobuf, gzip", "application/vnd.kubernetes.protobuf", "gzip"},
	{"Table", "application/json;as=Table;v=v1;g=meta.k8s.io", ""},
	{"Table, gzip", "application/json;as=Table;v=v1;g=meta.k8s.io", "gzip"},
}

// TestListMemory reads lists of 10,000 objects in 64 streams at once, some of which
// hardly read, in each form, and looks at the resident memory of the node meanwhile.
// LIST_COUNT=2000 is the number of lists per form that the promise is about.
func TestListMemory(t *testing.T) {
	s := os.Getenv("LIST_COUNT")
	if s == "" {
		t.Skip("by hand, for minutes: LIST_COUNT=2000")
	}
	count, err := strconv.Atoi(s)
	must.OK(t, err)
	node := cluster.Start(t, 1).Nodes()[0]
	cluster.CreateMany(t, node, listObjects)
	clients := make([]*http.Client, 8)
	for i := range clients {
		clients[i] = node.NewHTTP(t, "h2")
	}
	first := collected(t, node)
	var most int64
	for _, f := range listForms {
		before := collected(t, node)
		watch := cluster.WatchResident(t, node)
		began, cpu := time.Now(), node.CPU(t)
		bytes := lists(t, node, clients, count, f.accept, f.encoding)
		took, cpu := time.Since(began), node.CPU(t)-cpu
		watch.Stop()
		peak := watch.Peak.Load()
		most = max(most, peak)
		t.Logf("%-14s %d lists of %.1f MB in %s, %s of CPU each; resident %d MiB before, %+d MiB at the most", f.name, count, float64(bytes)/1e6/float64(count),
			took.Round(time.Millisecond), (cpu / time.Duration(count)).Round(10*time.Microsecond), before>>20, (peak-before)>>20)
		if peak-before > listGrowth {
			t.Errorf("%s: %d lists of %d objects in %d streams: the node grew by %d MiB, want at most %d", f.name, count, listObjects, listStreams, (peak-before)>>20, listGrowth>>20)
		}
	}
	t.Logf("all forms: resident %d MiB before, %+d MiB at the most", first>>20, (most-first)>>20)
	if most-first > allGrowth {
		t.Errorf("the node grew by %d MiB in all, want at most %d", (most-first)>>20, allGrowth>>20)
	}
}

// collected is the resident memory of a node that has just collected its garbage.
func collected(t *testing.T, node *cluster.Node) int64 {
	t.Helper()
	for range 2 {
		node.Usage(t)
	}
	return node.Usage(t).Resident
}

// lists reads that many lists in all streams and returns the sum of their bytes.
func lists(t *testing.T, n *cluster.Node, clients []*http.Client, count int, accept, encoding string) int64 {
	t.Helper()
	var next, bytes atomic.Int64
	var wg sync.WaitGroup
	slow := n.NewHTTP(t, "http/1.1")
	for i := range listStreams {
		wg.Go(func() {
			client, pause := clients[i%len(clients)], time.Duration(0)
			if i < slowStreams {
				client, pause = slow, time.Millisecond
			}
			for next.Add(1) <= int64(count) {
				began := time.Now()
				got, err := listOnce(t.Context(), n, client, accept, encoding, pause)
				bytes.Add(got)
				//wall: tells the bound of the server from other errors
				if took := time.Since(began); err != nil && took > 55*time.Second {
					// On a machine that others keep busy the server's own bound comes first.
					t.Logf("a list was cut after %s: %v", took.Round(time.Second), err)
				} else if err != nil {
					t.Errorf("list: %v", err)
					return
				}
			}
		})
	}
	wg.Wait()
	return bytes.Load()
}

func listOnce(ctx context.Context, n *cluster.Node, client *http.Client, accept, encoding string, pause time.Duration) (int64, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, n.API+"/api/v1/namespaces/default/configmaps?resourceVersion=0", nil)
	if err != nil {
		return 0, err
	}
	r.Header.Set("Accept", accept)
	if encoding != "" {
		r.Header.Set("Accept-Encoding", encoding)
	}
	w, err := client.Do(r)
	if err != nil {
		return 0, err
	}
	defer w.Body.Close()
	if w.StatusCode != http.StatusOK || w.Header.Get("Content-Encoding") != encoding {
		return 0, fmt.Errorf("%s, encoding %q", w.Status, w.Header.Get("Content-Encoding"))
	}
	return io.Copy(io.Discard, &slowReader{w.Body, pause})
}

// slowReader pauses after each piece of 64 KiB.
type slowReader struct {
	io.Reader
	pause time.Duration
}

func (s *slowReader) Read(b []byte) (int, error) {
	if s.pause > 0 {
		//sleep: the client reads slowly, by design
		time.Sleep(s.pause)
	}
	return s.Reader.Read(b[:min(len(b), 64<<10)])
}
