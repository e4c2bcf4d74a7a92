package suspension_test

import (
	"k8s.io/apiserver/pkg/apis/audit"

	"encoding/json"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/quorate/quorate/apiserver/admission"
	"github.com/quorate/quorate/apiserver/admission/suspension"
	"github.com/quorate/quorate/internal/must"
	"github.com/quorate/quorate/proto"
	"github.com/quorate/quorate/raftstore/memstore"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// told keeps warnings.
type told struct{ warnings []string }

func (t *told) Warn(texts []string)                  { t.warnings = append(t.warnings, texts...) }
func (t *told) Annotate(string, string, audit.Level) {}

// object stores a configuration or a policy that has a uid; "gone" deletes it.
func object(t *testing.T, store *memstore.Store, resource, name, uid string) {
	t.Helper()
	w := &proto.Write{Table: resource + ".admissionregistration.k8s.io", Key: name, Op: proto.Op_OP_PUT, Value: []byte("{}"), Uid: uid}
	if uid == "gone" {
		w.Op, w.Value, w.Uid = proto.Op_OP_DELETE, nil, ""
	}
	if _, err := store.Propose(t.Context(), w); err != nil {
		t.Fatal(err)
	}
}

// TestObjectOfSuspension: a suspension is of one object. When that is gone, or another one has its
// name, nothing is suspended and no client is told of it; those that were stored without a uid are of
// whichever object has the name.
func TestObjectOfSuspension(t *testing.T) {
	store := memstore.New()
	defer func() { must.Close(t, store) }()
	const resource = "validatingadmissionpolicies"
	began := time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)
	view := suspension.NewView(store, func() time.Time { return began }, slog.New(slog.DiscardHandler))
	all := []*metav1.ObjectMeta{{Name: "x"}, {Name: "old"}}
	rest := suspension.Filter(view, resource, func() []*metav1.ObjectMeta { return all })
	for _, value := range []string{
		`{"resource":"` + resource + `","name":"x","uid":"1","by":"a","until":"2026-11-22T13:00:00Z"}`,
		`{"resource":"` + resource + `","name":"old","by":"a","until":"2026-11-22T13:00:00Z"}`,
	} {
		var s suspension.Suspension
		must.OK(t, json.Unmarshal([]byte(value), &s))
		if _, err := store.Propose(t.Context(), &proto.Write{Table: suspension.Table(), Key: s.Key(), Op: proto.Op_OP_PUT, Value: []byte(value)}); err != nil {
			t.Fatal(err)
		}
	}
	for _, step := range []struct{ name, uid, want string }{
		{"other", "1", ""},
		{"x", "1", "x"},
		{"old", "7", "old x"},
		{"x", "2", "old"}, // replaced
		{"x", "gone", "old"},
		{"x", "3", "old"},
		{"x", "1", "old x"},
		{"old", "gone", "x"},
		{"old", "8", "old x"},
		{"x", "gone", "old"},
		{"old", "gone", ""},
	} {
		object(t, store, resource, step.name, step.uid)
		var active, suspended, missing []string
		for _, s := range view.Active() {
			active = append(active, s.Name)
		}
		left := rest()
		for _, o := range []*metav1.ObjectMeta{all[1], all[0]} {
			if view.Suspended(resource, o.Name) {
				suspended = append(suspended, o.Name)
			}
			if !slices.Contains(left, o) {
				missing = append(missing, o.Name)
			}
		}
		var out told
		if err := view.Plugin().Validate(t.Context(), &admission.Attributes{Told: &out}); err != nil || len(out.warnings) != len(active) {
			t.Errorf("%s %q: told %q, %v", step.name, step.uid, out.warnings, err)
		}
		for what, got := range map[string][]string{"active": active, "suspended": suspended, "left out": missing} {
			if s := strings.Join(got, " "); s != step.want {
				t.Errorf("%s %q: %s are %q, want %q", step.name, step.uid, what, s, step.want)
			}
		}
	}
}

// TestView: what is suspended follows from the rows and the clock, and clients that write are told.
func TestView(t *testing.T) {
	store := memstore.New()
	defer func() { must.Close(t, store) }()
	began := time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)
	now := began
	var log strings.Builder
	view := suspension.NewView(store, func() time.Time { return now }, slog.New(slog.NewTextHandler(&log, nil)))
	put := func(key string, value []byte) {
		t.Helper()
		op := proto.Op_OP_PUT
		if value == nil {
			op = proto.Op_OP_DELETE
		}
		if _, err := store.Propose(t.Context(), &proto.Write{Table: suspension.Table(), Key: key, Op: op, Value: value}); err != nil {
			t.Fatal(err)
		}
	}
	suspend := func(resource, name string, minutes int) {
		s := suspension.Suspension{Resource: resource, Name: name, By: "alice", Since: began, Until: began.Add(time.Duration(minutes) * time.Minute)}
		value, err := json.Marshal(&s)
		must.OK(t, err)
		put(s.Key(), value)
	}
	check := func(want string) {
		t.Helper()
		var names []string
		for _, s := range view.Active() {
			if !view.Suspended(s.Resource, s.Name) {
				t.Errorf("%s is active and not suspended", s.Key())
			}
			names = append(names, s.Key())
		}
		if got := strings.Join(names, " "); got != want {
			t.Errorf("suspended are %q, want %q", got, want)
		}
		var out told
		a := &admission.Attributes{Told: &out}
		if err := view.Plugin().Validate(t.Context(), a); err != nil || len(out.warnings) != len(names) {
			t.Errorf("told %q, %v", out.warnings, err)
		}
	}
	if view.Plugin().Handles(&admission.Attributes{}) {
		t.Error("there is something to tell before anything is suspended")
	}
	check("")
	for _, key := range []string{"validatingwebhookconfigurations/a", "validatingwebhookconfigurations/b", "mutatingadmissionpolicies/z"} {
		resource, name, _ := strings.Cut(key, "/")
		object(t, store, resource, name, "")
	}
	suspend("validatingwebhookconfigurations", "b", 10)
	suspend("mutatingadmissionpolicies", "z", 5)
	suspend("validatingwebhookconfigurations", "a", 5)
	check("mutatingadmissionpolicies/z validatingwebhookconfigurations/a validatingwebhookconfigurations/b")
	if view.Suspended("mutatingwebhookconfigurations", "a") || view.Suspended("validatingwebhookconfigurations", "z") {
		t.Error("another kind's name counts")
	}
	now = began.Add(5 * time.Minute)
	check("validatingwebhookconfigurations/b")
	if n := len(view.Stored()); n != 3 {
		t.Errorf("%d rows are stored", n)
	}
	put("broken", []byte("{"))
	check("validatingwebhookconfigurations/b")
	if !strings.Contains(log.String(), "key=broken") {
		t.Errorf("the log says nothing of a broken row: %s", log.String())
	}
	put("validatingwebhookconfigurations/b", nil)
	check("")
	if s := (&suspension.Suspension{Resource: "r", Name: "n", By: `a"b`, Until: began}).String(); s != `r/n is suspended until 2026-11-22T12:00:00Z by "a\"b"` {
		t.Error(fmt.Sprint(s))
	}
}
