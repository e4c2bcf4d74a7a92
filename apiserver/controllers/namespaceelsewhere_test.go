package controllers

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/quorate/quorate/apiserver/backends/aggregator"
	"github.com/quorate/quorate/internal/must"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
)

var namespacesGVR = corev1.SchemeGroupVersion.WithResource("namespaces")

// widgets is an aggregated API server: it serves widgets of v1 of a group of its own, in memory.
type widgets struct {
	t     *testing.T
	group string
	at    string
	cert  *tls.Certificate

	mu      sync.Mutex
	objects map[string][]*metav1.PartialObjectMetadata // by namespace, in order
	down    bool
	hangs   map[string]chan struct{} // by namespace: its requests are answered when that is closed
	refuses string                   // how deletecollection is answered: with 405, or not in the discovery
	deleted []string                 // paths of DELETE
}

func newWidgets(t *testing.T, group string) *widgets {
	t.Helper()
	w := &widgets{t: t, group: group, objects: map[string][]*metav1.PartialObjectMetadata{}, hangs: map[string]chan struct{}{}}
	s := httptest.NewUnstartedServer(w)
	s.EnableHTTP2 = true
	s.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	s.TLS = &tls.Config{ClientAuth: tls.RequireAnyClientCert}
	s.StartTLS()
	t.Cleanup(s.Close)
	w.at, w.cert = s.Listener.Addr().String(), &s.TLS.Certificates[0]
	return w
}

func (w *widgets) ServeHTTP(out http.ResponseWriter, r *http.Request) {
	w.mu.Lock()
	down := w.down
	w.mu.Unlock()
	if down {
		panic(http.ErrAbortHandler)
	}
	version := "/apis/" + w.group + "/v1"
	if r.URL.Path == version {
		w.mu.Lock()
		verbs := `"get","list","delete"`
		if w.refuses != "undiscovered" {
			verbs += `,"deletecollection"`
		}
		w.mu.Unlock()
		fmt.Fprintf(out, `{"kind":"APIResourceList","groupVersion":"%s/v1","resources":[
			{"name":"widgets","kind":"Widget","namespaced":true,"verbs":[%s]},
			{"name":"reviews","kind":"Review","namespaced":true,"verbs":["create"]},
			{"name":"plants","kind":"Plant","verbs":["list","delete","deletecollection"]}]}`, w.group, verbs)
		return
	}
	rest, ok := strings.CutPrefix(r.URL.Path, version+"/namespaces/")
	parts := strings.Split(rest, "/")
	if !ok || len(parts) < 2 || parts[1] != "widgets" {
		if strings.HasPrefix(r.URL.Path, version+"/") {
			w.t.Errorf("%s %s", r.Method, r.URL.Path)
		}
		http.NotFound(out, r)
		return
	}
	user, groups := r.Header.Get("X-Remote-User"), r.Header["X-Remote-Group"]
	if user != "system:serviceaccount:kube-system:namespace-controller" || !slices.Equal(groups, []string{"system:serviceaccounts", "system:serviceaccounts:kube-system", "system:authenticated"}) {
		w.t.Errorf("asked by %s of %v", user, groups)
	}
	w.mu.Lock()
	hang := w.hangs[parts[0]]
	w.mu.Unlock()
	if hang != nil {
		select {
		case <-hang:
		case <-r.Context().Done():
			return
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case r.Method == http.MethodGet:
		w.list(out, r, w.objects[parts[0]])
	case len(parts) == 2 && w.refuses != "":
		if w.refuses == "undiscovered" {
			w.t.Error("deletecollection of a server that does not say that it has it")
		}
		out.WriteHeader(http.StatusMethodNotAllowed)
		fmt.Fprint(out, `{"kind":"Status","code":405,"reason":"MethodNotAllowed","message":"the server does not allow this method on the requested resource"}`)
	default:
		w.delete(out, r, parts[0], parts[2:])
	}
}

func (w *widgets) list(out http.ResponseWriter, r *http.Request, of []*metav1.PartialObjectMetadata) {
	from, _ := strconv.Atoi(r.URL.Query().Get("continue"))
	limit, err := strconv.Atoi(r.URL.Query().Get("limit"))
	if err != nil || limit <= 0 || limit > 1000 {
		w.t.Errorf("a list without a limit: %s", r.URL)
	}
	list := metav1.PartialObjectMetadataList{}
	for _, o := range of[min(from, len(of)):min(from+limit, len(of))] {
		list.Items = append(list.Items, *o)
	}
	if from+limit < len(of) {
		list.Continue = strconv.Itoa(from + limit)
	}
	if err := json.NewEncoder(out).Encode(&list); err != nil && r.Context().Err() == nil {
		w.t.Error(err)
	}
}

func (w *widgets) delete(out http.ResponseWriter, r *http.Request, namespace string, name []string) {
	w.deleted = append(w.deleted, r.URL.Path)
	body, err := io.ReadAll(r.Body)
	if err != nil {
		w.t.Error(err)
	}
	var options metav1.DeleteOptions
	if err := json.Unmarshal(body, &options); err != nil || options.PropagationPolicy == nil || *options.PropagationPolicy != metav1.DeletePropagationBackground {
		w.t.Errorf("options %s", body)
	}
	w.objects[namespace] = slices.DeleteFunc(w.objects[namespace], func(o *metav1.PartialObjectMetadata) bool {
		if len(name) > 0 {
			if o.Name != name[0] {
				return false
			}
			if options.Preconditions == nil || *options.Preconditions.UID != o.UID {
				w.t.Errorf("the deletion of %s has the conditions %+v", o.Name, options.Preconditions)
			}
		}
		now := metav1.Now()
		o.DeletionTimestamp = &now
		return len(o.Finalizers) == 0
	})
	fmt.Fprint(out, "{}")
}

// add puts n widgets into a namespace.
func (w *widgets) add(namespace string, n int, finalizers ...string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for i := range n {
		o := &metav1.PartialObjectMetadata{}
		o.Name = fmt.Sprintf("w%d-%d", len(w.objects[namespace]), i)
		o.UID, o.Finalizers = types.UID("u-"+o.Name), finalizers
		w.objects[namespace] = append(w.objects[namespace], o)
	}
}

func (w *widgets) has(namespace string) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.objects[namespace])
}

