package controllers

import (
	"crypto/tls"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/quorate/quorate/internal/must"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

// gadgets is an aggregated API server that serves gadgets of y.example.com/v1 as an API server
// does: with watches, preconditions, finalizers and merge patches.
type gadgets struct {
	t    *testing.T
	at   string
	cert *tls.Certificate

	mu      sync.Mutex
	moved   *sync.Cond
	rv      int
	objects map[string]*metav1.PartialObjectMetadata // by namespace/name
	events  []gadgetEvent
	answer  func(http.ResponseWriter, *http.Request) bool // instead, if it is not nil and says so
}

type gadgetEvent struct {
	rv     int
	Type   string                        `json:"type"`
	Object *metav1.PartialObjectMetadata `json:"object"`
}

func newGadgets(t *testing.T) *gadgets {
	g := &gadgets{t: t, objects: map[string]*metav1.PartialObjectMetadata{}}
	g.moved = sync.NewCond(&g.mu)
	s := httptest.NewUnstartedServer(g)
	s.EnableHTTP2 = true
	s.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	s.TLS = &tls.Config{ClientAuth: tls.RequireAnyClientCert}
	s.StartTLS()
	t.Cleanup(func() {
		s.CloseClientConnections()
		s.Close()
	})
	g.at, g.cert = s.Listener.Addr().String(), &s.TLS.Certificates[0]
	return g
}

func (g *gadgets) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	const version = "/apis/y.example.com/v1"
	if r.URL.Path == version {
		fmt.Fprint(w, `{"kind":"APIResourceList","groupVersion":"y.example.com/v1","resources":[
			{"name":"gadgets","kind":"Gadget","namespaced":true,"verbs":["get","list","watch","delete","patch"]}]}`)
		return
	}
	if !strings.HasPrefix(r.URL.Path, version+"/") {
		http.NotFound(w, r) // other forms of discovery, OpenAPI
		return
	}
	g.mu.Lock()
	answer := g.answer
	g.mu.Unlock()
	if answer != nil && answer(w, r) {
		return
	}
	user := r.Header.Get("X-Remote-User")
	if user != asGarbageCollector.Name && user != asQuotaController.Name {
		g.t.Errorf("asked by %s", user)
	}
	parts := strings.Split(strings.TrimPrefix(r.URL.Path, version+"/"), "/")
	w.Header().Set("Content-Type", "application/json")
	switch {
	case len(parts) == 1 && r.URL.Query().Get("watch") != "":
		g.watch(w, r)
	case len(parts) == 1:
		g.list(w)
	case len(parts) == 4:
		g.one(w, r, parts[1]+"/"+parts[3])
	default:
		http.NotFound(w, r)
	}
}

func (g *gadgets) list(w http.ResponseWriter) {
	g.mu.Lock()
	defer g.mu.Unlock()
	list := metav1.PartialObjectMetadataList{TypeMeta: metav1.TypeMeta{APIVersion: "meta.k8s.io/v1", Kind: "PartialObjectMetadataList"}}
	list.ResourceVersion = strconv.Itoa(g.rv)
	for _, o := range g.objects {
		list.Items = append(list.Items, *o)
	}
	g.write(w, &list)
}

func (g *gadgets) watch(w http.ResponseWriter, r *http.Request) {
	from, _ := strconv.Atoi(r.URL.Query().Get("resourceVersion"))
	stop := make(chan struct{})
	defer close(stop)
	go func() {
		select {
		case <-r.Context().Done():
			g.moved.Broadcast()
		case <-stop:
		}
	}()
	_ = http.NewResponseController(w).Flush()
	g.mu.Lock()
	defer g.mu.Unlock()
	for at := 0; ; {
		for ; at < len(g.events); at++ {
			if g.events[at].rv > from {
				g.write(w, g.events[at])
				_ = http.NewResponseController(w).Flush()
			}
		}
		if r.Context().Err() != nil {
			return
		}
		g.moved.Wait()
	}
}

