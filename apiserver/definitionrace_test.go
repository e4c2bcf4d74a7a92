package apiserver_test

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/quorate/quorate/apiserver"
	"github.com/quorate/quorate/apiserver/types/kinds"
	"github.com/quorate/quorate/proto"
	"github.com/quorate/quorate/raftstore/mvcc"

	"context"
)

const routesDefinition = "/routes.stable.example.com"

// TestCreateRacesDeletion: a node that has not seen yet that a definition is on its way
// out, or gone, creates nothing all the same: the entry is refused.
func TestCreateRacesDeletion(t *testing.T) {
	var stale atomic.Pointer[kinds.Registry]
	e := newEnv(t, func(c *apiserver.Config) {
		current := c.Kinds
		c.Kinds = func() *kinds.Registry {
			if r := stale.Load(); r != nil {
				return r
			}
			return current()
		}
	})
	e.lead()
	h := newConvertHook(t)
	e.define(routes(h.client()), routesV1)
	e.route("held")
	if w, body := e.do(http.MethodPatch, routesV1+"/held", http.Header{"Content-Type": {"application/merge-patch+json"}}, `{"metadata":{"finalizers":["example.com/hold"]}}`); w.StatusCode != http.StatusOK {
		t.Fatalf("%d %s", w.StatusCode, body)
	}
	before := e.definitions.Current()
	if w, body := e.do(http.MethodDelete, definitionsPath+routesDefinition, nil, ""); w.StatusCode != http.StatusOK {
		t.Fatalf("%d %s", w.StatusCode, body)
	}
	apply := func(name string) (int, string) {
		stale.Store(before)
		defer stale.Store(nil)
		w, body := e.do(http.MethodPatch, routesV1+"/"+name+"?fieldManager=me", http.Header{"Content-Type": {"application/apply-patch+yaml"}},
			fmt.Sprintf(`{"apiVersion":"stable.example.com/v1","kind":"Route","metadata":{"name":%q},"spec":{"host":"h"}}`, name))
		return w.StatusCode, body
	}
	if code, body := apply("late"); code != http.StatusForbidden || !strings.Contains(body, "create not allowed while custom resource definition is terminating") {
		t.Errorf("an apply that creates beside a deletion: %d %s", code, body)
	}
	if w, body := e.do(http.MethodPatch, routesV1+"/held", http.Header{"Content-Type": {"application/merge-patch+json"}}, `{"metadata":{"finalizers":null}}`); w.StatusCode != http.StatusOK {
		t.Fatalf("%d %s", w.StatusCode, body)
	}
	e.await(definitionsPath+routesDefinition, http.StatusNotFound)
	if code, body := apply("later"); code != http.StatusNotFound {
		t.Errorf("an apply that creates behind a deletion: %d %s", code, body)
	}
	left, err := e.mem.State().Table("routes.stable.example.com").Range(mvcc.Query{At: e.mem.State().Applied()})
	if err != nil || len(left.Versions) != 0 {
		t.Errorf("%d objects outlive their definition (%v)", len(left.Versions), err)
	}
}

// failingDeletes is a store in which objects of a table cannot be deleted.
type failingDeletes struct {
	apiserver.Store
	table string
	fail  *atomic.Bool
}

var errNoDelete = errors.New("the disk is full of sand")

func (s failingDeletes) Propose(ctx context.Context, w *proto.Write) (mvcc.Result, error) {
	if s.fail.Load() && w.Table == s.table && w.Op == proto.Op_OP_DELETE {
		return mvcc.Result{}, errNoDelete
	}
	return s.Store.Propose(ctx, w)
}

// TestTerminatingFailed: a definition whose objects cannot be deleted says why, and goes
// once they can.
func TestTerminatingFailed(t *testing.T) {
	var fail atomic.Bool
	fail.Store(true)
	e := newEnv(t, func(c *apiserver.Config) {
		c.Store = failingDeletes{c.Store, "routes.stable.example.com", &fail}
	})
	e.lead()
	h := newConvertHook(t)
	e.define(routes(h.client()), routesV1)
	e.route("a")
	if w, body := e.do(http.MethodDelete, definitionsPath+routesDefinition, nil, ""); w.StatusCode != http.StatusOK {
		t.Fatalf("%d %s", w.StatusCode, body)
	}
	for {
		body := e.await(definitionsPath+routesDefinition, http.StatusOK)
		if strings.Contains(body, `"reason":"InstanceDeletionFailed"`) && strings.Contains(body, "could not issue all deletes: ") && strings.Contains(body, errNoDelete.Error()) {
			break
		}
	}
	fail.Store(false)
	e.await(definitionsPath+routesDefinition, http.StatusNotFound)
}
