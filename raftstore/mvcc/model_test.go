package mvcc

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"sort"
	"strings"
	"testing"

	"github.com/quorate/quorate/internal/must"
	"github.com/quorate/quorate/proto"
)

// The model keeps every version that can be read in one list per table and finds
// everything by searching it.
type model struct {
	applied, floor proto.Revision
	tables         map[string][]*entry
	requests       map[[16]byte]proto.Revision
	storage        int64 // what live keys may take; 0: not bounded
}

type entry struct {
	key         string
	rev, create proto.Revision
	deleted     bool
	body        string // the value around the revision's digits is <body:rev>
	uid         string
	flags       uint32
	usage       *proto.Usage
	limits      []*proto.Limit
}

func (e *entry) value() []byte { return fmt.Appendf(nil, "<%s:%d>", e.body, e.rev) }

func newModel() *model {
	return &model{tables: map[string][]*entry{}, requests: map[[16]byte]proto.Revision{}}
}

// at is the newest version of key at a revision, tombstones included.
func (m *model) at(table, key string, rev proto.Revision) (found *entry) {
	for _, e := range m.tables[table] {
		if e.key == key && e.rev <= rev {
			found = e
		}
	}
	return found
}

func (m *model) live(table, key string, rev proto.Revision) *entry {
	if e := m.at(table, key, rev); e != nil && !e.deleted {
		return e
	}
	return nil
}

// list returns the live entries in key order.
func (m *model) list(table string, rev proto.Revision) (out []*entry) {
	keys := map[string]bool{}
	for _, e := range m.tables[table] {
		keys[e.key] = true
	}
	for key := range keys {
		if e := m.live(table, key, rev); e != nil {
			out = append(out, e)
		}
	}
	sort.Slice(out, func(i, j int) bool { return out[i].key < out[j].key })
	return out
}

func (m *model) events(table string, after, upTo proto.Revision) (out []*entry) {
	for _, e := range m.tables[table] {
		if e.rev > after && e.rev <= upTo {
			out = append(out, e)
		}
	}
	return out
}

// write returns the outcome and the revision that the result must carry.
func (m *model) write(index proto.Revision, w *proto.Write, body string) (proto.Outcome, proto.Revision) {
	var id [16]byte
	copy(id[:], w.RequestId)
	if rev, ok := m.requests[id]; ok {
		return proto.Outcome_OUTCOME_DUPLICATE, rev
	}
	if w.Since != 0 && proto.Revision(w.Since) < m.floor {
		return proto.Outcome_OUTCOME_REQUEST_ID_EXPIRED, 0
	}
	if w.Term > 1 { // the test's entries are of term 1
		return proto.Outcome_OUTCOME_TERM_MISMATCH, 0
	}
	if m.rulesChanged(w, index) {
		return proto.Outcome_OUTCOME_RULES_CHANGED, 0
	}
	live := m.live(w.Table, w.Key, index)
	var liveRev proto.Revision
	if live != nil {
		liveRev = live.rev
	}
	if w.Guard != nil {
		switch g := m.live(w.Guard.Table, w.Guard.Key, index); {
		case g == nil:
			return proto.Outcome_OUTCOME_GUARD_ABSENT, liveRev
		case g.flags&proto.FlagTerminating != 0:
			return proto.Outcome_OUTCOME_GUARD_TERMINATING, liveRev
		}
	}
	switch {
	case live == nil && (w.Op == proto.Op_OP_DELETE || w.ExpectUid != "" ||
		w.Condition == proto.Condition_CONDITION_REVISION || w.Condition == proto.Condition_CONDITION_EXISTS):
		return proto.Outcome_OUTCOME_NOT_FOUND, 0
	case live != nil && w.Condition == proto.Condition_CONDITION_ABSENT:
		return proto.Outcome_OUTCOME_EXISTS, liveRev
	case w.Condition == proto.Condition_CONDITION_REVISION && uint64(liveRev) != w.ExpectRevision:
		return proto.Outcome_OUTCOME_REVISION_MISMATCH, liveRev
	case w.ExpectUid != "" && live.uid != w.ExpectUid:
		return proto.Outcome_OUTCOME_UID_MISMATCH, liveRev
	}
	e := &entry{key: w.Key, rev: index, create: index, deleted: w.Op == proto.Op_OP_DELETE, body: body, uid: w.Uid, flags: w.Flags}
	if !e.deleted {
		e.usage, e.limits = w.Usage, w.Limits
		if w.EnforceLimits && m.exceeds(w.Table, e, live) {
			return proto.Outcome_OUTCOME_LIMIT_EXCEEDED, liveRev
		}
		if m.full(w.Table, e, live) {
			return proto.Outcome_OUTCOME_NO_SPACE, liveRev
		}
	}
	if live != nil {
		e.create = live.create
	}
	if e.deleted && len(w.Value) == 0 {
		e.body, e.uid, e.flags = live.body, live.uid, live.flags
	}
	m.tables[w.Table] = append(m.tables[w.Table], e)
	if id != ([16]byte{}) {
		m.requests[id] = index
	}
	return proto.Outcome_OUTCOME_APPLIED, index
}