func (w *widgets) set(change func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	change()
}

// newElsewhereEnv runs the namespace controller with some aggregated API servers.
func newElsewhereEnv(t *testing.T, servers ...*widgets) *env {
	t.Helper()
	var all []aggregatedServer
	for _, w := range servers {
		all = append(all, aggregatedServer{w.group, w.at, w.cert})
	}
	return newAggregatedEnv(t, []Name{NamespaceController, SystemNamespacesController}, all...)
}

// aggregatedServer is where the v1 of a group below example.com is served.
type aggregatedServer struct {
	group, at string
	cert      *tls.Certificate
}

// newAggregatedEnv has APIServices of some servers.
func newAggregatedEnv(t *testing.T, controllers []Name, servers ...aggregatedServer) *env {
	t.Helper()
	e := newEnv(t, Config{Controllers: controllers})
	a := aggregator.New(aggregator.Config{
		Store: e.store, Builtin: e.objects.Kinds(), Log: slog.New(slog.DiscardHandler), Dial: (&net.Dialer{}).DialContext,
		Certificate: func() *tls.Certificate { return servers[0].cert },
		Resolve: func(_ context.Context, _, name string, _ int32) (string, error) {
			for _, s := range servers {
				if s.group == name+".example.com" {
					return s.at, nil
				}
			}
			return "", errors.New("no such service")
		},
	})
	e.manager.cfg.Aggregator = a
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := a.Run(ctx, e.objects.WatchTable); err != nil {
			t.Error(err)
		}
	}()
	t.Cleanup(func() { cancel(); <-done })
	for _, w := range servers {
		port := int32(443)
		s := &apiregistrationv1.APIService{Spec: apiregistrationv1.APIServiceSpec{
			Group: w.group, Version: "v1", GroupPriorityMinimum: 10, VersionPriority: 10, InsecureSkipTLSVerify: true,
			Service: &apiregistrationv1.ServiceReference{Namespace: "default", Name: strings.TrimSuffix(w.group, ".example.com"), Port: &port},
		}}
		s.Name = "v1." + w.group
		must.OK(t, e.client.Create(t.Context(), apiServicesGVR, "", s))
	}
	return e
}

// makeNamespaces makes namespaces with a ConfigMap each.
func makeNamespaces(e *env, names ...string) {
	e.t.Helper()
	for _, name := range names {
		ns := &corev1.Namespace{}
		ns.Name = name
		must.OK(e.t, e.client.Create(e.t.Context(), namespacesGVR, "", ns))
		m := &corev1.ConfigMap{}
		m.Name, m.Namespace = "m", name
		must.OK(e.t, e.client.Create(e.t.Context(), mapsGVR, name, m))
	}
}

