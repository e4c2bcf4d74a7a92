package resourcequota_test

import (
	"testing"

	"github.com/quorate/quorate/apiserver/access/auth"
	"github.com/quorate/quorate/apiserver/objects/objectstest"
	"github.com/quorate/quorate/internal/must"
	"github.com/quorate/quorate/proto"
	"github.com/quorate/quorate/raftstore/memstore"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// TestRefusalOfTheLog: a write that finds room whenever it is decided, and none where it is
// applied, is refused in upstream's words, with the numbers of its place in the log.
func TestRefusalOfTheLog(t *testing.T) {
	const pod = `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"p"},"spec":{"containers":[{"name":"c","image":"i","resources":{"requests":{"cpu":"1500m","memory":"1536Mi"},"limits":{"cpu":"2","memory":"2Gi"}}}]}}`
	for _, c := range []struct {
		name, quota string
		// rival uses something at the moment in which the write is applied, change is the
		// quota's version then.
		rival  map[string]int64
		change []*proto.Bound
		want   string
	}{{
		name: "a count", quota: `{"pods":"3"}`, rival: map[string]int64{"pods": 3},
		want: `pods "p" is forbidden: exceeded quota: q, requested: pods=1, used: pods=3, limited: pods=3`,
	}, {
		name:  "two names of one amount, and another that is not exceeded",
		quota: `{"cpu":"2","requests.cpu":"2500m","memory":"4Gi","pods":"9"}`, rival: map[string]int64{"requests.cpu": 1100},
		want: `pods "p" is forbidden: exceeded quota: q, requested: cpu=1500m,requests.cpu=1500m, used: cpu=1100m,requests.cpu=1100m, limited: cpu=2,requests.cpu=2500m`,
	}, {
		name: "in the formats of the object and of the bound", quota: `{"requests.memory":"2Gi"}`, rival: map[string]int64{"requests.memory": 1 << 30},
		want: `pods "p" is forbidden: exceeded quota: q, requested: requests.memory=1536Mi, used: requests.memory=1Gi, limited: requests.memory=2Gi`,
	}, {
		name: "a quota that has changed meanwhile", quota: `{"pods":"3"}`, rival: map[string]int64{"requests.cpu": 700},
		change: []*proto.Bound{{Name: "requests.cpu", Max: 2000}},
		want:   `pods "p" is forbidden: exceeded quota: q, requested: requests.cpu=1500m, used: requests.cpu=700m, limited: requests.cpu=2`,
	}} {
		t.Run(c.name, func(t *testing.T) {
			o := options(t, empty)
			rounds := 0
			o.Before = func(mem *memstore.Store, w *proto.Write) {
				if w.Table != "pods" || !w.EnforceLimits {
					return
				}
				rounds++
				usage := &proto.Usage{Facts: []*proto.Attribute{{Name: "kind", Value: "pods"}}}
				for name, n := range c.rival {
					usage.Amounts = append(usage.Amounts, &proto.Amount{Name: name, Value: n})
				}
				write(t, mem, &proto.Write{Table: "pods", Key: "n/rival", Op: proto.Op_OP_PUT, Value: []byte(`{}`), Usage: usage})
				if c.change != nil {
					write(t, mem, &proto.Write{Table: "resourcequotas", Key: "n/q", Op: proto.Op_OP_PUT, Limits: []*proto.Limit{{Bounds: c.change}},
						Value: []byte(`{"apiVersion":"v1","kind":"ResourceQuota","metadata":{"name":"q","namespace":"n"}}`)})
				}
			}
			s := objectstest.NewStore(t, o)
			create := func(plural, namespace, body string) error {
				res := s.Kinds().Lookup(schema.GroupVersionResource{Version: "v1", Resource: plural})
				op := s.System(t.Context(), res, namespace, "", "create")
				op.Client, op.DecidedAt = true, s.Memory.State().Applied()
				op.Requester = again(func() {
					write(t, s.Memory, &proto.Write{Table: "pods", Key: "n/rival", Op: proto.Op_OP_DELETE}) // there is room again
				})
				_, err := op.CreateSent("application/json", []byte(body))
				return err
			}
			for _, err := range []error{
				create("namespaces", "", `{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"n"}}`),
				create("resourcequotas", "n", `{"apiVersion":"v1","kind":"ResourceQuota","metadata":{"name":"q"},"spec":{"hard":`+c.quota+`}}`),
			} {
				must.OK(t, err)
			}
			err := create("pods", "n", pod)
			if !apierrors.IsForbidden(err) || err.Error() != c.want {
				t.Errorf("%v\nwant %s", err, c.want)
			}
			if rounds != 1 {
				t.Errorf("it was proposed %d times", rounds)
			}
		})
	}
}

func write(t *testing.T, mem *memstore.Store, w *proto.Write) {
	t.Helper()
	if r, err := mem.Propose(t.Context(), w); err != nil || r.Outcome != proto.Outcome_OUTCOME_APPLIED && r.Outcome != proto.Outcome_OUTCOME_NOT_FOUND {
		t.Fatal(r.Outcome, err)
	}
}

// again is called when an operation is decided again.
type again func()

func (a again) AuthorizeAgain() error {
	a()
	return nil
}

func (again) Basis() []auth.Object { return nil }