// meets and uses say what an entry of a table uses of a bound of a limit.
// takes is what an entry counts for in the storage limit.
func (e *entry) takes() int64 {
	if e == nil || e.deleted {
		return 0
	}
	return int64(384 + len(e.key) + len(e.value()))
}

// stored is what all live entries take.
func (m *model) stored() (sum int64) {
	for table := range m.tables {
		for _, key := range modelKeys {
			sum += m.live(table, key, proto.Revision(math.MaxInt64)).takes()
		}
	}
	return sum
}

// needs is what live entries in a namespace take that the second spare part is for.
func (m *model) needs(namespace string) (sum int64) {
	for table := range m.tables {
		for _, key := range modelKeys {
			if e := m.live(table, key, proto.Revision(math.MaxInt64)); e != nil && namespaceOf(key) == namespace &&
				(e.flags&proto.FlagTerminating != 0 || table == proto.TableLeases) {
				sum += e.takes()
			}
		}
	}
	return sum
}

// full reports whether there is no room for an entry of a table in place of the live one.
func (m *model) full(table string, e, live *entry) bool {
	grows, terminating := e.takes()-live.takes(), e.flags&proto.FlagTerminating != 0
	most, part := m.storage, m.storage/16
	if live != nil && grows <= 1024 {
		if terminating && live.flags&proto.FlagTerminating == 0 {
			return false
		}
		most += part
		if (terminating || table == proto.TableLeases) && m.needs(namespaceOf(e.key))+grows <= part/8 {
			most += part
		}
	}
	return m.storage > 0 && grows > 0 && m.stored()+grows > most
}

func meets(e *entry, l *proto.Limit) bool {
	for _, r := range l.Requirements {
		has, in, out := false, false, false
		for _, f := range slices.Concat(e.usage.GetFacts(), e.usage.GetMoreFacts()) {
			if f.Name == r.Name {
				has = true
				in = in || slices.Contains(r.Values, f.Value)
				out = out || !slices.Contains(r.Values, f.Value)
			}
		}
		if !map[proto.Operator]bool{
			proto.Operator_OPERATOR_IN: in, proto.Operator_OPERATOR_NOT_IN: !has || out,
			proto.Operator_OPERATOR_EXISTS: has, proto.Operator_OPERATOR_DOES_NOT_EXIST: !has,
		}[r.Operator] {
			return false
		}
	}
	return true
}

func uses(table string, e *entry, l *proto.Limit, b *proto.Bound) int64 {
	switch {
	case e == nil || !meets(e, l):
		return 0
	case b.Table != "":
		return map[bool]int64{true: 1}[b.Table == table]
	}
	for _, a := range e.usage.GetAmounts() {
		if a.Name == b.Name {
			return a.Value
		}
	}
	return 0
}

// used counts all keys of a namespace.
func (m *model) used(namespace string, l *proto.Limit, b *proto.Bound) (sum int64) {
	for table := range m.tables {
		for _, e := range m.list(table, 1<<62) {
			if strings.HasPrefix(e.key, namespace+"/") {
				sum += uses(table, e, l, b)
			}
		}
	}
	return sum
}