func (g *gadgets) one(w http.ResponseWriter, r *http.Request, key string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	o := g.objects[key]
	if o == nil {
		_, name, _ := strings.Cut(key, "/")
		g.refuse(w, apierrors.NewNotFound(schema.GroupResource{Group: "y.example.com", Resource: "gadgets"}, name))
		return
	}
	next := o.DeepCopy()
	switch r.Method {
	case http.MethodDelete:
		var options metav1.DeleteOptions
		if err := json.NewDecoder(r.Body).Decode(&options); err != nil || options.Preconditions == nil || options.Preconditions.UID == nil || options.Preconditions.ResourceVersion == nil {
			g.t.Errorf("DELETE %s without preconditions: %+v, %v", key, options, err)
			return
		}
		if *options.Preconditions.UID != o.UID || *options.Preconditions.ResourceVersion != o.ResourceVersion {
			g.refuse(w, apierrors.NewConflict(schema.GroupResource{Resource: "gadgets"}, key, fmt.Errorf("precondition failed")))
			return
		}
		now := metav1.Now()
		next.DeletionTimestamp = &now
		if *options.PropagationPolicy == metav1.DeletePropagationForeground {
			next.Finalizers = append(next.Finalizers, metav1.FinalizerDeleteDependents)
		}
	case http.MethodPatch:
		var patch struct{ Metadata json.RawMessage }
		if err := json.NewDecoder(r.Body).Decode(&patch); err != nil {
			g.t.Error(err)
		}
		next.OwnerReferences, next.Finalizers = nil, nil
		if err := json.Unmarshal(patch.Metadata, &next.ObjectMeta); err != nil {
			g.t.Error(err)
		}
		if next.UID != o.UID || next.ResourceVersion != o.ResourceVersion {
			g.refuse(w, apierrors.NewConflict(schema.GroupResource{Resource: "gadgets"}, key, fmt.Errorf("another version")))
			return
		}
	}
	if r.Method != http.MethodGet {
		g.put(key, next)
	}
	g.write(w, next)
}

// put stores an object, or takes it away if nothing holds it. g.mu is held.
func (g *gadgets) put(key string, o *metav1.PartialObjectMetadata) {
	g.rv++
	o.TypeMeta = metav1.TypeMeta{APIVersion: "meta.k8s.io/v1", Kind: "PartialObjectMetadata"}
	o.ResourceVersion = strconv.Itoa(g.rv)
	e := gadgetEvent{rv: g.rv, Type: "MODIFIED", Object: o}
	if g.objects[key] == nil {
		e.Type = "ADDED"
	}
	g.objects[key] = o
	if o.DeletionTimestamp != nil && len(o.Finalizers) == 0 {
		delete(g.objects, key)
		e.Type = "DELETED"
	}
	g.events = append(g.events, e)
	g.moved.Broadcast()
}

func (g *gadgets) write(w http.ResponseWriter, what any) {
	if err := json.NewEncoder(w).Encode(what); err != nil {
		g.t.Log(err) // the client has gone
	}
}

func (g *gadgets) refuse(w http.ResponseWriter, err *apierrors.StatusError) {
	err.ErrStatus.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}
	w.WriteHeader(int(err.ErrStatus.Code))
	g.write(w, err.ErrStatus)
}

// make makes a gadget in the namespace default.
func (g *gadgets) make(name string, change func(*metav1.PartialObjectMetadata)) metav1.OwnerReference {
	g.mu.Lock()
	defer g.mu.Unlock()
	o := &metav1.PartialObjectMetadata{}
	o.Name, o.Namespace, o.UID = name, "default", types.UID("gadget-"+name)
	if change != nil {
		change(o)
	}
	g.put("default/"+name, o)
	return metav1.OwnerReference{APIVersion: "y.example.com/v1", Kind: "Gadget", Name: name, UID: o.UID}
}

// drop deletes a gadget as a client does.
func (g *gadgets) drop(name string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	o := g.objects["default/"+name].DeepCopy()
	now := metav1.Now()
	o.DeletionTimestamp = &now
	g.put("default/"+name, o)
}

func (g *gadgets) get(name string) *metav1.PartialObjectMetadata {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.objects["default/"+name].DeepCopy()
}

func (g *gadgets) instead(answer func(http.ResponseWriter, *http.Request) bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.answer = answer
}

