package proxy

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/quorate/quorate/internal/must"
	"github.com/quorate/quorate/test/harness/cluster"
)

var listens = regexp.MustCompile(`msg="this proxy listens" address=(\S+)`)

// start runs `quorate proxy` until the test ends, and returns where it listens.
func start(t *testing.T, c *cluster.Cluster, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	cmd := c.Command(ctx, append([]string{"proxy", "--listen", "127.0.0.1:0", "--log-format", "text"}, args...)...)
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = 10 * time.Second
	out, in := io.Pipe()
	cmd.Stdout, cmd.Stderr = in, in
	must.OK(t, cmd.Start())
	at := make(chan string, 1)
	var log strings.Builder
	var read sync.WaitGroup
	read.Go(func() {
		for lines := bufio.NewScanner(out); lines.Scan(); {
			log.WriteString(lines.Text() + "\n")
			if m := listens.FindStringSubmatch(lines.Text()); m != nil {
				at <- m[1]
			}
		}
	})
	t.Cleanup(func() {
		cancel()
		_ = cmd.Wait() // it ends by a signal
		in.Close()
		read.Wait()
		if t.Failed() {
			t.Log(log.String())
		}
	})
	select {
	case a := <-at:
		return a
	case <-time.After(20 * time.Second):
		t.Fatal("the proxy does not listen")
		return ""
	}
}

// answeredBy notes which node has answered last.
type answeredBy struct {
	http.RoundTripper
	node atomic.Value
}

func (a *answeredBy) RoundTrip(r *http.Request) (*http.Response, error) {
	w, err := a.RoundTripper.RoundTrip(r)
	if err == nil {
		a.node.Store(w.Header.Get("X-Quorate-Node"))
	}
	return w, err
}

// TestClients: client-go as it is, informers and writes on one HTTP/2 connection through the proxy, goes on
// within seconds of the death or the pause of the node that it is connected to. The informer
// misses nothing. The proxy knows of one node, and finds the others by its kubeconfig.
func TestClients(t *testing.T) {
	c := cluster.Start(t, 3)
	cluster.AwaitEndpoints(t, c, c.Nodes()[0])
	file := filepath.Join(t.TempDir(), "nodes.json")
	at := start(t, c, "--server", strings.TrimPrefix(c.Nodes()[0].API, "https://"), "--kubeconfig", c.Kubeconfig, "--nodes-file", file)
	cluster.Await(t, 20*time.Second, "the proxy knows all nodes", func() string {
		text, err := os.ReadFile(file)
		if err != nil {
			return err.Error()
		}
		for _, n := range c.Nodes() {
			if !strings.Contains(string(text), strings.TrimPrefix(n.API, "https://")) {
				return string(text)
			}
		}
		return ""
	})

	config := c.Nodes()[0].Config()
	config.Host = "https://" + at
	seen := &answeredBy{}
	config.WrapTransport = func(t http.RoundTripper) http.RoundTripper { seen.RoundTripper = t; return seen }
	client, err := kubernetes.NewForConfig(config)
	must.OK(t, err)
	factory := informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithNamespace("default"))
	informer := factory.Core().V1().ConfigMaps().Informer()
	stop := make(chan struct{})
	factory.Start(stop)
	defer factory.Shutdown()
	defer close(stop)
	if !cache.WaitForCacheSync(stop, informer.HasSynced) {
		t.Fatal("no sync")
	}
	n := 0
	create := func() error {
		// One request may take as long as client-go lets it: nothing but the proxy ends it.
		_, err := client.CoreV1().ConfigMaps("default").Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("c%d", n)}}, metav1.CreateOptions{})
		n++
		return err
	}
	must.OK(t, create())
	for _, how := range []string{"paused", "killed"} {
		must.OK(t, create())
		on := c.Node(t, seen.node.Load().(string))
		began := time.Now()
		if how == "paused" {
			cluster.Freeze(t, on)
		} else {
			c.Kill(t, on)
		}
		var last error
		for tries := 1; ; tries++ {
			if last = create(); last == nil {
				t.Logf("%s was %s: the next write succeeded after %v, the %d. try", on.Name, how, time.Since(began).Round(10*time.Millisecond), tries)
				break
			}
			//wall: how long clients may wait for another node is what is tested
			if time.Since(began) > 15*time.Second {
				t.Fatalf("%s was %s: %v", on.Name, how, last)
			}
			<-time.After(20 * time.Millisecond)
		}
		took := time.Since(began)
		//wall: how long clients may wait for another node is what is tested
		if took > 10*time.Second {
			t.Errorf("%s was %s, and the next write succeeded after %v", on.Name, how, took)
		}
		want := fmt.Sprintf("default/c%d", n-1)
		cluster.Await(t, 15*time.Second, "the informer knows the last object", func() string {
			if _, ok, err := informer.GetStore().GetByKey(want); !ok || err != nil {
				return fmt.Sprint(want, " is missing ", err)
			}
			return ""
		})
		t.Logf("%s was %s: the informer knew of it after %v", on.Name, how, time.Since(began).Round(10*time.Millisecond))
		if how == "paused" {
			cluster.Thaw(t, on)
			on.AwaitReady(t)
		}
	}
	list, err := client.CoreV1().ConfigMaps("default").List(t.Context(), metav1.ListOptions{})
	must.OK(t, err)
	cluster.Await(t, 10*time.Second, "the informer has what there is", func() string {
		if got := len(informer.GetStore().ListKeys()); got != len(list.Items) {
			return fmt.Sprintf("%d objects of %d", got, len(list.Items))
		}
		return ""
	})
}

// TestRestart: a proxy whose seeds are gone finds the nodes by its file.
func TestRestart(t *testing.T) {
	c := cluster.Start(t, 1)
	at := strings.TrimPrefix(c.Nodes()[0].API, "https://")
	file := filepath.Join(t.TempDir(), "nodes.json")
	text, err := json.Marshal(map[string]any{"version": 1, "nodes": []string{at}})
	must.OK(t, err)
	must.OK(t, os.WriteFile(file, text, 0o600))
	config := c.Nodes()[0].Config()
	config.Host = "https://" + start(t, c, "--server", "127.0.0.1:1", "--kubeconfig", c.Kubeconfig, "--nodes-file", file)
	client, err := rest.HTTPClientFor(config)
	must.OK(t, err)
	resp, err := client.Get(config.Host + "/readyz")
	must.OK(t, err)
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		t.Error(resp.Status)
	}
}
