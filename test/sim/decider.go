package sim

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/quorate/quorate/apiserver/objects/storage"
	"github.com/quorate/quorate/proto"
	"github.com/quorate/quorate/raftstore/mvcc"
	"github.com/quorate/quorate/test/judges/history"
	"github.com/quorate/quorate/test/judges/wire"
)

// rule is something that decides on writes: a key, and how a write names it.
type rule struct {
	table string
	bits  uint32
	value string
}

// rules are one of those that every write may have, one of those that few have, and an object
// that a client's authentication follows from.
var rules = []rule{
	{"limitranges", proto.RuleLimitRanges, `{"apiVersion":"v1","kind":"LimitRange","metadata":{"name":"rule","namespace":"sim"}}`},
	{"sim/rules", 0, "a parameter"},
	{identityTable, 0, "an account"},
}

const (
	ruleKey = "sim/rule"
	// identityTable has an object that only counts by its uid: each change makes another one of it.
	identityTable = "sim/identities"
	decidedTable  = "sim/decided"
)

// at is the rule in a state, of revision 0 if it is not there.
func (r *rule) at(state *mvcc.State) (*mvcc.Version, error) {
	if t := state.Table(r.table); t != nil {
		if v, err := t.Get(ruleKey, state.Applied()); v != nil || err != nil {
			return v, err
		}
	}
	return &mvcc.Version{}, nil
}

// decider changes rules, or makes writes that are decided by them: what a node does for
// a client when it authorizes and admits, without what it decides.
type decider struct {
	c       *cluster
	rng     *rand.Rand
	id      int
	changes bool
	did     []history.Decision
}

func (d *decider) run(stop <-chan struct{}) {
	for {
		select {
		case <-stop:
			return
		default:
		}
		time.Sleep(time.Duration(d.rng.ExpFloat64() * float64(d.c.profile.think)))
		if s := d.c.anySeat(d.rng); s != nil && !s.isDrained() {
			d.step(s)
		}
	}
}

// step makes one write through a node.
func (d *decider) step(s *seat) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	i := d.rng.IntN(len(rules))
	r := &rules[i]
	op := history.Decision{Client: d.id, Node: s.name, Rule: r.table, Change: d.changes, Call: d.c.now(), Outcome: history.Unknown}
	// What it takes to decide: webhooks, for one.
	takes := time.Duration(d.rng.Int64N(int64(60 * time.Millisecond)))
	// No two clusters have a node of the same name. Their deciders draw the same numbers, and
	// one cluster may be made of another one's backup: its objects must be others.
	key, uid := fmt.Sprint("sim/", d.rng.IntN(20)), fmt.Sprint(s.name, "-", d.rng.Uint64())
	var done history.Decision // by the node, which may outlive the client's patience
	begun := op               // op is changed below, when the node may still be at it
	err := s.ask(ctx, func(ctx context.Context, n *node) {
		done = begun
		table := decidedTable
		if d.changes {
			table, key = r.table, ruleKey
		}
		decide := func(*mvcc.Version) (*proto.Write, error) {
			if d.changes {
				return &proto.Write{Op: proto.Op_OP_PUT, Value: []byte(r.value), Uid: uid}, nil
			}
			state := n.store.State()
			at := state.Applied()
			by, err := r.at(state)
			if err != nil {
				return nil, err
			}
			done.By = uint64(by.Revision)
			w := &proto.Write{
				Op: proto.Op_OP_PUT, Value: []byte(by.Revision.String()),
				DecidedAt: uint64(at), Rules: r.bits,
			}
			if r.bits == 0 {
				w.RuleRanges = []*proto.RuleRange{{Table: r.table, Prefix: ruleKey}}
			}
			if r.table == identityTable {
				w.RuleRanges[0].Uid = by.UID
			}
			return w, sleep(ctx, takes)
		}
		u := storage.Updater{Store: n.store, Confirm: func(context.Context) error { return nil }} // an error counts for nothing here
		if r, err := u.GuaranteedUpdate(ctx, table, key, decide); err == nil && r.After != nil {
			done.Outcome, done.Revision = history.OK, uint64(r.After.Revision)
		}
	})
	switch {
	case errors.Is(err, wire.ErrNotSent):
		return
	case err == nil:
		op = done
	}
	op.Return = d.c.now()
	if op.Outcome == history.Unknown {
		op.Return = history.Forever
	}
	d.did = append(d.did, op)
}
