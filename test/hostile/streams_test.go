package hostile

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/quorate/quorate/test/cluster"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	clientexec "k8s.io/client-go/tools/remotecommand"
	"k8s.io/cri-streaming/pkg/streaming/remotecommand"
)

// idleKubelet has commands that wait for their input to end, and logs that are followed for ever.
type idleKubelet struct{}

func (idleKubelet) ExecInContainer(_ context.Context, _, _, _ string, _ []string, in io.Reader, out, _ io.WriteCloser, _ bool, _ <-chan remotecommand.TerminalSize, _ time.Duration) error {
	fmt.Fprintln(out, "begun")
	_, _ = io.Copy(io.Discard, in)
	return nil
}

func (k idleKubelet) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	options, err := remotecommand.NewOptions(r)
	if err == nil { // exec
		remotecommand.ServeExec(w, r, k, "p", "", "c", []string{"wait"}, options, time.Hour, time.Minute, []string{remotecommand.StreamProtocolV4Name})
		return
	}
	fmt.Fprintln(w, "begun")
	_ = http.NewResponseController(w).Flush()
	<-r.Context().Done()
}

// begun is told when the first output comes.
type begun struct {
	once sync.Once
	of   func()
}

func (b *begun) Write(p []byte) (int, error) {
	b.once.Do(b.of)
	return len(p), nil
}

// TestManyStreams opens exec (by WebSockets) and log streams on one node, half of each: STREAMS of them, for docs/performance.md
// a thousand. It measures their memory and what others' gets take meanwhile, and has all clients die at once.
func TestManyStreams(t *testing.T) {
	count, _ := strconv.Atoi(os.Getenv("STREAMS"))
	if count == 0 {
		t.Skip("STREAMS says how many streams; unset")
	}
	k := httptest.NewUnstartedServer(idleKubelet{})
	k.TLS = &tls.Config{NextProtos: []string{"http/1.1"}}
	k.StartTLS()
	t.Cleanup(func() { k.CloseClientConnections(); k.Config.Close() })
	at := k.Listener.Addr().(*net.TCPAddr)
	c := cluster.Start(t, 1)
	node := c.Nodes()[0]
	client := node.Typed(t)
	ctx := t.Context()
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}, Status: corev1.NodeStatus{
		Addresses: []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: at.IP.String()}}, DaemonEndpoints: corev1.NodeDaemonEndpoints{KubeletEndpoint: corev1.DaemonEndpoint{Port: int32(at.Port)}},
	}}
	if _, err := client.CoreV1().Nodes().Create(ctx, n, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p"}, Spec: corev1.PodSpec{NodeName: "n", Containers: []corev1.Container{{Name: "c", Image: "i"}}}}
	cluster.Await(t, 30*time.Second, "a Pod is taken", func() string {
		if _, err := client.CoreV1().Pods("default").Create(ctx, p, metav1.CreateOptions{}); err != nil {
			return err.Error()
		}
		return ""
	})
	gets := func() (p50, p99 time.Duration) {
		var took []time.Duration
		for range 2000 {
			began := time.Now()
			if _, err := client.CoreV1().Pods("default").Get(ctx, "p", metav1.GetOptions{}); err != nil {
				t.Fatal(err)
			}
			took = append(took, time.Since(began))
		}
		slices.Sort(took)
		return took[len(took)/2], took[len(took)*99/100]
	}
	before50, before99 := gets()
	before := node.Usage(t)
	others, _ := node.LookupMetric(t, "apiserver_longrunning_requests")
	u, _ := url.Parse(node.API + "/api/v1/namespaces/default/pods/p/exec?command=wait&stdin=true&stdout=true")
	life, die := context.WithCancel(ctx)
	defer die()
	var open, all sync.WaitGroup
	gate := make(chan struct{}, 20) // streams that begin at a time: all share two processors with client and kubelet
	for i := range count {
		gate <- struct{}{}
		open.Add(1)
		first := &begun{of: func() { <-gate; open.Done() }}
		all.Go(func() {
			defer first.once.Do(first.of) // one that fails is not waited for
			if i%2 == 0 {
				follow(life, t, client, first)
				return
			}
			x, err := clientexec.NewWebSocketExecutor(node.Config(), "GET", u.String())
			if err != nil {
				t.Error(err)
				return
			}
			r, w := io.Pipe()
			defer w.Close()
			_ = x.StreamWithContext(life, clientexec.StreamOptions{Stdin: r, Stdout: first}) // it ends with life
		})
	}
	open.Wait()
	during50, during99 := gets()
	during := node.Usage(t)
	die()
	began := time.Now()
	cluster.Await(t, 10*time.Second, "all streams end", func() string {
		if open, _ := node.LookupMetric(t, "apiserver_longrunning_requests"); open > others {
			return fmt.Sprintf("%v are open", open)
		}
		return ""
	})
	ended := time.Since(began)
	all.Wait()
	if ended > time.Second {
		t.Errorf("streams of clients that have died stayed for %v", ended)
	}
	// Upstream's library for SPDY waits for a second after the end of a connection.
	cluster.Await(t, 10*time.Second, "their memory is free", func() string {
		if after := node.Usage(t); after.Goroutines-before.Goroutines > count/10 || after.Live-before.Live > 16<<20 {
			return fmt.Sprintf("%d goroutines and %d bytes are left", after.Goroutines-before.Goroutines, after.Live-before.Live)
		}
		return ""
	})
	t.Logf("%d streams: %d bytes live, %d resident and %.1f goroutines each; gets p50 %v, p99 %v, before %v, %v; all ended after %v, nothing is left after %v",
		count, (during.Live-before.Live)/int64(count), (during.Resident-before.Resident)/int64(count), float64(during.Goroutines-before.Goroutines)/float64(count),
		during50, during99, before50, before99, ended, time.Since(began))
}

// follow reads a log until ctx ends.
func follow(ctx context.Context, t *testing.T, client kubernetes.Interface, to io.Writer) {
	log, err := client.CoreV1().Pods("default").GetLogs("p", &corev1.PodLogOptions{Follow: true}).Stream(ctx)
	if err != nil {
		t.Error(err)
		return
	}
	defer log.Close()
	_, _ = io.Copy(to, log) // it ends with ctx
}
