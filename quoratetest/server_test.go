package quoratetest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/quorate/quorate/node"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// configMaps is a client of ConfigMaps in the namespace default.
func configMaps(t testing.TB, c *rest.Config) corev1client.ConfigMapInterface {
	t.Helper()
	client, err := corev1client.NewForConfig(c)
	if err != nil {
		t.Fatal(err)
	}
	return client.ConfigMaps("default")
}

func create(ctx context.Context, maps corev1client.ConfigMapInterface, name string) error {
	_, err := maps.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
	return err
}

// TestThreeNodes: what one node has acknowledged, the others have.
func TestThreeNodes(t *testing.T) {
	t.Parallel()
	configs := Start(t, Nodes(3)).Configs()
	if len(configs) != 3 {
		t.Fatalf("%d nodes", len(configs))
	}
	for i, c := range configs {
		if err := create(t.Context(), configMaps(t, c), fmt.Sprintf("by-%d", i)); err != nil {
			t.Fatal(err)
		}
		for j, other := range configs {
			if _, err := configMaps(t, other).Get(t.Context(), fmt.Sprintf("by-%d", i), metav1.GetOptions{}); err != nil {
				t.Errorf("written through node %d, read from node %d: %v", i, j, err)
			}
		}
	}
}

// TestServersAreApart: tests in parallel have servers of their own, also of one name.
func TestServersAreApart(t *testing.T) {
	t.Parallel()
	for i := range 4 {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			t.Parallel()
			maps := configMaps(t, Start(t).Config())
			if err := create(t.Context(), maps, "mine"); err != nil {
				t.Error(err) // it exists
			}
		})
	}
}

// TestOtherUsers have the rights of their roles: none.
func TestOtherUsers(t *testing.T) {
	t.Parallel()
	s := Start(t)
	c := s.Config()
	c.Impersonate.UserName = "alice"
	if err := create(t.Context(), configMaps(t, c), "hers"); !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), `"alice"`) {
		t.Errorf("alice: %v", err)
	}
	if err := create(t.Context(), configMaps(t, s.Config()), "ours"); err != nil { // what she was given is a copy
		t.Error(err)
	}
}

// TestKubeconfig: it leads where Config does.
func TestKubeconfig(t *testing.T) {
	t.Parallel()
	s := Start(t, Nodes(2))
	c, err := clientcmd.RESTConfigFromKubeConfig(s.Kubeconfig())
	if err != nil {
		t.Fatal(err)
	}
	if c.Host != s.Config().Host {
		t.Errorf("%s, want %s", c.Host, s.Config().Host)
	}
	if err := create(t.Context(), configMaps(t, c), "by-file"); err != nil {
		t.Error(err)
	}
}

// TestDirGoesOn: a directory of the caller's is gone on with, and stays.
func TestDirGoesOn(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for i := range 2 {
		s, err := Open(t.Context(), Dir(dir))
		if err != nil {
			t.Fatal(err)
		}
		err = create(t.Context(), configMaps(t, s.Config()), "kept")
		if i == 0 && err != nil || i == 1 && !apierrors.IsAlreadyExists(err) {
			t.Errorf("start %d: %v", i, err)
		}
		if err := s.Stop(); err != nil {
			t.Error(err)
		}
	}
	if _, err := os.Stat(filepath.Join(dir, "n1", "state.db")); err != nil {
		t.Error(err)
	}
}

// TestRefusedStarts: an error says what is wrong with which node, and nothing is left.
func TestRefusedStarts(t *testing.T) {
	t.Parallel()
	taken := Start(t)
	for _, x := range []struct {
		name string
		opts []Option
		want string
	}{
		{"no nodes", []Option{Nodes(0)}, "0 nodes: must be 1 to 9"},
		{"many nodes", []Option{Nodes(10)}, "10 nodes: must be 1 to 9"},
		{"a setting", []Option{Nodes(3), Configure(func(c *node.Config) { c.FeatureGates = []string{"Nonsense=true"} })}, "node n1: "},
		{"a directory that another server has", []Option{Dir(taken.dir)}, "node n1: data directory " + filepath.Join(taken.dir, "n1") + " is in use by another process"},
		{"no time", []Option{Within(time.Millisecond)}, "node n1 is not ready: "},
		{"never ready", []Option{Within(2 * time.Second), Configure(func(c *node.Config) { c.BootstrapExpect, c.Join = 2, []string{"127.0.0.1:1"} })},
			"node n1 is not ready: membership: not part of a cluster yet"},
	} {
		t.Run(x.name, func(t *testing.T) {
			t.Parallel()
			var settings []node.Config
			s, err := Open(t.Context(), append(x.opts, Configure(func(c *node.Config) { settings = append(settings, *c) }))...)
			if err == nil {
				_ = s.Stop()
				t.Fatal("it started")
			}
			if !strings.Contains(err.Error(), x.want) {
				t.Errorf("got %v, want %q in it", err, x.want)
			}
			for _, c := range settings {
				if _, err := c.APIListener.Accept(); err == nil || !strings.Contains(err.Error(), "use of closed") {
					t.Errorf("%s: its port is open: %v", c.Name, err)
				}
				if _, err := os.Stat(c.DataDir); err == nil && !strings.HasPrefix(c.DataDir, taken.dir) {
					t.Errorf("%s is left", c.DataDir)
				}
			}
		})
	}
}

