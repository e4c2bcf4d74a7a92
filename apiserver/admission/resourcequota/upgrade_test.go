package resourcequota_test

import (
	"errors"
	"testing"

	"github.com/quorate/quorate/apiserver/objects"
	"github.com/quorate/quorate/apiserver/objects/objectstest"
	"github.com/quorate/quorate/raftstore/mvcc"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// TestObjectsOfOlderReleases: a quota in whose namespace something is not counted yet, because
// it was written before the cluster spoke of limits, allows nothing: neither one of that time
// nor one that is made or changed later. Once the objects are written again it counts them all.
func TestObjectsOfOlderReleases(t *testing.T) {
	o := options(t, empty)
	o.Feature = mvcc.FeatureOfLimits - 1
	s := objectstest.NewStore(t, o)
	op := func(plural, name, verb string) *objects.Op {
		res := s.Kinds().Lookup(schema.GroupVersionResource{Version: "v1", Resource: plural})
		namespace := "n"
		if !res.Namespaced {
			namespace = ""
		}
		op := s.System(t.Context(), res, namespace, name, verb)
		op.Client, op.DecidedAt = true, s.Memory.State().Applied()
		return op
	}
	create := func(plural, body string) error {
		op := op(plural, "", "create")
		for {
			obj, err := op.DecodeBody("application/json", []byte(body), op.Resource)
			if err != nil {
				return err
			}
			if _, err = op.Create(obj); !errors.Is(err, objects.ErrDecideAgain) {
				return err
			}
		}
	}
	pod := func(name string) string {
		return `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"` + name + `"},"spec":{"containers":[{"name":"c","image":"i"}]}}`
	}
	quota := func(name, hard string) string {
		return `{"apiVersion":"v1","kind":"ResourceQuota","metadata":{"name":"` + name + `"},"spec":{"hard":` + hard + `}}`
	}
	want := func(what string, err error, text string) {
		t.Helper()
		if got := ""; err != nil || text != "" {
			if err != nil {
				got = err.Error()
			}
			if got != text {
				t.Errorf("%s: %s\nwant %s", what, got, text)
			}
		}
	}
	recharge := func(plural, name string) {
		t.Helper()
		op := op(plural, name, "update")
		op.Client, op.DecidedAt = false, 0
		want("write "+plural+" "+name+" again", op.Recharge(), "")
	}
	want("a namespace", create("namespaces", `{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"n"}}`), "")
	want("a quota", create("resourcequotas", quota("q", `{"pods":"2","count/configmaps":"1"}`)), "")
	want("a pod", create("pods", pod("a")), "")
	want("a pod", create("pods", pod("b")), "")
	if err := s.Memory.RaiseFeature(t.Context(), mvcc.FeatureVersion); err != nil {
		t.Fatal(err)
	}

	unknown := `pods "c" is forbidden: status unknown for quota: q, resources: pods`
	want("before it is counted", create("pods", pod("c")), unknown)
	want("a new quota", create("resourcequotas", quota("a", `{"pods":"9"}`)), "")
	want("by a new quota", create("pods", pod("c")), `pods "c" is forbidden: status unknown for quota: a, resources: pods`)
	_, _, err := op("resourcequotas", "a", "delete").Delete(&metav1.DeleteOptions{})
	want("it goes", err, "")
	recharge("resourcequotas", "q")
	want("the quota is written again, the pods are not", create("pods", pod("c")), unknown)
	recharge("pods", "a")
	recharge("resourcequotas", "q")
	want("one pod is missing", create("pods", pod("c")), unknown)
	recharge("pods", "b")
	want("the quota is not written again yet", create("pods", pod("c")), unknown)
	recharge("resourcequotas", "q")
	want("all is counted", create("pods", pod("c")), `pods "c" is forbidden: exceeded quota: q, requested: pods=1, used: pods=2, limited: pods=2`)
	want("a new quota counts at once", create("resourcequotas", quota("a", `{"pods":"1"}`)), "")
	want("by a new quota", create("pods", pod("c")), `pods "c" is forbidden: exceeded quota: a, requested: pods=1, used: pods=2, limited: pods=1`)
	if err := s.Memory.State().Check(); err != nil {
		t.Error(err)
	}
}
