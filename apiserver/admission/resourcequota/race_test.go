package resourcequota_test

import (
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/quorate/quorate/apiserver/objects"
	"github.com/quorate/quorate/apiserver/objects/objectstest"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// TestWritersAtOnce: many writers create and delete at the edge of a quota. It is never passed,
// it is full once nobody deletes any more, and what is used is what is there.
func TestWritersAtOnce(t *testing.T) {
	const writers, rounds, most = 32, 40, 7
	s := objectstest.NewStore(t, options(t, empty))
	op := func(plural, namespace, name, verb string) *objects.Op {
		res := s.Kinds().Lookup(schema.GroupVersionResource{Version: "v1", Resource: plural})
		o := s.System(t.Context(), res, namespace, name, verb)
		o.Client, o.DecidedAt = true, s.Memory.State().Applied()
		return o
	}
	create := func(plural, namespace, body string) (err error) {
		o := op(plural, namespace, "", "create")
		_, err = o.CreateSent("application/json", []byte(body))
		return err
	}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Error(err)
		}
	}
	must(create("namespaces", "", `{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"n"}}`))
	must(create("resourcequotas", "n", fmt.Sprintf(`{"apiVersion":"v1","kind":"ResourceQuota","metadata":{"name":"q"},"spec":{"hard":{"configmaps":"%d"}}}`, most)))
	var refused, created atomic.Int64
	var all sync.WaitGroup
	for w := range writers {
		all.Go(func() {
			for r := range rounds + 1 {
				name := fmt.Sprintf("c%d-%d", w, r)
				err := create("configmaps", "n", fmt.Sprintf(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":%q}}`, name))
				if used, _ := s.Memory.State().Usage("resourcequotas", "n/q"); len(used) != 1 || used[0].Used > most {
					t.Errorf("used: %v", used)
				}
				switch {
				case apierrors.IsForbidden(err):
					if !strings.Contains(err.Error(), "exceeded quota: q, requested: configmaps=1, used: configmaps=7, limited: configmaps=7") {
						t.Error(err)
					}
					refused.Add(1)
					continue
				case err != nil:
					t.Error(err)
					return
				}
				if created.Add(1); r < rounds {
					_, _, err := op("configmaps", "n", name, "delete").Delete(&metav1.DeleteOptions{})
					must(err)
				}
			}
		})
	}
	all.Wait()
	for n := range most { // what a refused last round has left free
		err := create("configmaps", "n", fmt.Sprintf(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"last%d"}}`, n))
		if err != nil && !apierrors.IsForbidden(err) {
			t.Error(err)
		}
	}
	there, err := s.Range("configmaps", "n/")
	must(err)
	used, _ := s.Memory.State().Usage("resourcequotas", "n/q")
	if len(there) != most || used[0].Used != most || refused.Load() == 0 || created.Load() == 0 {
		t.Errorf("%d objects are there, %v is used; %d were created, %d refused", len(there), used, created.Load(), refused.Load())
	}
	must(s.Memory.State().Check())
}
