package objects

import (
	"errors"

	"github.com/quorate/quorate/apiserver/types/tree"
	storeerrors "github.com/quorate/quorate/raftstore/errors"
	"github.com/quorate/quorate/raftstore/mvcc"
)

// A version carries what its object uses (Strategy.Usage), for every writer, and a quota's
// the limits that it sets. The state machine adds up, at the place of the entry in the log: no
// two nodes can give away the same remainder, and a deletion gives back by being applied. A
// plugin decides before that, on what this node sees, and words both its own refusal and that
// of the state machine; without it nothing is refused.

// charge says in a change what its object uses and what it limits. kept is the object as it is
// stored.
func (r *Request) charge(ch *Change, kept tree.Object) {
	h := r.Strategy()
	if h.Usage != nil {
		ch.usage = h.Usage(kept, r.Store.Now())
	}
	if h.Limits != nil {
		ch.limits = h.Limits(kept)
	}
}

// Recharge writes an object again if its version is not charged as it would be now: a Pod is
// charged less once it should have ended. It changes nothing else, and asks no plugin.
func (o *Op) Recharge() error {
	_, err := o.GuaranteedUpdate(o.Key(), func(cur *mvcc.Version) (Change, error) {
		if cur == nil {
			return Change{None: true}, nil
		}
		_, obj, _, err := o.Editable(cur)
		if err != nil {
			return Change{}, err
		}
		return o.PutUnlessSame(obj, cur)
	})
	return err
}

// limited says that the entry is refused if it exceeds a limit: a plugin has decided that it
// must not.
func (d *decision) limited() bool { return d.Client && d.attributes.Limited() }

// overLimit is the refusal of a write that the state machine has refused for a limit, in the
// words of the plugin that wanted it limited. It is final: there was no room where the entry
// has its place in the log, whatever was free before and after.
func (d *decision) overLimit(err error) error {
	var exceeded *storeerrors.LimitExceededError
	if !errors.As(err, &exceeded) || !d.attributes.Limited() {
		return err
	}
	return d.attributes.Exceeded(exceeded.Exceeded)
}

// usageStale reports whether what a plugin has refused may have become possible: what others
// use changes by every write. A refusal is decided again once: what this node sees then is true.
func (d *decision) usageStale() bool {
	return d.refusedByPlugin && d.attributes.Limited() && d.Store.Storage.State().Applied() > d.DecidedAt
}
