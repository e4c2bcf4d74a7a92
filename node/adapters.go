package node

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/quorate/quorate/apiserver"
	"github.com/quorate/quorate/apiserver/objects/storage"
	"github.com/quorate/quorate/apiserver/observe/metrics"
	"github.com/quorate/quorate/apiserver/types/kinds"
	"github.com/quorate/quorate/consistency"
	"github.com/quorate/quorate/internal/slots"
	"github.com/quorate/quorate/membership"
	"github.com/quorate/quorate/proto"
	"github.com/quorate/quorate/raftstore"
	"github.com/quorate/quorate/raftstore/mvcc"
)

// The packages meet here: each declares the interface that it needs, and these
// small types give it the store.

// timedStore is the store as package apiserver wants it. It times the writes.
type timedStore struct {
	apiserver.Store
	m *metrics.Metrics
}

func (s timedStore) Propose(ctx context.Context, w *proto.Write) (mvcc.Result, error) {
	over := slots.Replicating(ctx)
	began := time.Now()
	r, err := s.Store.Propose(ctx, w)
	over(err == nil && r.Outcome == proto.Outcome_OUTCOME_APPLIED)
	op := "update"
	switch {
	case w.Op == proto.Op_OP_DELETE:
		op = "delete"
	case w.Condition == proto.Condition_CONDITION_ABSENT:
		op = "create"
	}
	resource, _ := kinds.OfTable(w.Table)
	s.m.StoreOperation(op, resource.Group, resource.Resource, time.Since(began))
	return r, err
}

// reads carries out read plans and counts them by consistency.
type reads struct {
	*consistency.Reader
	store *raftstore.Store
	m     *metrics.Metrics
}

func (n *Node) reads() reads { return reads{n.reader, n.store, n.metrics} }

func (r reads) Await(ctx context.Context, p consistency.Plan) (proto.Revision, error) {
	over := slots.Replicating(ctx)
	at, err := r.Reader.Await(ctx, p)
	over(false)
	if err != nil {
		return at, err
	}
	staleness, behind := time.Duration(0), uint64(0)
	if p.Mode == consistency.Any {
		staleness, behind = r.store.Staleness(), r.store.Behind()
	}
	r.m.Read(consistencyLabels[p.Mode], r.store.Role(), staleness, behind)
	return at, nil
}

// confirm makes sure that the local state has everything that was acknowledged before the call.
func (r reads) confirm(ctx context.Context) error {
	_, err := r.Await(ctx, consistency.Plan{Mode: consistency.MostRecent})
	return err
}

var consistencyLabels = map[consistency.Mode]string{
	consistency.MostRecent: "most-recent", consistency.Any: "any",
	consistency.NotOlderThan: "not-older-than", consistency.Exact: "exact",
}

// consensus is the store as package membership wants it.
type consensus struct {
	*raftstore.Store
	identity *membership.Identity
}

func (c consensus) Members() membership.Configuration {
	index, servers := c.Store.Members()
	out := membership.Configuration{Index: index}
	for _, s := range servers {
		out.Servers = append(out.Servers, membership.Server(s))
	}
	return out
}

func (c consensus) Committed() membership.Configuration {
	servers, _ := c.Store.Committed()
	var out membership.Configuration
	for _, s := range servers {
		out.Servers = append(out.Servers, membership.Server(s))
	}
	return out
}

func (c consensus) HasState() (bool, error) { return c.Store.HasState(), nil }

func (c consensus) Bootstrap(servers []membership.Server, cluster proto.ClusterID) error {
	in := make([]raftstore.Server, len(servers))
	for i, s := range servers {
		in[i] = raftstore.Server(s)
	}
	return c.Store.Bootstrap(in, cluster)
}

func (c consensus) AddNonvoter(ctx context.Context, id proto.NodeID, addr string, prev uint64) error {
	return membershipError(c.Store.AddNonvoter(ctx, id, addr, prev))
}

func (c consensus) AddVoter(ctx context.Context, id proto.NodeID, addr string, prev uint64) error {
	return membershipError(c.Store.AddVoter(ctx, id, addr, prev))
}

func (c consensus) DemoteVoter(ctx context.Context, id proto.NodeID, prev uint64) error {
	return membershipError(c.Store.DemoteVoter(ctx, id, prev))
}

func (c consensus) RemoveServer(ctx context.Context, id proto.NodeID, prev uint64) error {
	return membershipError(c.Store.RemoveServer(ctx, id, prev))
}

