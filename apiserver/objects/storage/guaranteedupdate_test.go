package storage_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/quorate/quorate/apiserver/objects/storage"
	"github.com/quorate/quorate/internal/must"
	"github.com/quorate/quorate/proto"
	storeerrors "github.com/quorate/quorate/raftstore/errors"
	"github.com/quorate/quorate/raftstore/memstore"
	"github.com/quorate/quorate/raftstore/mvcc"
)

// lagging is a store whose local state is behind the cluster's until it is
// confirmed to be current.
type lagging struct {
	*memstore.Store
	behind *mvcc.State
}

func (l *lagging) State() *mvcc.State {
	if l.behind != nil {
		return l.behind
	}
	return l.Store.State()
}

func (l *lagging) Propose(ctx context.Context, w *proto.Write) (mvcc.Result, error) {
	r, err := l.Store.Propose(ctx, w)
	l.behind = nil // this node has applied the entry, and everything before it
	return r, err
}

func put(value string) *proto.Write {
	return &proto.Write{Table: "t", Key: "k", Op: proto.Op_OP_PUT, Value: []byte(value)}
}

// TestOutdatedState decides on a state that has nothing, while the cluster has
// the key: whatever the decision, the answer is the newest state's.
func TestOutdatedState(t *testing.T) {
	refusal := errors.New("refused")
	for _, c := range []struct {
		name     string
		decide   func(cur *mvcc.Version) (*proto.Write, error)
		want     string // the key's value in the end
		err      error
		confirms int
		retries  int
		decided  int
	}{
		{name: "a refusal is confirmed", confirms: 1, decided: 2, want: "old", err: refusal,
			decide: func(*mvcc.Version) (*proto.Write, error) { return nil, refusal }},
		{name: "a refusal that the newest state takes back", confirms: 1, decided: 2, want: "new",
			decide: func(cur *mvcc.Version) (*proto.Write, error) {
				if cur == nil {
					return nil, refusal
				}
				return put("new"), nil
			}},
		{name: "a settled refusal is not", confirms: 0, decided: 1, want: "old", err: refusal,
			decide: func(*mvcc.Version) (*proto.Write, error) { return nil, storage.Permanent{Err: refusal} }},
		{name: "nothing to do is confirmed", confirms: 1, decided: 2, want: "old",
			decide: func(*mvcc.Version) (*proto.Write, error) { return nil, nil }},
		{name: "a write loses the race and decides again", confirms: 0, decided: 2, retries: 1, want: "new",
			decide: func(*mvcc.Version) (*proto.Write, error) { return put("new"), nil }},
		{name: "a refusal after a lost race is final", confirms: 0, decided: 2, retries: 1, want: "old", err: refusal,
			decide: func(cur *mvcc.Version) (*proto.Write, error) {
				if cur == nil {
					return put("new"), nil
				}
				return nil, refusal
			}},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := &lagging{Store: memstore.New()}
			defer func() { must.Close(t, l) }()
			if _, err := l.Store.Propose(t.Context(), put("old")); err != nil {
				t.Fatal(err)
			}
			l.behind = mvcc.New()
			var confirms, retries, decided int
			r := storage.Updater{
				Store:   l,
				Confirm: func(context.Context) error { confirms++; l.behind = nil; return nil },
				Caller:  caller{retried: func() { retries++ }},
			}
			_, err := r.GuaranteedUpdate(t.Context(), "t", "k", func(cur *mvcc.Version) (*proto.Write, error) {
				decided++
				return c.decide(cur)
			})
			if !errors.Is(err, c.err) || errors.As(err, new(storage.Permanent)) {
				t.Errorf("error %v, want %v", err, c.err)
			}
			if confirms != c.confirms || retries != c.retries || decided != c.decided {
				t.Errorf("%d confirmations, %d retries, %d decisions; want %d, %d, %d", confirms, retries, decided, c.confirms, c.retries, c.decided)
			}
			l.behind = nil
			v, err := storage.Current(l, "t", "k")
			if err != nil || v == nil || string(v.Value()) != c.want {
				t.Errorf("the key is %v (%v), want %s", v, err, c.want)
			}
		})
	}
}

// TestDecidedTooLate: what is decided while the context ends is not written.
func TestDecidedTooLate(t *testing.T) {
	m := memstore.New()
	defer func() { must.Close(t, m) }()
	over := errors.New("the time is up")
	ctx, cancel := context.WithCancelCause(context.Background())
	r := storage.Updater{Store: m, Confirm: func(context.Context) error { return nil }}
	_, err := r.GuaranteedUpdate(ctx, "t", "k", func(*mvcc.Version) (*proto.Write, error) {
		cancel(over)
		return put("late"), nil
	})
	if !errors.Is(err, over) {
		t.Errorf("the error is %v", err)
	}
	if v, err := storage.Current(m, "t", "k"); err != nil || v != nil {
		t.Errorf("written: %v, %v", v, err)
	}
}