func (m *model) exceeds(table string, e, live *entry) bool {
	namespace, _, ok := strings.Cut(e.key, "/")
	if !ok {
		return false
	}
	for other := range m.tables {
		for _, q := range m.list(other, 1<<62) {
			if !strings.HasPrefix(q.key, namespace+"/") {
				continue
			}
			for _, l := range q.limits {
				for _, b := range l.Bounds {
					more := uses(table, e, l, b) - uses(table, live, l, b)
					if more > 0 && m.used(namespace, l, b)+more > b.Max {
						return true
					}
				}
			}
		}
	}
	return false
}

// rulesChanged looks at every version above what the write was decided at.
func (m *model) rulesChanged(w *proto.Write, index proto.Revision) bool {
	at := proto.Revision(w.DecidedAt)
	if at == 0 {
		return false
	}
	namespace, _, _ := strings.Cut(w.Key, "/")
	for table, list := range m.tables {
		for _, e := range list {
			for bit, r := range proto.Rules {
				of, _, slash := strings.Cut(e.key, "/")
				counts := r.Scope == proto.RuleOfCluster || r.Scope == proto.RuleOfName && e.key == namespace ||
					r.Scope == proto.RuleOfNamespace && slash && of == namespace && (e.deleted || e.flags&proto.FlagSameRule == 0)
				if e.rev > at && w.Rules>>bit&1 == 1 && r.Table == table && counts {
					return true
				}
			}
			for _, r := range w.RuleRanges {
				if e.rev > at && r.Table == table && strings.HasPrefix(e.key, r.Prefix) {
					return true
				}
			}
		}
	}
	return at < m.floor || at >= index
}

// kept are the revisions that must be stored: those above the floor, and of each
// key the newest at or below it, unless that is a tombstone and the end.
func (m *model) kept() map[proto.Revision]bool {
	out := map[proto.Revision]bool{}
	for table, list := range m.tables {
		for _, e := range list {
			base := m.at(table, e.key, m.floor) == e
			last := m.at(table, e.key, 1<<62) == e
			if e.rev > m.floor || (base && !(e.deleted && last)) {
				out[e.rev] = true
			}
		}
	}
	return out
}

// compact returns what is no longer kept, in order.
func (m *model) compact(index, floor proto.Revision) (removed []proto.Revision) {
	before := m.kept()
	m.floor = max(m.floor, min(floor, index))
	after := m.kept()
	for rev := range before {
		if !after[rev] {
			removed = append(removed, rev)
		}
	}
	slices.Sort(removed)
	for table, list := range m.tables {
		m.tables[table] = slices.DeleteFunc(list, func(e *entry) bool { return !after[e.rev] })
	}
	for id, rev := range m.requests {
		if rev <= m.floor {
			delete(m.requests, id)
		}
	}
	return removed
}

// follower is a cursor that lags as it likes.
type follower struct {
	table string
	c     *Cursor
}

// driver runs one history against State, against a twin that was loaded from
// records on the way, and against the model. choose(n) is in [0,n).
type driver struct {
	t         testing.TB
	choose    func(n int) int
	m         *model
	s, twin   *State
	disk      map[proto.Revision]*proto.VersionRecord
	index     proto.RaftIndex
	ids       [][]byte
	followers []*follower
}

func newDriver(t testing.TB, choose func(int) int) *driver {
	return &driver{t: t, choose: choose, m: newModel(), s: New(), twin: New(), disk: map[proto.Revision]*proto.VersionRecord{}}
}

var (
	// Rules of a namespace, of a name and of the cluster.
	modelTables = []string{"serviceaccounts", "namespaces", "storageclasses.storage.k8s.io", proto.TableLeases}
	modelKeys   = []string{"a/1", "a/2", "a/3", "b/1", "b/2", "c", "a0", "a"}
)

