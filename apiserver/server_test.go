package apiserver_test

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/quorate/quorate/apiserver"
	"github.com/quorate/quorate/apiserver/controllers"
	"github.com/quorate/quorate/apiserver/objects"
	"github.com/quorate/quorate/consistency"
	"github.com/quorate/quorate/proto"
	"github.com/quorate/quorate/raftstore/mvcc"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

const maps = "/api/v1/namespaces/default/configmaps"

// TestConcurrentPatches: every patch takes effect exactly once, whatever races it
// loses on the way, and a watch sees each.
func TestConcurrentPatches(t *testing.T) {
	e := newEnv(t, nil)
	w, answer := e.do(http.MethodPost, maps, nil, `{"metadata":{"name":"a"},"data":{}}`)
	if w.StatusCode != http.StatusCreated {
		t.Fatal(answer)
	}
	rv := field(t, answer, "metadata", "resourceVersion").(string)
	s := e.watch(maps + "?watch=1&resourceVersion=" + rv)
	const writers, each = 8, 20
	var wg sync.WaitGroup
	for i := range writers {
		wg.Go(func() {
			for j := range each {
				w, answer := e.do(http.MethodPatch, maps+"/a", http.Header{"Content-Type": {string(types.MergePatchType)}},
					fmt.Sprintf(`{"data":{"w%d-%d":"x"}}`, i, j))
				if w.StatusCode != http.StatusOK {
					t.Errorf("patch: %d %s", w.StatusCode, answer)
				}
			}
		})
	}
	wg.Wait()
	_, answer = e.do(http.MethodGet, maps+"/a", nil, "")
	if n := len(field(t, answer, "data").(map[string]any)); n != writers*each {
		t.Errorf("%d of %d patches took effect", n, writers*each)
	}
	last := uint64(0)
	for i := range writers * each {
		event := e.next(s)
		rv, err := strconv.ParseUint(field(t, event, "object", "metadata", "resourceVersion").(string), 10, 64)
		if err != nil || rv <= last || !strings.HasPrefix(event, `{"type":"MODIFIED"`) {
			t.Fatalf("event %d after %d: %s", i, last, event)
		}
		last = rv
	}
}

// TestConcurrentCreates: one of many creates of the same name wins.
func TestConcurrentCreates(t *testing.T) {
	e := newEnv(t, nil)
	codes := make(chan int, 16)
	var wg sync.WaitGroup
	for range cap(codes) {
		wg.Go(func() {
			w, _ := e.do(http.MethodPost, maps, nil, `{"metadata":{"name":"one"}}`)
			codes <- w.StatusCode
		})
	}
	wg.Wait()
	close(codes)
	count := map[int]int{}
	for c := range codes {
		count[c]++
	}
	if count[201] != 1 || count[409] != cap(codes)-1 {
		t.Errorf("answers: %v", count)
	}
}

// lagging is a store whose readers see the state as it was when it was frozen,
// until somebody asks for a linearizable read: a follower behind its leader.
type lagging struct {
	apiserver.Store
	mu     sync.Mutex
	frozen *mvcc.State
}

func (l *lagging) State() *mvcc.State {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.frozen != nil {
		return l.frozen
	}
	return l.Store.State()
}

func (l *lagging) freeze(s *mvcc.State) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.frozen = s
}

func (l *lagging) Propose(ctx context.Context, w *proto.Write) (mvcc.Result, error) {
	r, err := l.Store.Propose(ctx, w)
	l.freeze(nil) // the result came back: this node has applied it
	return r, err
}

type laggingReads struct {
	objects.Reads
	store *lagging
}

func (l laggingReads) Await(ctx context.Context, p consistency.Plan) (proto.Revision, error) {
	if p.Mode == consistency.MostRecent {
		l.store.freeze(nil)
	}
	return l.Reads.Await(ctx, p)
}