// newGadgetEnv runs controllers beside an aggregated API server.
func newGadgetEnv(t *testing.T, g *gadgets, controllers ...Name) *env {
	t.Helper()
	e := newAggregatedEnv(t, controllers, aggregatedServer{group: "y.example.com", at: g.at, cert: g.cert})
	return e
}

// ownedMap makes a ConfigMap with owners.
func ownedMap(e *env, name string, owners ...metav1.OwnerReference) metav1.OwnerReference {
	e.t.Helper()
	m := &corev1.ConfigMap{}
	m.Name, m.Namespace, m.OwnerReferences = name, "default", owners
	must.OK(e.t, e.client.Create(e.t.Context(), mapsGVR, "default", m))
	must.OK(e.t, e.client.Get(e.t.Context(), mapsGVR, "default", name, m))
	return metav1.OwnerReference{APIVersion: "v1", Kind: "ConfigMap", Name: name, UID: m.UID}
}

// hasMap says why a ConfigMap is not as it should be.
func hasMap(e *env, name string, want bool) func() string {
	return func() string {
		var m corev1.ConfigMap
		err := e.client.Get(e.t.Context(), mapsGVR, "default", name, &m)
		if want == apierrors.IsNotFound(err) {
			return fmt.Sprintf("ConfigMap %s: %v", name, err)
		}
		return ""
	}
}

func hasGadget(g *gadgets, name string, want bool) func() string {
	return func() string {
		if o := g.get(name); (o != nil) != want {
			return fmt.Sprintf("gadget %s: %+v", name, o)
		}
		return ""
	}
}

// deleteMap deletes a ConfigMap as a client does.
func deleteMap(e *env, name string, policy metav1.DeletionPropagation) {
	e.t.Helper()
	op, err := e.objects.SystemAt(e.t.Context(), configMaps, "default/"+name, "delete")
	must.OK(e.t, err)
	if _, err := op.DeleteAdmitted(asGarbageCollector, &metav1.DeleteOptions{PropagationPolicy: &policy}, 0); err != nil {
		e.t.Fatal(err)
	}
}

func blocking(r metav1.OwnerReference) metav1.OwnerReference {
	yes := true
	r.BlockOwnerDeletion = &yes
	return r
}

// TestGarbageOutside: objects of this server and of an aggregated one own each other.
func TestGarbageOutside(t *testing.T) {
	t.Parallel()
	g := newGadgets(t)
	e := newGadgetEnv(t, g, GarbageController)
	owner := g.make("owner", nil)
	ownedMap(e, "owned", owner)
	absent := owner
	absent.UID = "another"
	ownedMap(e, "of-an-absent-one", absent)
	ownedMap(e, "of-both", absent, owner)
	mapOwner := ownedMap(e, "owner")
	g.make("owned", func(o *metav1.PartialObjectMetadata) { o.OwnerReferences = []metav1.OwnerReference{mapOwner} })
	g.make("of-a-gadget", func(o *metav1.PartialObjectMetadata) { o.OwnerReferences = []metav1.OwnerReference{owner} })
	e.run()
	e.await("the owner is absent", hasMap(e, "of-an-absent-one", false))
	e.await("the absent owner is forgotten", func() string {
		var m corev1.ConfigMap
		if err := e.client.Get(t.Context(), mapsGVR, "default", "of-both", &m); err != nil || len(m.OwnerReferences) != 1 {
			return fmt.Sprintf("%v, %v", m.OwnerReferences, err)
		}
		return ""
	})
	// One that comes while the controller runs.
	late := ownedMap(e, "late-owner")
	g.make("late", func(o *metav1.PartialObjectMetadata) { o.OwnerReferences = []metav1.OwnerReference{late} })
	for _, name := range []string{"owned", "of-both"} {
		if wrong := hasMap(e, name, true)(); wrong != "" {
			t.Fatal(wrong)
		}
	}
	deleteMap(e, "owner", metav1.DeletePropagationBackground)
	deleteMap(e, "late-owner", metav1.DeletePropagationBackground)
	e.await("the gadget of a ConfigMap goes", hasGadget(g, "owned", false))
	e.await("the late gadget goes", hasGadget(g, "late", false))
	g.drop("owner")
	e.await("the ConfigMap of a gadget goes", hasMap(e, "owned", false))
	e.await("the one of two goes", hasMap(e, "of-both", false))
	e.await("the gadget of a gadget goes", hasGadget(g, "of-a-gadget", false))
}