// step does one operation and checks what it can.
func (d *driver) step() {
	d.index += proto.RaftIndex(1 + d.choose(8)/7) // now and then a gap
	switch n := d.choose(32); {
	case n < 22:
		d.write()
	case n < 24:
		d.compact()
	case n < 26:
		d.watch()
	case n < 27:
		d.reload()
	case n < 28:
		d.s.Advance(d.index, 1)
		d.twin.Advance(d.index, 1)
		d.publish()
	case n < 29:
		d.pack()
	case n < 30:
		d.limit()
	default:
		d.read()
	}
	d.follow()
}

// limit sets the storage limit, also below what is stored, or in a term that has ended.
func (d *driver) limit() {
	c := &proto.Cluster{StorageBytes: uint64(d.choose(3) * d.choose(16<<10)), Term: uint64(max(0, d.choose(6)-3))}
	entry, err := proto.Encode(proto.KindCluster, c)
	must.OK(d.t, err)
	d.apply(proto.KindCluster, entry)
	if c.Term <= 1 && c.StorageBytes > 0 {
		d.m.storage = int64(c.StorageBytes)
	}
	d.publish()
}

// pack has each state keep some of its values in another way, which nobody may see.
func (d *driver) pack() {
	for _, s := range []*State{d.s, d.twin} {
		old := proto.Revision(d.choose(int(d.m.applied) + 1))
		s.Pack(old, old-min(old, proto.Revision(d.choose(20))))
	}
}

func (d *driver) publish() {
	d.t.Helper()
	d.s.Publish()
	d.twin.Publish()
	d.m.applied = proto.Revision(d.index)
	if err := d.s.Check(); err != nil {
		d.t.Fatalf("at %d: %v", d.index, err)
	}
	if err := d.twin.Check(); err != nil {
		d.t.Fatalf("at %d, loaded from records: %v", d.index, err)
	}
	if got := d.s.Mark().StorageBytes; got != d.m.storage || d.s.Used() != d.m.stored() {
		d.t.Fatalf("at %d: %d bytes are used of %d, want %d of %d", d.index, d.s.Used(), got, d.m.stored(), d.m.storage)
	}
	if d.s.Mark() != d.twin.Mark() || d.s.Floor() != d.twin.Floor() {
		d.t.Fatalf("at %d: mark %+v, loaded from records %+v", d.index, d.s.Mark(), d.twin.Mark())
	}
	d.usages()
	if d.s.Applied() != d.m.applied || d.s.Floor() != d.m.floor {
		d.t.Fatalf("applied %d floor %d, want %d and %d", d.s.Applied(), d.s.Floor(), d.m.applied, d.m.floor)
	}
}

// apply gives an entry to both states and publishes.
func (d *driver) apply(kind proto.Kind, entry []byte) Result {
	d.t.Helper()
	r, err := d.s.Apply(d.index, 1, entry)
	if err != nil {
		d.t.Fatalf("apply %d: %v", d.index, err)
	}
	q, err := d.twin.Apply(d.index, 1, entry)
	if err != nil || q.Outcome != r.Outcome || q.Revision != r.Revision || q.Hash != r.Hash || !slices.Equal(q.Removed, r.Removed) {
		d.t.Fatalf("apply kind %d at %d: %+v, loaded from records %+v, %v", kind, d.index, r, q, err)
	}
	if r.Version != nil {
		d.disk[r.Version.Revision] = r.Version.Record(r.Table.Name())
	}
	for _, rev := range r.Removed {
		if d.disk[rev] == nil {
			d.t.Fatalf("removed %d, which was not stored", rev)
		}
		delete(d.disk, rev)
	}
	return r
}

