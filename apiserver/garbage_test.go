package apiserver_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/quorate/quorate/apiserver"
	"github.com/quorate/quorate/internal/must"
	"github.com/quorate/quorate/proto"
)

// One stored value that is no object does not keep the garbage collector from the others.
func TestGarbageBesideBadValue(t *testing.T) {
	e := newEnv(t, func(c *apiserver.Config) { c.GarbageCollector = true })
	for _, name := range []string{"before", "after"} {
		if _, err := e.store.Propose(t.Context(), &proto.Write{
			Table: "configmaps", Key: "default/bad-" + name, Op: proto.Op_OP_PUT, Value: []byte(`"no object"`), Uid: name, RequestId: fmt.Appendf(nil, "%016s", name),
		}); err != nil {
			t.Fatal(err)
		}
		if name == "before" {
			e.runControllers() // it is in what the collector reads first; the other one in what happens
		}
	}
	w, body := e.do(http.MethodPost, "/api/v1/namespaces/default/configmaps", nil,
		`{"metadata":{"name":"orphan","ownerReferences":[{"apiVersion":"v1","kind":"ConfigMap","name":"nobody","uid":"u"}]}}`)
	if w.StatusCode != http.StatusCreated {
		t.Fatalf("%d %s", w.StatusCode, body)
	}
	must.Await(t, 20*time.Second, "an object without its owner is gone", func() string {
		w, body := e.do(http.MethodGet, "/api/v1/namespaces/default/configmaps/orphan", nil, "")
		if w.StatusCode != http.StatusNotFound || !strings.Contains(body, "orphan") {
			return fmt.Sprint(w.StatusCode, " ", body)
		}
		return ""
	})
}

// TestOwnerInAVersionThatWent: who names its owner in a version that is not served any more goes with it, and does not hold
// it: the uid says which object is meant.
func TestOwnerInAVersionThatWent(t *testing.T) {
	e := newEnv(t, func(c *apiserver.Config) { c.GarbageCollector = true })
	e.runControllers()
	e.lead()
	e.define(narrow, narrowV1)
	for _, propagation := range []string{"Background", "Foreground"} {
		name := strings.ToLower(propagation)
		w, body := e.do(http.MethodPost, narrowV1, nil, fmt.Sprintf(`{"apiVersion":"stable.example.com/v1","kind":"Narrow","metadata":{"name":%q},"spec":{"r":1}}`, name))
		if w.StatusCode != http.StatusCreated {
			t.Fatalf("%d %s", w.StatusCode, body)
		}
		_, rest, _ := strings.Cut(body, `"uid":"`)
		uid, _, _ := strings.Cut(rest, `"`)
		if w, body := e.do(http.MethodPost, maps, nil, fmt.Sprintf(`{"metadata":{"name":%q,"ownerReferences":[{"apiVersion":"stable.example.com/v1alpha1","kind":"Narrow","name":%q,"uid":%q,"blockOwnerDeletion":true}]}}`, name, name, uid)); w.StatusCode != http.StatusCreated {
			t.Fatalf("%d %s", w.StatusCode, body)
		}
	}
	if w, body := e.do(http.MethodPatch, definitionsPath+"/narrows.stable.example.com", typed(asJSONPatch), `[{"op":"replace","path":"/spec/versions/1/served","value":false}]`); w.StatusCode != http.StatusOK {
		t.Fatalf("%d %s", w.StatusCode, body)
	}
	e.await(narrowAlpha, http.StatusNotFound)
	for _, propagation := range []string{"Background", "Foreground"} {
		name := strings.ToLower(propagation)
		if w, body := e.do(http.MethodDelete, narrowV1+"/"+name+"?propagationPolicy="+propagation, nil, ""); w.StatusCode/100 != 2 {
			t.Fatalf("%d %s", w.StatusCode, body)
		}
		e.await(maps+"/"+name, http.StatusNotFound)
		e.await(narrowV1+"/"+name, http.StatusNotFound)
	}
}