func (c consensus) TransferLeadership(ctx context.Context, to proto.NodeID) error {
	return membershipError(c.Store.TransferLeadership(ctx, to))
}

func (c consensus) RaiseFeature(ctx context.Context, version uint32, prev uint64) error {
	return membershipError(c.Store.RaiseFeature(ctx, version, prev))
}

func (c consensus) StorageLimit() int64 {
	_, limit := c.Store.Storage()
	return limit
}

func (c consensus) LimitStorage(ctx context.Context, bytes int64, prev uint64) error {
	return membershipError(c.Store.LimitStorage(ctx, bytes, prev))
}

func (c consensus) Status(context.Context) *proto.NodeStatus { return c.Store.Status() }

// membershipError gives the store's sentinels the names that membership knows.
func membershipError(err error) error {
	switch {
	case errors.Is(err, raftstore.ErrNotLeader):
		return errors.Join(membership.ErrNotLeader, err)
	case errors.Is(err, raftstore.ErrConfigurationChanged):
		return errors.Join(membership.ErrConflict, err)
	case errors.Is(err, raftstore.ErrUnknownOutcome):
		return fmt.Errorf("%w: %w", membership.ErrUnknownOutcome, err)
	}
	return err
}

// membershipKV is the store as membership's replicated tables.
type membershipKV struct{ *raftstore.Store }

func (k membershipKV) Put(ctx context.Context, table, key string, value []byte, ifAbsent bool) error {
	w := &proto.Write{Table: table, Key: key, Op: proto.Op_OP_PUT, Value: value}
	if ifAbsent {
		w.Condition = proto.Condition_CONDITION_ABSENT
	}
	return k.write(ctx, w)
}

// write proposes a change that roles may have decided, and decides again when they have changed at the same time.
func (k membershipKV) write(ctx context.Context, change *proto.Write) error {
	for range storage.MaxRulesChanged {
		w := &proto.Write{Table: change.Table, Key: change.Key, Op: change.Op, Value: change.Value, Condition: change.Condition}
		r, err := k.Propose(ctx, rolesDecided(ctx, w))
		switch {
		case err != nil:
			return smallTableError(err)
		case r.Outcome == proto.Outcome_OUTCOME_EXISTS:
			return fmt.Errorf("%s %s: %w", w.Table, w.Key, membership.ErrExists)
		case r.Outcome != proto.Outcome_OUTCOME_RULES_CHANGED:
			return nil
		}
		if ctx, err = decideAgain(ctx); err != nil {
			return err
		}
	}
	return fmt.Errorf("%w: roles or bindings change all the time, and nothing was done: try again", membership.ErrConflict)
}

func (k membershipKV) Get(table, key string) ([]byte, bool) {
	state := k.State()
	t := state.Table(table)
	if t == nil {
		return nil, false
	}
	v, err := t.Get(key, state.Applied())
	if err != nil || v == nil {
		return nil, false
	}
	return v.Value(), true
}

func (k membershipKV) Delete(ctx context.Context, table, key string) error {
	return k.write(ctx, &proto.Write{Table: table, Key: key, Op: proto.Op_OP_DELETE})
}

// smallTableError gives the store's sentinels the names that membership knows. What the
// store says beside it, such as keys, is not for operators.
func smallTableError(err error) error {
	if errors.Is(err, raftstore.ErrNoLeader) {
		return membership.ErrNoLeader
	}
	if errors.Is(err, raftstore.ErrUnknownOutcome) {
		return membership.ErrUnknownOutcome
	}
	return err
}

func (k membershipKV) List(table string) (map[string][]byte, error) {
	return listTable(k.State(), table)
}

func listTable(state *mvcc.State, table string) (map[string][]byte, error) {
	out := map[string][]byte{}
	t := state.Table(table)
	if t == nil {
		return out, nil
	}
	page, err := t.Range(mvcc.Query{At: state.Applied()})
	if err != nil {
		return nil, fmt.Errorf("list %s: %w", table, err)
	}
	for _, v := range page.Versions {
		out[v.Key] = v.Value()
	}
	return out, nil
}

// Changes does not read what has changed: each wake-up has the table listed.
func (k membershipKV) Changes(table string) (<-chan struct{}, func(), error) {
	w, err := k.Watch(table, k.State().Applied(), mvcc.Interest{})
	if err != nil {
		return nil, nil, fmt.Errorf("watch %s: %w", table, err)
	}
	return w.Wake(), w.Close, nil
}