func (d *driver) write() {
	w := &proto.Write{
		Table:     modelTables[d.choose(len(modelTables))],
		Key:       modelKeys[d.choose(len(modelKeys))],
		Op:        proto.Op_OP_PUT,
		Condition: proto.Condition(d.choose(4)),
		Uid:       fmt.Sprint("u", d.choose(2)),
	}
	if d.choose(3) == 0 {
		w.Op = proto.Op_OP_DELETE
	}
	if w.Condition == proto.Condition_CONDITION_REVISION {
		if live := d.m.live(w.Table, w.Key, d.m.applied); live != nil {
			w.ExpectRevision = uint64(live.rev)
		}
		w.ExpectRevision += uint64(d.choose(4) / 3)
	}
	if d.choose(5) == 0 {
		w.ExpectUid = "u0"
	}
	if d.choose(8) == 0 {
		w.Flags = proto.FlagTerminating
	}
	if d.choose(2) == 0 {
		w.Flags |= proto.FlagSameRule
	}
	if d.choose(4) == 0 {
		w.Guard = &proto.Guard{Table: "namespaces", Key: modelKeys[d.choose(2)]}
	}
	body := fmt.Sprint("v", d.index)
	if n := d.choose(4); n > 0 { // long enough to be packed
		body += strings.Repeat(fmt.Sprint(" what an object of ", n, " says of itself and all others do"), 4*n) + w.Uid
	}
	if w.Op == proto.Op_OP_PUT || d.choose(2) == 0 {
		w.Value, w.RevisionOffset = fmt.Appendf(nil, "<%s:>", body), uint32(len(body)+2)
	}
	switch n := d.choose(6); {
	case n == 0 && len(d.ids) > 0:
		w.RequestId = d.ids[d.choose(len(d.ids))]
	case n < 4:
		w.RequestId = binary.BigEndian.AppendUint64(make([]byte, 8), uint64(d.index))
		d.ids = append(d.ids, w.RequestId)
	}
	if d.choose(3) == 0 {
		w.Since = uint64(max(1, int(d.m.applied)-d.choose(30)))
	}
	w.Term = uint64(max(0, d.choose(12)-9)) // 0, 1 or 2, mostly 0
	d.rules(w)
	d.charges(w)
	must.OK(d.t, Validate(w))
	entry, err := proto.Encode(proto.KindWrite, w)
	must.OK(d.t, err)
	before := d.s.NoRoom(w) != nil
	r := d.apply(proto.KindWrite, entry)
	if after := r.Outcome == proto.Outcome_OUTCOME_NO_SPACE; after && !before || before && r.Outcome == proto.Outcome_OUTCOME_APPLIED {
		d.t.Fatalf("at %d: there was room before: %v, behind it: %+v", d.index, !before, r)
	}
	outcome, rev := d.m.write(proto.Revision(d.index), w, body)
	if r.Outcome != outcome || r.Revision != rev || (r.Version != nil) != (outcome == proto.Outcome_OUTCOME_APPLIED) {
		d.t.Fatalf("at %d: %v\n got %+v\nwant %v at %d", d.index, w, r, outcome, rev)
	}
	d.publish()
	if r.Version != nil {
		d.same("applied", r.Version, d.m.at(w.Table, w.Key, d.m.applied))
		if prev := r.Version.Prev(); !r.Version.Created() && (prev == nil || prev.Deleted) {
			d.t.Fatalf("at %d: an update without the version before it", d.index)
		}
	}
}

// rules has some writes be decided as of now or of some time ago, by rules of which some
// have changed.
func (d *driver) rules(w *proto.Write) {
	if d.choose(3) > 0 || d.m.applied == 0 {
		return
	}
	w.DecidedAt = uint64(max(1, int(d.m.applied)-d.choose(12)+d.choose(8)/7))
	for bit, r := range proto.Rules {
		if slices.Contains(modelTables, r.Table) && d.choose(3) == 0 {
			w.Rules |= 1 << bit
		}
	}
	if d.choose(3) == 0 {
		prefix := []string{"", "a", "a/", "a/2", "b/", "x"}[d.choose(6)]
		w.RuleRanges = append(w.RuleRanges, &proto.RuleRange{Table: modelTables[d.choose(len(modelTables))], Prefix: prefix})
	}
}

