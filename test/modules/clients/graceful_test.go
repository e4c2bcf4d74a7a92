package clients

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/quorate/quorate/test/harness/cluster"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

const (
	// loaders are clients with a connection each.
	loaders = 8
	// shutdownDelay is longer than the balancer needs to see that a node is not
	// ready.
	shutdownDelay = 4 * checkEvery
)

// TestGracefulStop: every node is ended by SIGTERM under the load of clients behind
// a balancer. No request fails, not even below client-go, where it would try again:
// no connection is reset, and none ends while an answer is due.
func TestGracefulStop(t *testing.T) {
	c := cluster.Start(t, 3, "shutdown-delay-duration="+shutdownDelay.String())
	b := startBalancer(t, c)
	l := startLoad(t, c, b.url())
	for _, n := range c.Nodes() {
		l.await(t, 200)
		c.Stop(t, n)
		l.await(t, 200)
		c.Restart(t, n)
		n.AwaitReady(t)
	}
	l.await(t, 200)
	l.end()
	t.Logf("%d rounds of create, get, list, update and delete by %d clients through 3 stops; %d requests", l.rounds.Load(), loaders, l.requests.Load())
	for _, err := range l.errors {
		t.Error(err)
	}
}

// load is clients that write and read as fast as they can.
type load struct {
	stop             context.CancelFunc
	wg               sync.WaitGroup
	rounds, requests atomic.Int64

	mu     sync.Mutex
	errors []string
}

func startLoad(t *testing.T, c *cluster.Cluster, url string) *load {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	l := &load{stop: cancel}
	t.Cleanup(l.end)
	for i := range loaders {
		config := configFor(c, url)
		config.QPS = -1
		config.UserAgent = fmt.Sprintf("loader-%d", i)
		config.Wrap(func(next http.RoundTripper) http.RoundTripper { return l.observed(ctx, next) })
		client, err := kubernetes.NewForConfig(config)
		if err != nil {
			t.Fatal(err)
		}
		l.wg.Go(func() {
			for n := 0; ctx.Err() == nil; n++ {
				if err := l.round(ctx, client, fmt.Sprintf("g-%d-%d", i, n)); err != nil && ctx.Err() == nil {
					l.note(fmt.Sprintf("client %d: %v", i, err))
				}
				l.rounds.Add(1)
			}
		})
	}
	return l
}

// observed notes what client-go would hide by trying again.
func (l *load) observed(ctx context.Context, next http.RoundTripper) http.RoundTripper {
	return roundTripper(func(r *http.Request) (*http.Response, error) {
		l.requests.Add(1)
		w, err := next.RoundTrip(r)
		switch {
		case ctx.Err() != nil:
		case err != nil:
			l.note(fmt.Sprintf("%s %s: %v", r.Method, r.URL.Path, err))
		case w.StatusCode >= 400:
			l.note(fmt.Sprintf("%s %s: %s", r.Method, r.URL.Path, w.Status))
		}
		return w, err
	})
}

func (l *load) note(text string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.errors) < 20 {
		l.errors = append(l.errors, time.Now().Format("15:04:05.000 ")+text)
	}
}

// round is one life of an object.
func (l *load) round(ctx context.Context, client kubernetes.Interface, name string) error {
	maps := client.CoreV1().ConfigMaps("default")
	m, err := maps.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("create: %w", err)
	}
	if _, err := maps.Get(ctx, name, metav1.GetOptions{}); err != nil {
		return fmt.Errorf("get: %w", err)
	}
	if _, err := maps.List(ctx, metav1.ListOptions{Limit: 5}); err != nil {
		return fmt.Errorf("list: %w", err)
	}
	m.Data = map[string]string{"k": "v"}
	if _, err := maps.Update(ctx, m, metav1.UpdateOptions{}); err != nil {
		return fmt.Errorf("update: %w", err)
	}
	if err := maps.Delete(ctx, name, metav1.DeleteOptions{}); err != nil {
		return fmt.Errorf("delete: %w", err)
	}
	return nil
}

// await waits until n more rounds are done.
func (l *load) await(t *testing.T, n int64) {
	t.Helper()
	want := l.rounds.Load() + n
	deadline := time.Now().Add(time.Minute)
	for l.rounds.Load() < want {
		if time.Now().After(deadline) {
			t.Fatalf("%d rounds, want %d: %v", l.rounds.Load(), want, l.errors)
		}
		<-time.After(10 * time.Millisecond)
	}
}

func (l *load) end() {
	l.stop()
	l.wg.Wait()
}