// TestStopGivesEverythingBack: goroutines and descriptors, also those of watches and of requests whose
// clients stay. It is not parallel: it counts those of the process.
func TestStopGivesEverythingBack(t *testing.T) {
	use := func(nodes int) *http.Client {
		s, err := Open(t.Context(), Nodes(nodes))
		if err != nil {
			t.Fatal(err)
		}
		defer func() {
			if err := errors.Join(s.Stop(), s.Stop()); err != nil {
				t.Error(err)
			}
		}()
		client, err := rest.HTTPClientFor(s.Configs()[nodes-1])
		if err != nil {
			t.Fatal(err)
		}
		for _, path := range []string{"/api/v1/configmaps", "/openapi/v3", "/metrics", "/api/v1/configmaps?watch=true"} {
			resp, err := client.Get(s.Configs()[nodes-1].Host + path)
			if err != nil {
				t.Fatal(err)
			}
			if resp.StatusCode != http.StatusOK {
				t.Errorf("%s: %s", path, resp.Status)
			}
			if strings.Contains(path, "watch") {
				continue // its body is never closed
			}
			_, _ = io.Copy(io.Discard, resp.Body)
			resp.Body.Close()
		}
		return client
	}
	use(1).CloseIdleConnections() // what is made once in a process
	goroutines, files := runtime.NumGoroutine(), openFiles(t)
	for _, nodes := range []int{1, 3} {
		client := use(nodes)
		deadline := time.Now().Add(20 * time.Second)
		for runtime.NumGoroutine() > goroutines || len(openFiles(t)) > len(files) {
			client.CloseIdleConnections()
			if time.Now().After(deadline) {
				stacks := make([]byte, 1<<20)
				t.Fatalf("%d nodes: %d goroutines, there were %d; files %q, there were %q\n%s", nodes, runtime.NumGoroutine(), goroutines,
					openFiles(t), files, stacks[:runtime.Stack(stacks, true)])
			}
			time.Sleep(10 * time.Millisecond)
		}
	}
}

// openFiles are what the descriptors of this process lead to.
func openFiles(t *testing.T) (out []string) {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if to, err := os.Readlink(filepath.Join("/proc/self/fd", e.Name())); err == nil { // not that of the directory itself
			out = append(out, to)
		}
	}
	slices.Sort(out)
	return out
}

// BenchmarkStart measures the time until a server is ready, and until its first write is answered, and
// how long it takes to stop.
func BenchmarkStart(b *testing.B) {
	for _, nodes := range []int{1, 3} {
		b.Run(fmt.Sprintf("nodes=%d", nodes), func(b *testing.B) {
			var ready, wrote, stopped []float64
			ms := func(since time.Time) float64 { return float64(time.Since(since)) / 1e6 }
			for b.Loop() {
				began := time.Now()
				s, err := Open(b.Context(), Nodes(nodes))
				if err != nil {
					b.Fatal(err)
				}
				ready = append(ready, ms(began))
				if err := create(b.Context(), configMaps(b, s.Config()), "first"); err != nil {
					b.Fatal(err)
				}
				wrote = append(wrote, ms(began))
				began = time.Now()
				if err := s.Stop(); err != nil {
					b.Fatal(err)
				}
				stopped = append(stopped, ms(began))
			}
			for name, times := range map[string][]float64{"ready": ready, "write": wrote, "stop": stopped} {
				slices.Sort(times)
				b.ReportMetric(times[len(times)/2], "median-ms-"+name)
				b.ReportMetric(times[len(times)-1], "worst-ms-"+name)
			}
		})
	}
}