func deleteNamespaces(e *env, names ...string) {
	e.t.Helper()
	for _, name := range names {
		var ns corev1.Namespace
		must.OK(e.t, e.client.Get(e.t.Context(), namespacesGVR, "", name, &ns))
		must.OK(e.t, e.client.Delete(e.t.Context(), namespacesGVR, "", name, ns.UID))
	}
}

func awaitGone(e *env, names ...string) {
	e.t.Helper()
	for _, name := range names {
		e.awaitFor(3*patience, "the namespace "+name+" goes", func() string {
			var ns corev1.Namespace
			if err := e.client.Get(e.t.Context(), namespacesGVR, "", name, &ns); !apierrors.IsNotFound(err) {
				return fmt.Sprintf("%v %+v", err, ns.Status.Conditions)
			}
			return ""
		})
	}
}

// awaitCondition waits for a condition of a namespace that is there.
func awaitCondition(e *env, name string, kind corev1.NamespaceConditionType, status corev1.ConditionStatus, reason, message string) {
	e.t.Helper()
	e.awaitFor(3*patience, fmt.Sprintf("%s %s", kind, reason), func() string {
		var ns corev1.Namespace
		if err := e.client.Get(e.t.Context(), namespacesGVR, "", name, &ns); err != nil {
			return err.Error()
		}
		for _, c := range ns.Status.Conditions {
			if c.Type == kind && c.Status == status && c.Reason == reason && strings.Contains(c.Message, message) {
				return ""
			}
		}
		return fmt.Sprintf("%+v", ns.Status.Conditions)
	})
}

func awaitContentGone(e *env, name string) {
	e.t.Helper()
	e.await("the ConfigMap of "+name+" goes", func() string {
		var m corev1.ConfigMap
		if err := e.client.Get(e.t.Context(), mapsGVR, name, "m", &m); !apierrors.IsNotFound(err) {
			return fmt.Sprintf("it is there: %v", err)
		}
		return ""
	})
}

// TestElsewhere: what an aggregated API server has in a namespace goes with it, by whatever the server can, and
// nothing of another one.
func TestElsewhere(t *testing.T) {
	for _, refuses := range []string{"", "405", "undiscovered"} {
		t.Run("refuses "+refuses, func(t *testing.T) {
			t.Parallel()
			w := newWidgets(t, "x.example.com")
			w.refuses = refuses
			e := newElsewhereEnv(t, w)
			makeNamespaces(e, "a", "b")
			w.add("a", 600)
			w.add("b", 2)
			e.run()
			deleteNamespaces(e, "a")
			awaitGone(e, "a")
			if a, b := w.has("a"), w.has("b"); a != 0 || b != 2 {
				t.Errorf("the namespaces have %d and %d", a, b)
			}
			want := 1
			if refuses != "" {
				want = 600
			}
			if len(w.deleted) != want {
				t.Errorf("%d deletions, want %d", len(w.deleted), want)
			}
		})
	}
}

// TestElsewhereFinalizers: objects that stay hold the namespace, which says so.
func TestElsewhereFinalizers(t *testing.T) {
	t.Parallel()
	w := newWidgets(t, "x.example.com")
	e := newElsewhereEnv(t, w)
	makeNamespaces(e, "a")
	w.add("a", 2000)
	w.add("a", 1500, "example.com/f")
	e.run()
	deleteNamespaces(e, "a")
	awaitCondition(e, "a", corev1.NamespaceContentRemaining, corev1.ConditionTrue, "SomeResourcesRemain", "Some resources are remaining: widgets.x.example.com has 1500 resource instances")
	awaitCondition(e, "a", corev1.NamespaceFinalizersRemaining, corev1.ConditionTrue, "SomeFinalizersRemain", "Some content in the namespace has finalizers remaining: example.com/f in 1500 resource instances")
	awaitContentGone(e, "a")
	w.set(func() {
		if len(w.deleted) != 1 {
			t.Errorf("what is being deleted was deleted again: %d", len(w.deleted))
		}
		w.objects["a"] = nil
	})
	awaitGone(e, "a")
}