// TestGarbageOutsideForeground: deletions in the foreground wait for objects elsewhere, and those that orphan make them
// forget their owner.
func TestGarbageOutsideForeground(t *testing.T) {
	t.Parallel()
	g := newGadgets(t)
	e := newGadgetEnv(t, g, GarbageController)
	owner := ownedMap(e, "owner")
	g.make("blocks", func(o *metav1.PartialObjectMetadata) {
		o.OwnerReferences, o.Finalizers = []metav1.OwnerReference{blocking(owner)}, []string{"example.com/f"}
	})
	gadget := g.make("waits", nil)
	ownedMap(e, "of-waits", blocking(gadget))
	orphaning := ownedMap(e, "orphaning")
	g.make("orphan", func(o *metav1.PartialObjectMetadata) { o.OwnerReferences = []metav1.OwnerReference{orphaning} })
	e.run()
	// The collector has seen all of them when it has deleted the last one.
	last := ownedMap(e, "last")
	g.make("last", func(o *metav1.PartialObjectMetadata) { o.OwnerReferences = []metav1.OwnerReference{last} })
	deleteMap(e, "last", metav1.DeletePropagationBackground)
	e.await("the last gadget goes", hasGadget(g, "last", false))

	deleteMap(e, "owner", metav1.DeletePropagationForeground)
	e.await("the gadget is being deleted", func() string {
		if o := g.get("blocks"); o == nil || o.DeletionTimestamp == nil {
			return fmt.Sprintf("%+v", o)
		}
		return ""
	})
	if wrong := hasMap(e, "owner", true)(); wrong != "" {
		t.Fatal(wrong)
	}
	g.mu.Lock()
	free := g.objects["default/blocks"].DeepCopy()
	free.Finalizers = nil
	g.put("default/blocks", free)
	g.mu.Unlock()
	e.await("the owner goes", hasMap(e, "owner", false))

	g.mu.Lock()
	waits, now := g.objects["default/waits"].DeepCopy(), metav1.Now()
	waits.DeletionTimestamp, waits.Finalizers = &now, []string{metav1.FinalizerDeleteDependents}
	g.put("default/waits", waits)
	g.mu.Unlock()
	e.await("the ConfigMap of the gadget goes", hasMap(e, "of-waits", false))
	e.await("the gadget goes", hasGadget(g, "waits", false))

	deleteMap(e, "orphaning", metav1.DeletePropagationOrphan)
	e.await("the orphaning owner goes", hasMap(e, "orphaning", false))
	if o := g.get("orphan"); o == nil || len(o.OwnerReferences) != 0 {
		t.Errorf("the orphan: %+v", o)
	}
}

// TestGarbageOutsideFails: what a server says that does not answer, or that answers something else, deletes nothing, and
// keeps nothing here waiting.
func TestGarbageOutsideFails(t *testing.T) {
	t.Parallel()
	g := newGadgets(t)
	e := newGadgetEnv(t, g, GarbageController)
	absent := metav1.OwnerReference{APIVersion: "y.example.com/v1", Kind: "Gadget", Name: "absent", UID: "x"}
	asked, answers := make(chan struct{}), make(chan struct{})
	var once sync.Once
	isGet := func(r *http.Request) bool { return strings.HasSuffix(r.URL.Path, "/absent") }
	g.instead(func(w http.ResponseWriter, r *http.Request) bool {
		if !isGet(r) {
			return false
		}
		once.Do(func() { close(asked) })
		select {
		case <-r.Context().Done():
		case <-answers:
		}
		http.NotFound(w, r)
		return true
	})
	for i := range 2 * outsideWorkers {
		ownedMap(e, fmt.Sprint("of-absent-", i), absent)
	}
	e.run()
	<-asked
	gone := ownedMap(e, "gone")
	gone.UID = "y"
	ownedMap(e, "local", gone)
	e.await("garbage of this server goes", hasMap(e, "local", false))

	told := make(chan struct{}, 1)
	g.instead(func(w http.ResponseWriter, r *http.Request) bool {
		if !isGet(r) {
			return false
		}
		http.NotFound(w, r) // of nothing in particular
		select {
		case told <- struct{}{}:
		default:
		}
		return true
	})
	close(answers)
	ownedMap(e, "of-absent", absent)
	<-told
	<-told
	if wrong := hasMap(e, "of-absent", true)(); wrong != "" {
		t.Fatal(wrong)
	}
	g.instead(nil)
	e.awaitFor(6*patience, "the server says that the owner is absent", hasMap(e, "of-absent", false))
}

