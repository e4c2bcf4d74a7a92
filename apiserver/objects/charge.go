package objects

import (
	"errors"

	"github.com/quorate/quorate/apiserver/kinds"
	"github.com/quorate/quorate/apiserver/storage"
	"github.com/quorate/quorate/apiserver/tree"
	"github.com/quorate/quorate/raftstore/mvcc"
)

// A version carries what its object uses (Strategy.Usage), for every writer, and a quota's
// the limits that it sets. The state machine adds up, at the place of the entry in the log: no
// two nodes can give away the same remainder, and a deletion gives back by being applied. A
// plugin decides before that, on what this node sees, and words both its own refusal and that
// of the state machine; without it nothing is refused.

// charge says in a change what its object uses and what it limits. kept is the object as it is
// stored.
func (o *Op) charge(ch *Change, kept tree.Object) {
	h := o.Strategy()
	if h.Usage != nil {
		ch.usage = h.Usage(kept, o.Store.Now())
	}
	if h.Limits != nil && o.Store.chargedAll(o.Info.ObjectNamespace) {
		ch.limits = h.Limits(kept)
	}
}

// chargedAll reports whether all objects of a namespace carry what they use, as far as this
// node knows. Before that a quota in it would count too little, so it gets no limits, and what
// it concerns is refused (status unknown) until the controller has written the objects again.
//
// It never becomes false again: from the entry on with which the cluster speaks of limits every
// version that is written carries it. A node that has applied that entry, and lags, sees more
// objects without, not fewer. One that has not says no.
func (s *Store) chargedAll(namespace string) bool {
	if _, ok := s.chargedIn.Load(namespace); ok {
		return true
	}
	if s.Storage.State().Mark().Feature < mvcc.FeatureOfLimits {
		return false
	}
	for _, res := range s.Kinds().All() {
		if h := s.Strategies[res.CodeName()]; h == nil || h.Usage == nil {
			continue
		}
		versions, err := s.Match(res.Table(), mvcc.Query{Prefix: namespace + "/", Match: func(v *mvcc.Version) bool { return !v.Charged() }})
		if err != nil {
			return false
		}
		for _, v := range versions {
			if s.uncharged(res, v) {
				return false
			}
		}
	}
	if s.chargedMany.Add(1)%maxChargedIn == 0 {
		s.chargedIn.Clear()
	}
	s.chargedIn.Store(namespace, struct{}{})
	return true
}

// maxChargedIn bounds the namespaces that are remembered: others come and go.
const maxChargedIn = 10_000

// uncharged reports whether an object uses something that its version does not say. What cannot
// be read is counted for nothing.
func (s *Store) uncharged(res *kinds.Resource, v *mvcc.Version) bool {
	namespace, name := SplitKey(res, v.Key)
	obj, err := s.System(s.Life, res, namespace, name, "get").Decode(v)
	return err == nil && s.Strategies[res.CodeName()].Usage(obj, s.Now()) != nil
}

// chargedSo reports whether a version is charged as a change would charge it. One that was
// written by a release before is not, and a Pod is charged less once it should have ended. As
// long as members run such a release nobody is charged, and that changes nothing.
func (o *Op) chargedSo(ch *Change, cur *mvcc.Version) bool {
	return cur.Charges(ch.usage, ch.limits) || o.Store.Storage.State().Mark().Feature < mvcc.FeatureOfLimits
}

// Recharge writes an object again if its version is not charged as it would be now. It changes
// nothing else, and asks no plugin.
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
func (o *Op) limited() bool { return o.Client && o.attributes.Limited() }

// overLimit is the refusal of a write that the state machine has refused for a limit, in the
// words of the plugin that wanted it limited. It is final: there was no room where the entry
// has its place in the log, whatever was free before and after.
func (o *Op) overLimit(err error) error {
	var exceeded *storage.LimitExceededError
	if !errors.As(err, &exceeded) || !o.attributes.Limited() {
		return err
	}
	return o.attributes.Exceeded(exceeded.Exceeded)
}

// usageStale reports whether what a plugin has refused may have become possible: what others
// use changes by every write. A refusal is decided again once: what this node sees then is true.
func (o *Op) usageStale() bool {
	return o.refusedByPlugin && o.attributes.Limited() && o.Store.Storage.State().Applied() > o.DecidedAt
}