// charges has writes use something, and some set limits, also such that are passed.
func (d *driver) charges(w *proto.Write) {
	w.EnforceLimits = d.choose(3) > 0
	if d.choose(2) == 0 {
		w.Usage = &proto.Usage{}
		for _, name := range []string{"cpu", "memory"} {
			if d.choose(2) == 0 {
				w.Usage.Amounts = append(w.Usage.Amounts, &proto.Amount{Name: name, Value: int64(d.choose(4))})
			}
			if d.choose(3) == 0 {
				first := d.choose(2)
				w.Usage.Facts = append(w.Usage.Facts, &proto.Attribute{Name: name, Value: []string{"x", "y"}[first]})
				for _, value := range []string{"y", "z"}[first:] {
					if d.choose(3) == 0 {
						w.Usage.MoreFacts = append(w.Usage.MoreFacts, &proto.Attribute{Name: name, Value: value})
					}
				}
			}
		}
	}
	for strings.Contains(w.Key, "/") && len(w.Limits) < 3 && d.choose(5) == 0 {
		l := &proto.Limit{}
		for range d.choose(4) {
			b := &proto.Bound{Name: []string{"cpu", "memory", "disk"}[d.choose(3)], Max: int64(d.choose(8))}
			if d.choose(3) == 0 {
				b.Table = modelTables[d.choose(len(modelTables))]
			}
			l.Bounds = append(l.Bounds, b)
		}
		if d.choose(2) == 0 {
			r := &proto.Requirement{Name: []string{"cpu", "memory"}[d.choose(2)], Operator: proto.Operator(1 + d.choose(4))}
			r.Values = []string{"x", "y", "z"}[:d.choose(4)]
			l.Requirements = append(l.Requirements, r)
		}
		w.Limits = append(w.Limits, l)
	}
}

// usages compares what readers see of all limits.
func (d *driver) usages() {
	d.t.Helper()
	for _, table := range modelTables {
		for _, key := range modelKeys {
			var want []BoundUse
			if e := d.m.live(table, key, d.m.applied); e != nil {
				namespace, _, _ := strings.Cut(key, "/")
				for _, l := range e.limits {
					for _, b := range l.Bounds {
						want = append(want, BoundUse{b.Name, d.m.used(namespace, l, b), b.Max})
					}
				}
			}
			for _, s := range []*State{d.s, d.twin} {
				if got, at := s.Usage(table, key); at != d.m.applied || !slices.Equal(got, want) {
					d.t.Fatalf("at %d: usage of %s %s as of %d: %v, want %v", d.m.applied, table, key, at, got, want)
				}
			}
		}
	}
}

func (d *driver) compact() {
	floor := proto.Revision(d.choose(int(d.index) + 3))
	if d.choose(4) > 0 { // mostly a recent one, so that a window remains
		floor = max(d.m.floor, proto.Revision(d.index)-min(proto.Revision(d.index), proto.Revision(d.choose(60))))
	}
	entry, err := proto.Encode(proto.KindCompact, &proto.Compact{Floor: uint64(floor)})
	must.OK(d.t, err)
	r := d.apply(proto.KindCompact, entry)
	if want := d.m.compact(proto.Revision(d.index), floor); !slices.Equal(r.Removed, want) {
		d.t.Fatalf("compaction at %d to %d removed %v, want %v", d.index, floor, r.Removed, want)
	}
	d.publish()
}

// reload makes a new twin from what a disk would hold.
func (d *driver) reload() {
	want := d.m.kept()
	if len(want) != len(d.disk) {
		d.t.Fatalf("at %d: %d versions are stored, want %d", d.index, len(d.disk), len(want))
	}
	revs := make([]proto.Revision, 0, len(d.disk))
	for rev := range d.disk {
		revs = append(revs, rev)
	}
	slices.Sort(revs)
	d.twin = New()
	must.OK(d.t, d.twin.LoadState(d.s.StateRecord()))
	for _, rev := range revs {
		if err := d.twin.LoadVersion(d.disk[rev]); err != nil {
			d.t.Fatalf("at %d: %v", d.index, err)
		}
	}
	d.twin.Publish()
	d.index = proto.RaftIndex(d.m.applied)
	// Watches go on, on the state that was loaded.
	d.followers = slices.DeleteFunc(d.followers, func(f *follower) bool {
		t := d.twin.Table(f.table)
		if t == nil {
			return true
		}
		c, err := t.Watch(f.c.After())
		if errors.Is(err, ErrCompacted) && f.c.After() < d.m.floor {
			return true
		}
		if err != nil {
			d.t.Fatalf("resume after %d with floor %d: %v", f.c.After(), d.m.floor, err)
		}
		f.c = c
		return false
	})
	d.publish()
	sv, sb := d.s.History()
	tv, tb := d.twin.History()
	if sv != tv || sb != tb || d.s.tables.Load().Len() != d.twin.tables.Load().Len() {
		d.t.Fatalf("at %d: history of %d versions, %d bytes; loaded %d, %d", d.index, sv, sb, tv, tb)
	}
	for _, s := range []*State{d.s, d.twin} {
		for _, table := range modelTables {
			d.rangeAll(s, table, d.m.applied)
		}
	}
}

