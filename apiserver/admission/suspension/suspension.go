// Package suspension is the way out for a cluster that its own rules have locked: a webhook
// configuration or a policy that is suspended is not asked, on any node, for a time that ends
// by itself. Suspensions are rows of this cluster's state, so they are replicated, and a write
// names their table among the rules that it was decided by.
//
// The types to know:
//
//   - Suspension is one of them.
//   - View are those that are in force at this node.
package suspension

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math/bits"
	"slices"
	"strings"
	"time"

	"github.com/quorate/quorate/apiserver/admission"
	"github.com/quorate/quorate/proto"
	"github.com/quorate/quorate/raftstore/mvcc"
	"github.com/quorate/quorate/raftstore/view"
)

// Max is for how long something can be suspended.
const Max = 24 * time.Hour

// Kinds are what can be suspended, by their resources of admissionregistration.k8s.io.
var Kinds = [...]string{
	"validatingwebhookconfigurations", "mutatingwebhookconfigurations",
	"validatingadmissionpolicies", "mutatingadmissionpolicies",
}

// Suspension of one configuration or policy.
type Suspension struct {
	Resource string `json:"resource"` // one of Kinds
	Name     string `json:"name"`
	// UID is that of the object when it was suspended: another object of its name is not. Empty:
	// the object that there is, if any; suspensions were stored so once.
	UID string `json:"uid,omitempty"`
	// By is the user, and who impersonated the user, if so.
	By    string    `json:"by"`
	Since time.Time `json:"since"`
	// Until is when it ends. Each node goes by its own clock.
	Until time.Time `json:"until"`
}

// Key is where it is stored.
func (s *Suspension) Key() string { return s.Resource + "/" + s.Name }

// String names what is suspended, and for how long and by whom.
func (s *Suspension) String() string {
	return fmt.Sprintf("%s/%s is suspended until %s by %q", s.Resource, s.Name, s.Until.UTC().Format(time.RFC3339), s.By)
}

// Table is where suspensions are stored.
func Table() string { return proto.Rules[bits.TrailingZeros32(proto.RuleAdmissionSuspensions)].Table }

// View are the suspensions that this node's state shows. Safe for concurrent use; asking
// without any costs a few loads. A nil View has none.
type View struct {
	store  view.Store
	stored *view.View[[]*Suspension]
	now    func() time.Time
}

// NewView returns the view of a store. log is told of rows that cannot be read.
func NewView(store view.Store, now func() time.Time, log *slog.Logger) *View {
	return &View{store: store, now: now, stored: view.New(store, []string{Table()}, func(r view.Reading, _ []*Suspension) ([]*Suspension, error) {
		if r.Tables[0] == nil {
			return nil, nil
		}
		page, err := r.Tables[0].Range(mvcc.Query{At: r.At})
		if err != nil {
			return nil, err
		}
		var out []*Suspension
		for _, v := range page.Versions {
			s := new(Suspension)
			if err := json.Unmarshal(v.Value(), s); err != nil {
				log.Warn("a suspension of admission cannot be read; it has no effect", "key", v.Key, "err", err)
				continue
			}
			out = append(out, s)
		}
		return out, nil
	})}
}

// Stored are all that are stored, also those that have ended or whose objects are gone. They are not
// to be changed.
func (v *View) Stored() []*Suspension {
	if v == nil {
		return nil
	}
	return v.stored.Get()
}

// Active are those in force now, whose objects are still there, sorted by what is suspended.
func (v *View) Active() []*Suspension {
	stored := v.Stored()
	if len(stored) == 0 {
		return nil
	}
	now := v.now()
	var out []*Suspension
	for _, s := range stored {
		if now.Before(s.Until) && v.stands(s) {
			out = append(out, s)
		}
	}
	slices.SortFunc(out, func(a, b *Suspension) int {
		return cmp.Or(strings.Compare(a.Resource, b.Resource), strings.Compare(a.Name, b.Name))
	})
	return out
}

// Suspended reports whether a configuration or a policy is suspended now.
func (v *View) Suspended(resource, name string) bool {
	for _, s := range v.Stored() {
		if s.Resource == resource && s.Name == name && v.now().Before(s.Until) && v.stands(s) {
			return true
		}
	}
	return false
}

// stands reports whether there is still the object that was suspended. It is looked up for each
// question, since there are hardly ever suspensions: a view that follows the objects, too, would
// cost every write without any.
func (v *View) stands(s *Suspension) bool {
	o := ObjectOf(v.store.State(), s.Resource, s.Name)
	return o != nil && (s.UID == "" || s.UID == o.UID)
}

// ObjectOf is the configuration or policy that a state has of a name; nil if there is none.
func ObjectOf(state *mvcc.State, resource, name string) *mvcc.Version {
	for {
		t := state.Table(resource + ".admissionregistration.k8s.io")
		if t == nil {
			return nil
		}
		v, err := t.Get(name, state.Applied())
		if !errors.Is(err, mvcc.ErrCompacted) { // the history's floor has passed what was applied a moment ago
			return v
		}
	}
}

// Plugin is the view as a plugin: it refuses nothing, and reminds each client that writes of
// what is suspended.
func (v *View) Plugin() admission.Validator { return reminder{v} }

type reminder struct{ view *View }

func (r reminder) Handles(*admission.Attributes) bool { return len(r.view.Stored()) > 0 }

func (r reminder) Validate(_ context.Context, a *admission.Attributes) error {
	for _, s := range r.view.Active() {
		a.Warn("admission: " + s.String())
	}
	return nil
}