// TestRulesChange: who decides by rules that change meanwhile is told, and decides again,
// but not for ever.
func TestRulesChange(t *testing.T) {
	forbidden := errors.New("you may not do that any more")
	for _, c := range []struct {
		name    string
		changes int // that come while the write is decided
		hook    error
		err     error
		decided int
		told    int
	}{
		{name: "no change", decided: 1},
		{name: "one change", changes: 1, decided: 2, told: 1},
		{name: "no longer allowed", changes: 1, hook: forbidden, err: forbidden, decided: 1, told: 1},
		{name: "as often as may be", changes: 15, decided: 16, told: 15},
		{name: "too often", changes: 100, err: &storeerrors.RulesChangingError{Times: 16}, decided: 16, told: 15},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := memstore.New()
			defer func() { must.Close(t, m) }()
			var decided, told, retried int
			decide := func() (*proto.Write, error) {
				w := put(fmt.Sprint("v", decided))
				w.DecidedAt, w.Rules = uint64(m.State().Applied()), proto.RuleClusterRoles
				if decided++; decided <= c.changes {
					change := put("rule")
					change.Table = proto.Rules[1].Table
					if _, err := m.Propose(t.Context(), change); err != nil {
						t.Fatal(err)
					}
				}
				return w, nil
			}
			u := storage.Updater{
				Store: m, Confirm: func(context.Context) error { return nil },
				Caller: caller{
					retried: func() { retried++ },
					changed: func() error {
						if told++; m.State().Table(proto.Rules[1].Table) == nil {
							t.Error("this node does not have the change")
						}
						return c.hook
					},
				},
			}
			r, err := u.GuaranteedUpdate(t.Context(), "t", "k", func(*mvcc.Version) (*proto.Write, error) { return decide() })
			v := r.After
			var changing *storeerrors.RulesChangingError
			if errors.As(c.err, &changing) {
				if !errors.As(err, &changing) || changing.Times != 16 {
					t.Errorf("error %v", err)
				}
			} else if !errors.Is(err, c.err) {
				t.Errorf("error %v, want %v", err, c.err)
			}
			if (v != nil) != (err == nil) || v != nil && string(v.Value()) != fmt.Sprint("v", c.changes) {
				t.Errorf("written: %+v", v)
			}
			if decided != c.decided || told != c.told || retried != c.told {
				t.Errorf("decided %d times, told %d, %d retries; want %d and %d", decided, told, retried, c.decided, c.told)
			}
		})
	}
}

// caller is a Caller of functions, which may be nil.
type caller struct {
	retried func()
	stale   func() bool
	changed func() error
}

func (c caller) Retried() { c.retried() }

func (c caller) RulesStale() bool { return c.stale != nil && c.stale() }

func (c caller) RulesChanged(context.Context) error {
	if c.changed == nil {
		return nil
	}
	return c.changed()
}

// TestStaleRefusal: a refusal by rules that have changed is decided again, once this node is
// known to be current.
func TestStaleRefusal(t *testing.T) {
	m := memstore.New()
	defer func() { must.Close(t, m) }()
	refusal := errors.New("refused by an old rule")
	confirmed, redecided := 0, 0
	u := storage.Updater{
		Store: m, Confirm: func(context.Context) error { confirmed++; return nil },
		Caller: caller{retried: func() {}, stale: func() bool { return redecided == 0 }, changed: func() error { redecided++; return nil }},
	}
	r, err := u.GuaranteedUpdate(t.Context(), "t", "k", func(*mvcc.Version) (*proto.Write, error) {
		if redecided == 0 {
			return nil, refusal
		}
		return put("v"), nil
	})
	if err != nil || r.After == nil || confirmed != 1 || redecided != 1 {
		t.Errorf("%+v, %v; confirmed %d times, decided again %d times", r, err, confirmed, redecided)
	}
}

// TestStaleRightOfNothing: what was decided before the loop is decided again also if nothing is
// written, and the object has changed as well by the time this node is known to be current.
func TestStaleRightOfNothing(t *testing.T) {
	m := memstore.New()
	defer func() { must.Close(t, m) }()
	forbidden := errors.New("you may not do that any more")
	u := storage.Updater{
		Store: m,
		Confirm: func(ctx context.Context) error {
			w := put("changed meanwhile")
			w.Table, w.Key = "t", "k"
			_, err := m.Propose(ctx, w)
			return err
		},
		Caller: caller{retried: func() {}, stale: func() bool { return true }, changed: func() error { return forbidden }},
	}
	r, err := u.GuaranteedUpdate(t.Context(), "t", "k", func(*mvcc.Version) (*proto.Write, error) { return nil, nil })
	if !errors.Is(err, forbidden) {
		t.Errorf("%+v, %v", r, err)
	}
}

// TestLimitExceeded: a limit is no lost race. The caller is told at once which it is.
func TestLimitExceeded(t *testing.T) {
	m := memstore.New()
	defer func() { must.Close(t, m) }()
	charged := func() (*proto.Write, error) {
		w := put("v")
		w.Key, w.EnforceLimits = "ns/k", true
		w.Usage = &proto.Usage{Amounts: []*proto.Amount{{Name: "pods", Value: 3}}}
		return w, nil
	}
	w := put("q")
	w.Table, w.Key = "quotas", "ns/q"
	w.Limits = []*proto.Limit{{Bounds: []*proto.Bound{{Name: "pods", Max: 2}}}}
	if _, err := m.Propose(t.Context(), w); err != nil {
		t.Fatal(err)
	}
	u := storage.Updater{Store: m, Caller: caller{retried: func() { t.Error("it is tried again") }}}
	_, err := u.GuaranteedUpdate(t.Context(), "t", "ns/k", func(*mvcc.Version) (*proto.Write, error) { return charged() })
	var e *storeerrors.LimitExceededError
	const want = "t ns/k would exceed the limit of quotas ns/q: pods: 3 more on top of 0, at most 2"
	if !errors.As(err, &e) || e.Error() != want {
		t.Error(err)
	}
	if v, err := storage.Current(m, "t", "ns/k"); v != nil || err != nil {
		t.Errorf("written: %v, %v", v, err)
	}
}