func (d *driver) state() *State {
	if d.choose(2) == 0 {
		return d.twin
	}
	return d.s
}

// read reads as of any revision, within and beyond what can be read.
func (d *driver) read() {
	s, table := d.state(), modelTables[d.choose(len(modelTables))]
	t := s.Table(table)
	if t == nil {
		if len(d.m.list(table, d.m.applied)) != 0 {
			d.t.Fatalf("table %s is lost", table)
		}
		return
	}
	at := proto.Revision(d.choose(int(d.m.applied) + 3))
	if d.choose(3) > 0 {
		at = d.m.floor + proto.Revision(d.choose(int(d.m.applied-d.m.floor)+1))
	}
	var want error
	switch {
	case at > d.m.applied:
		want = ErrFuture
	case at < d.m.floor:
		want = ErrCompacted
	}
	for _, key := range modelKeys {
		v, err := t.Get(key, at)
		if !errors.Is(err, want) {
			d.t.Fatalf("get %s at %d: %v, want %v", key, at, err, want)
		}
		if want == nil {
			d.same(fmt.Sprintf("get %s at %d", key, at), v, d.m.live(table, key, at))
		}
	}
	if _, err := t.Range(Query{At: at}); !errors.Is(err, want) {
		d.t.Fatalf("range at %d: %v, want %v", at, err, want)
	}
	if want == nil {
		d.rangeAll(s, table, at)
		d.pages(t, table, at)
	}
}

func (d *driver) rangeAll(s *State, table string, at proto.Revision) {
	want := d.m.list(table, at)
	t := s.Table(table)
	if t == nil {
		if len(want) > 0 {
			d.t.Fatalf("table %s is lost", table)
		}
		return
	}
	page, err := t.Range(Query{At: at})
	if err != nil || page.More || page.Remaining != -1 || len(page.Versions) != len(want) {
		d.t.Fatalf("range %s at %d: %+v, %v; want %d", table, at, page, err, len(want))
	}
	for i, e := range want {
		d.same("range", page.Versions[i], e)
	}
}

func (d *driver) pages(t *Table, table string, at proto.Revision) {
	prefix := []string{"", "a", "a/", "b/", "x"}[d.choose(5)]
	from := []string{"", "a/2", "a/2\x00", "b", "z"}[d.choose(5)]
	selective := d.choose(3) == 0
	var rest []*entry
	for _, e := range d.m.list(table, at) {
		if strings.HasPrefix(e.key, prefix) && e.key >= from {
			rest = append(rest, e)
		}
	}
	q := Query{Prefix: prefix, From: from, At: at, Limit: 1 + d.choose(3)}
	if selective {
		q.Match = func(v *Version) bool { return v.UID == "u0" }
	}
	for {
		var want []*entry
		for len(rest) > 0 && len(want) < q.Limit {
			if !selective || rest[0].uid == "u0" {
				want = append(want, rest[0])
			}
			rest = rest[1:]
		}
		page, err := t.Range(q)
		// A full page before the last live key has more behind it, match or not.
		if err != nil || len(page.Versions) != len(want) || page.More != (len(rest) > 0) {
			d.t.Fatalf("page %+v: %+v, %v; want %d, %d are left", q, page, err, len(want), len(rest))
		}
		for i, v := range page.Versions {
			d.same("page", v, want[i])
		}
		remaining := int64(len(rest))
		if selective {
			remaining = -1
		}
		if page.Remaining != remaining {
			d.t.Fatalf("page %+v: remaining %d, want %d", q, page.Remaining, remaining)
		}
		if !page.More {
			return
		}
		if page.Next != rest[0].key {
			d.t.Fatalf("page %+v: next %q, want %q", q, page.Next, rest[0].key)
		}
		q.From = page.Next
	}
}