// TestStaleFollower: what a lagging node answers is as if it did not lag.
func TestStaleFollower(t *testing.T) {
	var store *lagging
	e := newEnv(t, func(c *apiserver.Config) {
		store = &lagging{Store: c.Store}
		c.Store, c.Reads = store, laggingReads{c.Reads, store}
	})
	merge := http.Header{"Content-Type": {string(types.MergePatchType)}}
	do := func(want int, method, path, body string) string {
		t.Helper()
		w, answer := e.do(method, path, merge, body)
		if w.StatusCode != want {
			t.Fatalf("%s %s %s: %d, want %d: %s", method, path, body, w.StatusCode, want, answer)
		}
		return answer
	}
	// old remembers the state before the last write, as a follower would have it.
	old := func(write func()) {
		before := copyState(t, store.Store.State())
		write()
		store.freeze(before)
	}
	create := func(name, data string) string {
		w, answer := e.do(http.MethodPost, maps, nil, `{"metadata":{"name":"`+name+`"},"data":{"k":"`+data+`"}}`)
		if w.StatusCode != http.StatusCreated {
			t.Fatal(answer)
		}
		return field(t, answer, "metadata", "resourceVersion").(string)
	}

	// Objects that this node has not heard of exist.
	old(func() { create("a", "1") })
	do(200, http.MethodPatch, maps+"/a", `{"data":{"k":"2"}}`)
	old(func() { create("b", "1") })
	do(200, http.MethodDelete, maps+"/b", "")
	old(func() { create("u", "1") })
	w, answer := e.do(http.MethodPut, maps+"/u", nil, `{"metadata":{"name":"u"},"data":{"k":"2"}}`)
	if w.StatusCode != 200 {
		t.Fatal(answer)
	}

	// A patch that changes nothing here changes something there.
	old(func() { do(200, http.MethodPatch, maps+"/a", `{"data":{"k":"3"}}`) })
	do(200, http.MethodPatch, maps+"/a", `{"data":{"k":"2"}}`)
	if got := field(t, do(200, http.MethodGet, maps+"/a", ""), "data", "k"); got != "2" {
		t.Errorf("the patch was lost: %v", got)
	}

	// A version that is newer than this node is no conflict.
	var rv string
	old(func() {
		rv = field(t, do(200, http.MethodPatch, maps+"/a", `{"data":{"k":"4"}}`), "metadata", "resourceVersion").(string)
	})
	w, answer = e.do(http.MethodPut, maps+"/a", nil, `{"metadata":{"name":"a","resourceVersion":"`+rv+`"},"data":{"k":"5"}}`)
	if w.StatusCode != 200 {
		t.Errorf("update at the newest version: %d %s", w.StatusCode, answer)
	}

	// An object that is gone there can be created here; a namespace that came is there.
	old(func() { do(200, http.MethodDelete, maps+"/a", "") })
	create("a", "again")
	old(func() {
		if w, answer := e.do(http.MethodPost, "/api/v1/namespaces", nil, `{"metadata":{"name":"fresh"}}`); w.StatusCode != 201 {
			t.Fatal(answer)
		}
	})
	if w, answer := e.do(http.MethodPost, "/api/v1/namespaces/fresh/configmaps", nil, `{"metadata":{"name":"x"}}`); w.StatusCode != 201 {
		t.Error(answer)
	}
}

