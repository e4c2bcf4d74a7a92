package suspension_test

import (
	"encoding/json"
	"log/slog"
	"testing"
	"time"

	"github.com/quorate/quorate/apiserver/admission/suspension"
	"github.com/quorate/quorate/internal/must"
	"github.com/quorate/quorate/proto"
	"github.com/quorate/quorate/raftstore/memstore"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestFilter: what is suspended is left out, from its beginning to its end, and the slice is
// another one only if something has changed.
func TestFilter(t *testing.T) {
	store := memstore.New()
	defer func() { must.Close(t, store) }()
	now := time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)
	view := suspension.NewView(store, func() time.Time { return now }, slog.New(slog.DiscardHandler))
	all := []*metav1.ObjectMeta{{Name: "a"}, {Name: "b"}, {Name: "c"}}
	const resource = "validatingadmissionpolicies"
	get := suspension.Filter(view, resource, func() []*metav1.ObjectMeta { return all })
	check := func(want string) {
		t.Helper()
		got := ""
		for _, x := range get() {
			got += x.Name
		}
		if got != want {
			t.Errorf("%q are asked, want %q", got, want)
		}
		if x, y := get(), get(); len(x) > 0 && &x[0] != &y[0] {
			t.Error("another slice, and nothing has changed")
		}
	}
	for _, name := range []string{"0", "a", "b", "c"} {
		object(t, store, resource, name, "")
		object(t, store, "mutatingadmissionpolicies", name, "")
	}
	suspend := func(resource, name string, d time.Duration) {
		t.Helper()
		s := suspension.Suspension{Resource: resource, Name: name, Until: now.Add(d)}
		value, err := json.Marshal(&s)
		must.OK(t, err)
		if _, err := store.Propose(t.Context(), &proto.Write{Table: suspension.Table(), Key: s.Key(), Op: proto.Op_OP_PUT, Value: value}); err != nil {
			t.Fatal(err)
		}
	}
	check("abc")
	suspend("mutatingadmissionpolicies", "a", time.Hour)
	check("abc")
	suspend(resource, "b", time.Hour)
	check("ac")
	suspend(resource, "c", time.Minute)
	check("a")
	all = append([]*metav1.ObjectMeta{{Name: "0"}}, all...)
	check("0a")
	now = now.Add(time.Minute)
	check("0ac")
	suspend(resource, "0", time.Minute)
	suspend(resource, "a", time.Minute)
	suspend(resource, "c", time.Minute)
	check("")
	now = now.Add(time.Hour)
	check("0abc")
	if got := suspension.Filter(nil, resource, func() []*metav1.ObjectMeta { return all })(); len(got) != 4 {
		t.Errorf("without a view %d are asked", len(got))
	}
}