// TestElsewhereDown: while a server does not say what it serves, what is known of elsewhere is deleted, and the
// namespace waits and says why.
func TestElsewhereDown(t *testing.T) {
	t.Parallel()
	w, other := newWidgets(t, "x.example.com"), newWidgets(t, "y.example.com")
	w.down = true
	e := newElsewhereEnv(t, w, other)
	makeNamespaces(e, "a")
	w.add("a", 3)
	other.add("a", 3)
	e.run()
	deleteNamespaces(e, "a")
	awaitCondition(e, "a", corev1.NamespaceDeletionDiscoveryFailure, corev1.ConditionTrue, "DiscoveryFailed",
		"Discovery failed for some groups, 1 failing: unable to retrieve the complete list of server APIs: x.example.com/v1: stale GroupVersion discovery: x.example.com/v1")
	awaitContentGone(e, "a")
	e.await("the other server's objects go", func() string {
		if n := other.has("a"); n > 0 {
			return fmt.Sprint(n)
		}
		return ""
	})
	if w.has("a") != 3 {
		t.Error("objects of the server that is down are gone")
	}
	w.set(func() { w.down = false })
	awaitGone(e, "a")
	if n := w.has("a"); n != 0 {
		t.Errorf("the namespace went before %d of its objects", n)
	}
}

// TestElsewhereHangs: a server that does not answer keeps the objects of no other one, and namespaces that it
// answers for go.
func TestElsewhereHangs(t *testing.T) {
	t.Parallel()
	w, other := newWidgets(t, "x.example.com"), newWidgets(t, "y.example.com")
	e := newElsewhereEnv(t, w, other)
	release := make(chan struct{})
	slow := []string{"slow0", "slow1", "slow2"} // fewer than the workers of a server
	makeNamespaces(e, slow...)
	makeNamespaces(e, "fast0", "fast1")
	for _, name := range append(slices.Clone(slow), "fast0", "fast1") {
		w.add(name, 3)
		other.add(name, 3)
	}
	for _, name := range slow {
		w.hangs[name] = release
	}
	e.run()
	deleteNamespaces(e, slow...)
	start := time.Now()
	deleteNamespaces(e, "fast0", "fast1")
	awaitGone(e, "fast0", "fast1")
	//wall: the namespaces that hang do so until the test ends, so this is patience
	if took := time.Since(start); took > patience/2 {
		t.Errorf("other namespaces took %v", took)
	}
	// More namespaces than workers: what others have goes nevertheless.
	var many []string
	for i := range 3 * elsewhereWorkers {
		many = append(many, fmt.Sprint("many", i))
	}
	w.set(func() {
		for _, name := range many {
			w.hangs[name] = release
		}
	})
	makeNamespaces(e, many...)
	for _, name := range many {
		w.add(name, 3)
		other.add(name, 3)
	}
	deleteNamespaces(e, many...)
	for _, name := range append(many, slow...) {
		awaitContentGone(e, name)
		e.await("the other server's objects of "+name, func() string {
			if n := other.has(name); n > 0 {
				return fmt.Sprint(n)
			}
			return ""
		})
		if w.has(name) != 3 {
			t.Errorf("%s: a server that hangs has lost objects", name)
		}
	}
	close(release)
	awaitGone(e, append(many, slow...)...)
}

// TestElsewhereAnother: nothing is deleted in a namespace that is not the one that was being deleted.
func TestElsewhereAnother(t *testing.T) {
	t.Parallel()
	w := newWidgets(t, "x.example.com")
	e := newElsewhereEnv(t, w)
	makeNamespaces(e, "a")
	w.add("a", 3)
	e.await("the server is known", func() string {
		if is := e.manager.cfg.Aggregator.Namespaced(); len(is.Servers) != 1 || !is.Asked {
			return fmt.Sprintf("%+v", is)
		}
		return ""
	})
	changed := make(chan string, 10)
	ctx, cancel := context.WithCancel(t.Context())
	of := newElsewhere(ctx, e.base, e.manager.cfg.Aggregator, func(name string) { changed <- name })
	defer of.close()
	defer cancel()
	left := &content{resources: map[string]int{}, finalizers: map[string]int{}}
	var ns corev1.Namespace
	must.OK(t, e.client.Get(t.Context(), namespacesGVR, "", "a", &ns))
	ask := func(uid string, want int) {
		t.Helper()
		if !of.look("a", uid, left) {
			t.Fatal("nobody is asked")
		}
		select {
		case <-changed:
		case <-time.After(patience):
			t.Fatal("nothing came of it")
		}
		if n := w.has("a"); n != want {
			t.Errorf("%d objects are there, want %d", n, want)
		}
	}
	ask(string(ns.UID), 3) // it is not being deleted
	deleteNamespaces(e, "a")
	ask("another", 3)
	of.forget(func(string) bool { return false })
	ask(string(ns.UID), 0)
}