// copyState returns a state of its own with the same live objects.
func copyState(t *testing.T, s *mvcc.State) *mvcc.State {
	t.Helper()
	c := mvcc.New()
	type entry struct {
		table string
		v     *mvcc.Version
	}
	var all []entry
	for name, table := range s.Tables() {
		page, err := table.Range(mvcc.Query{At: s.Applied()})
		if err != nil {
			t.Fatal(err)
		}
		for _, v := range page.Versions {
			all = append(all, entry{name, v})
		}
	}
	for at := proto.Revision(1); at <= s.Applied(); at++ {
		written := false
		for _, e := range all {
			if e.v.Revision != at {
				continue
			}
			value := append([]byte(nil), e.v.Value()[:e.v.RevisionOffset]...)
			value = append(value, e.v.Value()[int(e.v.RevisionOffset)+len(at.String()):]...)
			b, err := proto.Encode(proto.KindWrite, &proto.Write{
				Table: e.table, Key: e.v.Key, Op: proto.Op_OP_PUT, Value: value,
				RevisionOffset: e.v.RevisionOffset, Uid: e.v.UID, Flags: e.v.Flags,
			})
			if err != nil {
				t.Fatal(err)
			}
			if _, err := c.Apply(proto.RaftIndex(at), 1, b); err != nil {
				t.Fatal(err)
			}
			written = true
		}
		if !written {
			c.Advance(proto.RaftIndex(at), 1)
		}
	}
	c.Publish()
	return c
}

// TestClients: a typed client (protobuf both ways) and a dynamic one.
func TestClients(t *testing.T) {
	e := newEnv(t, nil)
	config := &rest.Config{Host: e.http.URL, TLSClientConfig: rest.TLSClientConfig{Insecure: true}}
	typedConfig := rest.CopyConfig(config)
	typedConfig.ContentType = runtime.ContentTypeProtobuf
	typedConfig.AcceptContentTypes = runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON
	typed, err := kubernetes.NewForConfig(typedConfig)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	api := typed.CoreV1().ConfigMaps("default")
	made, err := api.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "a"}, Data: map[string]string{"k": "1"}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	watch, err := api.Watch(ctx, metav1.ListOptions{ResourceVersion: made.ResourceVersion})
	if err != nil {
		t.Fatal(err)
	}
	defer watch.Stop()
	made.Data["k"] = "2"
	changed, err := api.Update(ctx, made, metav1.UpdateOptions{})
	if err != nil || changed.Data["k"] != "2" {
		t.Fatal(changed, err)
	}
	if _, err := api.Update(ctx, made, metav1.UpdateOptions{}); !apierrors.IsConflict(err) {
		t.Errorf("an old version: %v", err)
	}
	if event := <-watch.ResultChan(); event.Object.(*corev1.ConfigMap).ResourceVersion != changed.ResourceVersion {
		t.Errorf("event %v", event)
	}
	list, err := api.List(ctx, metav1.ListOptions{})
	if err != nil || len(list.Items) != 1 || list.Items[0].UID != made.UID {
		t.Error(list, err)
	}
	dyn, err := dynamic.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	maps := dyn.Resource(schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}).Namespace("default")
	u, err := maps.Patch(ctx, "a", types.JSONPatchType, []byte(`[{"op":"add","path":"/data/l","value":"3"}]`), metav1.PatchOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if v, _, _ := unstructured.NestedString(u.Object, "data", "l"); v != "3" {
		t.Error(u)
	}
	uid := made.UID
	if err := api.Delete(ctx, "a", metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid}}); err != nil {
		t.Error(err)
	}
	if _, err := api.Get(ctx, "a", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Error(err)
	}
}