// TestGarbageOutsideUID: a server that uses the uid of an object here takes nothing from the collector.
func TestGarbageOutsideUID(t *testing.T) {
	t.Parallel()
	g := newGadgets(t)
	e := newGadgetEnv(t, g, GarbageController)
	root := ownedMap(e, "root")
	middle := ownedMap(e, "middle", blocking(root))
	alone := ownedMap(e, "alone")
	ownedMap(e, "leaf", blocking(alone))
	for i, uid := range []types.UID{middle.UID, alone.UID} {
		g.make(fmt.Sprint("thief-", i), func(o *metav1.PartialObjectMetadata) {
			now := metav1.Now()
			o.UID, o.Finalizers, o.DeletionTimestamp = uid, []string{metav1.FinalizerDeleteDependents}, &now
			o.OwnerReferences = []metav1.OwnerReference{blocking(metav1.OwnerReference{APIVersion: "v1", Kind: "ConfigMap", Name: "other", UID: uid})}
		})
	}
	e.run()
	last := ownedMap(e, "last")
	g.make("last", func(o *metav1.PartialObjectMetadata) { o.OwnerReferences = []metav1.OwnerReference{last} })
	deleteMap(e, "last", metav1.DeletePropagationBackground)
	e.await("the last gadget goes", hasGadget(g, "last", false))
	for _, name := range []string{"root", "middle", "alone", "leaf"} {
		if wrong := hasMap(e, name, true)(); wrong != "" {
			t.Fatal(wrong)
		}
	}
	deleteMap(e, "alone", metav1.DeletePropagationForeground)
	deleteMap(e, "root", metav1.DeletePropagationForeground)
	for _, name := range []string{"leaf", "alone", "middle", "root"} {
		e.await("the owner and what it owns go", hasMap(e, name, false))
	}
}

// TestQuotaOutside: the status of a quota counts objects of aggregated API servers.
func TestQuotaOutside(t *testing.T) {
	t.Parallel()
	g := newGadgets(t)
	e := newGadgetEnv(t, g, ResourceQuotaController)
	g.make("a", nil)
	g.make("elsewhere", nil)
	g.mu.Lock()
	other := g.objects["default/elsewhere"]
	delete(g.objects, "default/elsewhere")
	other.Namespace = "other"
	g.put("other/elsewhere", other)
	g.mu.Unlock()
	q := &corev1.ResourceQuota{Spec: corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{
		"count/gadgets.y.example.com": resource.MustParse("5"), "count/configmaps": resource.MustParse("5"),
	}}}
	q.Name, q.Namespace = "q", "default"
	must.OK(t, e.client.Create(t.Context(), quotasGVR, "default", q))
	e.run()
	used := func(gadgets, maps string) func() string {
		return func() string {
			if err := e.client.Get(t.Context(), quotasGVR, "default", "q", q); err != nil {
				return err.Error()
			}
			n, m := q.Status.Used["count/gadgets.y.example.com"], q.Status.Used["count/configmaps"]
			if n.String() != gadgets || m.String() != maps {
				return fmt.Sprint(q.Status.Used)
			}
			return ""
		}
	}
	e.await("one is counted", used("1", "0"))
	g.make("b", nil)
	ownedMap(e, "m")
	e.await("another one is counted", used("2", "1"))
	g.drop("a")
	e.await("one that is gone is not", used("1", "1"))
}
