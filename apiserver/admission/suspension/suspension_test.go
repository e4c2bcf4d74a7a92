package suspension_test

import (
	"k8s.io/apiserver/pkg/apis/audit"

	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/quorate/quorate/apiserver/admission"
	"github.com/quorate/quorate/apiserver/admission/suspension"
	"github.com/quorate/quorate/proto"
	"github.com/quorate/quorate/raftstore/memstore"
)

// told keeps warnings.
type told struct{ warnings []string }

func (t *told) Warn(texts []string)                  { t.warnings = append(t.warnings, texts...) }
func (t *told) Annotate(string, string, audit.Level) {}

// TestView: what is suspended follows from the rows and the clock, and clients that write are told.
func TestView(t *testing.T) {
	store := memstore.New()
	defer func() {
		if err := store.Close(); err != nil {
			t.Error(err)
		}
	}()
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
		if err != nil {
			t.Fatal(err)
		}
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