// TestNamespaceEnds: a deleting namespace is emptied and goes, once the
// finalizers of its content are gone.
func TestNamespaceEnds(t *testing.T) {
	e := newEnv(t, nil)
	e.run(controllers.Config{Controllers: []controllers.Name{controllers.NamespaceController}, Log: testLog(t)})
	must := func(want int, method, path, body string) string {
		t.Helper()
		w, answer := e.do(method, path, http.Header{"Content-Type": {string(types.MergePatchType)}}, body)
		if method == http.MethodPost {
			w, answer = e.do(method, path, nil, body)
		}
		if w.StatusCode != want {
			t.Fatalf("%s %s: %d %s", method, path, w.StatusCode, answer)
		}
		return answer
	}
	must(201, http.MethodPost, "/api/v1/namespaces", `{"metadata":{"name":"n"}}`)
	s := e.watch("/api/v1/namespaces?watch=1&fieldSelector=metadata.name%3Dn")
	if event := e.next(s); !strings.Contains(event, `"ADDED"`) {
		t.Fatal(event)
	}
	content := "/api/v1/namespaces/n/configmaps"
	if w, answer := e.do(http.MethodPost, content, nil, `{"metadata":{"name":"plain"}}`); w.StatusCode != 201 {
		t.Fatal(answer)
	}
	if w, answer := e.do(http.MethodPost, content, nil, `{"metadata":{"name":"held","finalizers":["example.com/f"]}}`); w.StatusCode != 201 {
		t.Fatal(answer)
	}
	held := e.watch(content + "?watch=1&fieldSelector=metadata.name%3Dheld")
	e.next(held)
	must(200, http.MethodDelete, "/api/v1/namespaces/n", "")
	if event := e.next(held); !strings.Contains(event, "deletionTimestamp") {
		t.Fatal(event)
	}
	must(200, http.MethodPatch, content+"/held", `{"metadata":{"finalizers":null}}`)
	for {
		event := e.next(s)
		if strings.Contains(event, `"DELETED"`) {
			break
		}
		if event == "" {
			t.Fatal("the watch ended before the namespace")
		}
	}
	must(404, http.MethodGet, content+"/plain", "")
}

// TestInFlight: too many requests are refused, deletes and leases later than
// others.
func TestInFlight(t *testing.T) {
	e := newEnv(t, func(c *apiserver.Config) {
		c.Limits.Writes, c.Limits.WriteBytes = 1, 100
	})
	big := `{"metadata":{"name":"big"},"data":{"k":"` + strings.Repeat("x", 200) + `"}}`
	w, answer := e.do(http.MethodPost, maps, nil, big)
	if w.StatusCode != http.StatusTooManyRequests || w.Header.Get("Retry-After") == "" {
		t.Errorf("%d %s", w.StatusCode, answer)
	}
	if w, answer := e.do(http.MethodPost, maps, nil, `{"metadata":{"name":"small"}}`); w.StatusCode != 201 {
		t.Error(answer)
	}
	lease := `{"metadata":{"name":"l"},"spec":{"holderIdentity":"` + strings.Repeat("x", 60) + `"}}`
	if w, answer := e.do(http.MethodPost, "/apis/coordination.k8s.io/v1/namespaces/default/leases", nil, lease); w.StatusCode != 201 {
		t.Error(answer)
	}
}

// TestShutdown: watches end with a bookmark, new requests are refused.
func TestShutdown(t *testing.T) {
	e := newEnv(t, func(c *apiserver.Config) { c.Limits.Bookmark = time.Hour })
	s := e.watch(maps + "?watch=1&allowWatchBookmarks=true")
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if first := e.next(s); !strings.Contains(first, "initial-events-end") {
		t.Fatal(first)
	}
	if err := e.api.Shutdown(ctx); err != nil {
		t.Fatal(err)
	}
	if last := e.next(s); !strings.HasPrefix(last, `{"type":"BOOKMARK"`) {
		t.Errorf("last event: %q", last)
	}
	if end := e.next(s); end != "" {
		t.Errorf("after the end: %q", end)
	}
	w, answer := e.do(http.MethodGet, maps, nil, "")
	if w.StatusCode != http.StatusServiceUnavailable || w.Header.Get("Retry-After") != "1" {
		t.Errorf("%d %s", w.StatusCode, answer)
	}
}