func (d *driver) watch() {
	table := modelTables[d.choose(len(modelTables))]
	t := d.state().Table(table)
	if t == nil || len(d.followers) > 6 {
		return
	}
	after := proto.Revision(d.choose(int(d.m.applied) + 4))
	c, err := t.Watch(after)
	if (err == nil) != (after >= d.m.floor) || (err != nil && !errors.Is(err, ErrCompacted)) {
		d.t.Fatalf("watch after %d with floor %d: %v", after, d.m.floor, err)
	}
	if err == nil {
		d.followers = append(d.followers, &follower{table, c})
	}
}

// follow lets some followers read some of what they have missed.
func (d *driver) follow() {
	d.followers = slices.DeleteFunc(d.followers, func(f *follower) bool {
		if d.choose(4) > 0 {
			return false
		}
		after := f.c.After()
		upTo := d.m.applied
		if d.choose(4) == 0 {
			upTo -= min(upTo, proto.Revision(d.choose(5)))
		}
		buf := make([]*Version, 1+d.choose(9))
		n, err := f.c.Next(buf, upTo)
		if after < d.m.floor && after < upTo {
			if !errors.Is(err, ErrCompacted) || n != 0 {
				d.t.Fatalf("cursor at %d below the floor %d: %d, %v", after, d.m.floor, n, err)
			}
			return true
		}
		want := d.m.events(f.table, after, upTo)
		if old := f.c.table; old.gone.Load() && errors.Is(err, ErrCompacted) {
			// The table was dropped, and may have been made again.
			now := old.state.Table(f.table)
			if now == nil {
				if len(want) > 0 {
					d.t.Fatalf("the table is gone, and has %d events from %d to %d", len(want), after, upTo)
				}
				return true
			}
			if f.c, err = now.Watch(after); err == nil {
				n, err = f.c.Next(buf, upTo)
			}
		}
		if err != nil || n != min(len(buf), len(want)) {
			d.t.Fatalf("cursor at %d up to %d: %d events, %v; want %d of room %d", after, upTo, n, err, len(want), len(buf))
		}
		for i, v := range buf[:n] {
			d.same("event", v, want[i])
		}
		position := max(upTo, after)
		if n == len(buf) {
			position = want[n-1].rev
		}
		if f.c.After() != position {
			d.t.Fatalf("cursor read up to %d, says %d", position, f.c.After())
		}
		return d.choose(50) == 0
	})
}

func (d *driver) same(what string, v *Version, e *entry) {
	d.t.Helper()
	switch {
	case v == nil && e == nil:
	case v == nil || e == nil:
		d.t.Fatalf("%s: got %+v, want %+v", what, v, e)
	case v.Key != e.key || v.Revision != e.rev || v.CreateRevision != e.create || v.Deleted != e.deleted ||
		v.UID != e.uid || v.Flags != e.flags || !bytes.Equal(v.Value(), e.value()):
		d.t.Fatalf("%s: got %+v with %s, want %+v", what, v, v.Value(), e)
	}
}

func TestModel(t *testing.T) {
	histories, steps := 60, 700
	if testing.Short() {
		histories = 5
	}
	for seed := range histories {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			rng := rand.New(rand.NewPCG(uint64(seed), 1))
			d := newDriver(t, rng.IntN)
			for range steps {
				d.step()
			}
			d.reload()
		})
	}
}

// FuzzModel drives the same history from bytes.
func FuzzModel(f *testing.F) {
	for seed := range uint64(4) {
		rng := rand.New(rand.NewPCG(seed, 2))
		b := make([]byte, 600)
		for i := range b {
			b[i] = byte(rng.Uint32())
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) > 4096 {
			return
		}
		d := newDriver(t, func(n int) int {
			if len(b) == 0 {
				return 0
			}
			c := b[0]
			b = b[1:]
			return int(c) * n / 256
		})
		for len(b) > 0 {
			d.step()
		}
		d.reload()
	})
}
