package apiserver_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/quorate/quorate/apiserver"
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
	for end := time.Now().Add(20 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		w, body := e.do(http.MethodGet, "/api/v1/namespaces/default/configmaps/orphan", nil, "")
		if w.StatusCode == http.StatusNotFound && strings.Contains(body, "orphan") {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("an object without its owner is still there: %d %s", w.StatusCode, body)
		}
	}
}
