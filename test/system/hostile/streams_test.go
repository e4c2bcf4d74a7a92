package hostile

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
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

	"github.com/quorate/quorate/internal/must"
	"github.com/quorate/quorate/test/harness/cluster"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	clientexec "k8s.io/client-go/tools/remotecommand"
	"k8s.io/cri-streaming/pkg/streaming/remotecommand"
)

// idleKubelet has commands that repeat their input until it ends, and logs that are followed for ever and have a line
// when next is sent to.
type idleKubelet struct{ next chan struct{} }

func (idleKubelet) ExecInContainer(_ context.Context, _, _, _ string, _ []string, in io.Reader, out, _ io.WriteCloser, _ bool, _ <-chan remotecommand.TerminalSize, _ time.Duration) error {
	fmt.Fprintln(out, "begun")
	_, err := io.Copy(out, in)
	return err
}

func (k idleKubelet) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	options, err := remotecommand.NewOptions(r)
	if err == nil { // exec
		remotecommand.ServeExec(w, r, k, "p", "", "c", []string{"wait"}, options, time.Hour, time.Minute, []string{remotecommand.StreamProtocolV4Name})
		return
	}
	fmt.Fprintln(w, "begun")
	_ = http.NewResponseController(w).Flush()
	for {
		select {
		case <-r.Context().Done():
			return
		case <-k.next:
			fmt.Fprintln(w, "next")
			_ = http.NewResponseController(w).Flush()
		}
	}
}

// withPod makes the Pod p on a Node whose kubelet k is.
func withPod(t *testing.T, client kubernetes.Interface, k idleKubelet) {
	t.Helper()
	server := httptest.NewUnstartedServer(k)
	server.TLS = &tls.Config{NextProtos: []string{"http/1.1"}}
	server.StartTLS()
	t.Cleanup(func() { server.CloseClientConnections(); server.Config.Close() })
	at := server.Listener.Addr().(*net.TCPAddr)
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}, Status: corev1.NodeStatus{
		Addresses: []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: at.IP.String()}}, DaemonEndpoints: corev1.NodeDaemonEndpoints{KubeletEndpoint: corev1.DaemonEndpoint{Port: int32(at.Port)}},
	}}
	if _, err := client.CoreV1().Nodes().Create(t.Context(), n, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p"}, Spec: corev1.PodSpec{NodeName: "n", Containers: []corev1.Container{{Name: "c", Image: "i"}}}}
	cluster.Await(t, 30*time.Second, "a Pod is taken", func() string {
		if _, err := client.CoreV1().Pods("default").Create(t.Context(), p, metav1.CreateOptions{}); err != nil {
			return err.Error()
		}
		return ""
	})
}

// execAt runs a command in the Pod p by a node, until ctx ends or in does.
func execAt(ctx context.Context, node *cluster.Node, in io.Reader, out io.Writer) error {
	u, err := url.Parse(node.API + "/api/v1/namespaces/default/pods/p/exec?command=cat&stdin=true&stdout=true")
	if err != nil {
		return err
	}
	x, err := clientexec.NewWebSocketExecutor(node.Config(), "GET", u.String())
	if err != nil {
		return err
	}
	return x.StreamWithContext(ctx, clientexec.StreamOptions{Stdin: in, Stdout: out})
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

// TestStreamsOutliveNodes: what a node carries between clients and Pods goes on when the other nodes die, the leader
// first, and when nobody is left to lead.
func TestStreamsOutliveNodes(t *testing.T) {
	c := cluster.Start(t, 3)
	leader := c.Leader(t)
	carries := c.Others(leader)[0]
	k := idleKubelet{make(chan struct{})}
	withPod(t, carries.Typed(t), k)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute) // one that stands still is an error, too
	defer cancel()
	input, say := io.Pipe()
	said, output := io.Pipe()
	logged, log := io.Pipe()
	var all sync.WaitGroup
	defer all.Wait()
	defer cancel()
	defer said.Close()
	defer logged.Close()
	all.Go(func() {
		err := execAt(ctx, carries, input, output)
		err = fmt.Errorf("the exec has ended: %v", err)
		_, _ = output.CloseWithError(err), input.CloseWithError(err)
	})
	all.Go(func() {
		follow(ctx, t, carries.Typed(t), log)
		_ = log.CloseWithError(errors.New("the log has ended"))
	})
	ofExec, ofLog := bufio.NewReader(said), bufio.NewReader(logged)
	line := func(what string, r *bufio.Reader, want string) {
		t.Helper()
		if got, err := r.ReadString('\n'); got != want || err != nil {
			t.Fatalf("%s: %q, want %q: %v", what, got, want, err)
		}
	}
	goesOn := func(when string) {
		t.Helper()
		if _, err := fmt.Fprintln(say, when); err != nil {
			t.Fatal(err)
		}
		line("exec", ofExec, when+"\n")
		select {
		case k.next <- struct{}{}:
		case <-time.After(10 * time.Second):
			t.Fatalf("%s: the kubelet's side of the log has ended", when)
		}
		line("log", ofLog, "next\n")
	}
	line("exec", ofExec, "begun\n")
	line("log", ofLog, "begun\n")
	goesOn("all nodes live")
	c.Kill(t, leader)
	goesOn("the leader has died")
	c.Leader(t, carries)
	goesOn("there is another leader")
	c.Kill(t, c.Others(leader, carries)...)
	goesOn("there is no quorum")
	must.OK(t, say.Close())
	if _, err := ofExec.ReadString('\n'); err == nil || err.Error() != "the exec has ended: <nil>" {
		t.Errorf("the end of the input: %v", err)
	}
}

// TestManyStreams opens exec (by WebSockets) and log streams on one node, half of each: a hundred of them, or STREAMS,
// for docs/performance.md a thousand. It measures their memory and what others' gets take meanwhile, and has all
// clients die at once.
func TestManyStreams(t *testing.T) {
	count := 100
	if text := os.Getenv("STREAMS"); text != "" {
		var err error
		if count, err = strconv.Atoi(text); err != nil {
			t.Fatal(err)
		}
	}
	c := cluster.Start(t, 1)
	node := c.Nodes()[0]
	client := node.Typed(t)
	ctx := t.Context()
	withPod(t, client, idleKubelet{})
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
			r, w := io.Pipe()
			defer w.Close()
			if err := execAt(life, node, r, first); life.Err() == nil {
				t.Errorf("a stream has ended: %v", err)
			}
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
	//wall: how soon the streams of dead clients end is what is tested
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