// TestAbandonWatches: watches end at once, without another event or bookmark, also when
// a shutdown follows; other requests go on.
func TestAbandonWatches(t *testing.T) {
	e := newEnv(t, func(c *apiserver.Config) { c.Limits.Bookmark = time.Hour })
	s := e.watch(maps + "?watch=1&allowWatchBookmarks=true")
	if first := e.next(s); !strings.Contains(first, "initial-events-end") {
		t.Fatal(first)
	}
	e.api.AbandonWatches()
	e.api.AbandonWatches()
	if w, answer := e.do(http.MethodPost, maps, nil, `{"metadata":{"name":"wrong"}}`); w.StatusCode != http.StatusCreated {
		t.Errorf("another request: %d %s", w.StatusCode, answer)
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := e.api.Shutdown(ctx); err != nil {
		t.Fatal(err)
	}
	if end := e.next(s); end != "" {
		t.Errorf("after the end: %q", end)
	}
}

// TestPanic: a panic is contained and answered.
func TestPanic(t *testing.T) {
	e := newEnv(t, func(c *apiserver.Config) {
		c.Discovery = http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic("a defect") })
		c.Log = testLog(t)
	})
	w, answer := e.do(http.MethodGet, "/apis", nil, "")
	if w.StatusCode != http.StatusInternalServerError || !strings.Contains(answer, "panic") {
		t.Errorf("%d %s", w.StatusCode, answer)
	}
}

// TestStalledWatch: a client that does not read loses its connection, and only
// that.
func TestStalledWatch(t *testing.T) {
	e := newEnv(t, func(c *apiserver.Config) { c.Limits.StalledWatch = 50 * time.Millisecond })
	conn, err := tls.Dial("tcp", e.http.Listener.Addr().String(), &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"http/1.1"}})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := fmt.Fprintf(conn, "GET %s?watch=1 HTTP/1.1\r\nHost: x\r\n\r\n", maps); err != nil {
		t.Fatal(err)
	}
	line := make([]byte, 12)
	if _, err := io.ReadFull(conn, line); err != nil || string(line) != "HTTP/1.1 200" {
		t.Fatal(string(line), err)
	}
	// Nobody reads any more. What the sockets do not hold must end the watch.
	big := strings.Repeat("x", 1<<20)
	for i := range 16 {
		if w, answer := e.do(http.MethodPost, maps, nil, fmt.Sprintf(`{"metadata":{"name":"big-%d"},"data":{"k":%q}}`, i, big)); w.StatusCode != 201 {
			t.Fatal(clip(answer))
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	for apiserver.OpenWatches(e.api) > 0 {
		select {
		case <-ctx.Done():
			t.Fatal("the watch is still there")
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// TestWatchNotConfirmed: a watch from a revision of which nobody knows whether it
// exists is to be asked for again. A stream that ends with an error would make
// client-go read everything again.
func TestWatchNotConfirmed(t *testing.T) {
	var reads refusing
	e := newEnv(t, func(c *apiserver.Config) {
		reads.Reads = c.Reads
		c.Reads = &reads
	})
	for _, c := range []struct {
		err  error
		want int
	}{
		{&consistency.TooLargeError{Asked: 9, Current: 5, RetryAfter: 1}, http.StatusOK}, // and an ERROR event
		{&consistency.TooLargeError{Asked: 9, Current: 5, RetryAfter: 1, Unconfirmed: true}, http.StatusTooManyRequests},
		{&consistency.UnavailableError{Cause: errors.New("behind"), RetryAfter: 1}, http.StatusTooManyRequests},
	} {
		reads.err = c.err
		w, answer := e.do(http.MethodGet, maps+"?watch=1&resourceVersion=9", nil, "")
		if w.StatusCode != c.want || c.want != http.StatusOK && w.Header.Get("Retry-After") != "1" {
			t.Errorf("%v: %d %s, want %d", c.err, w.StatusCode, answer, c.want)
		}
	}
	reads.err = &consistency.TooLargeError{Asked: 9, Current: 5, RetryAfter: 1, Unconfirmed: true}
	if w, answer := e.do(http.MethodGet, maps+"?resourceVersion=9", nil, ""); w.StatusCode != http.StatusGatewayTimeout {
		t.Errorf("a list: %d %s", w.StatusCode, answer)
	}
}

// refusing fails all reads once it has an error.
type refusing struct {
	objects.Reads
	err error
}

func (r *refusing) Await(ctx context.Context, p consistency.Plan) (proto.Revision, error) {
	if r.err != nil {
		return 0, r.err
	}
	return r.Reads.Await(ctx, p)
}
