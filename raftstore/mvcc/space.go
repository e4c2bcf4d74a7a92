package mvcc

import (
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/quorate/quorate/proto"
)

// The storage limit bounds what the live keys of all tables take together: that is what a
// snapshot has, and what every node keeps in memory. It is part of the state, so that a write
// is refused on all nodes or on none; history is bounded elsewhere, by the floor.
//
// A state that is full must be able to become smaller. So deletions and writes that do not grow
// their key are never refused for it, and small growth of a live key finds a spare part behind
// the limit: a finalizer that is taken off, a condition of a status. Whoever may update objects in one
// namespace can fill that. So three things do not depend on it:
//   - the mark of a deletion always fits: a key gets it once, and counts for several times as much;
//   - keys that are being deleted, and leases, have a second spare part,
//   - of which namespaces find something while such keys of theirs take less than a part of it
//     (spareOfNamespace): these may grow until then, and no namespace alone takes it from the others.

const (
	// keyBytes is what a key counts for beside its name and value: a Version, its item, its
	// labels, its places in tree and history. Together with stored and spare it is a rule that
	// all nodes follow: another one comes with another feature version.
	keyBytes = 384
	// smallGrowth is what a write may add to a key to find room behind the limit.
	smallGrowth = 1 << 10
	// spareOf is which part of the limit each spare part is, mostSpare the largest one.
	spareOf, mostSpare = 16, 64 << 20
	// spareOfNamespace is which part of the second spare part the keys may take that need it, in a namespace.
	spareOfNamespace = 8
	// longestRevision is how long a revision is that is put into a value.
	longestRevision = 20
	// mostStorage leaves room for sums.
	mostStorage = 1 << 62
)

// StorageBound is the name of the storage limit in proto.Exceeded, whose table and key are empty then.
const StorageBound = "storage"

// DiskBound is the name of the room that disks have in proto.Exceeded, whose key has the names of the nodes then.
const DiskBound = "disk"

// stored is what a live version counts for.
func (v *Version) stored() int64 { return storedBytes(v.Key, int64(v.size)) }

func storedBytes(key string, value int64) int64 { return keyBytes + int64(len(key)) + value }

// space is of the writer. Readers may look at used, and at namespaces under the lock, without which the writer
// looks, because nobody else changes it.
type space struct {
	used       atomic.Int64 // bytes
	mu         sync.Mutex
	namespaces map[string]*tally // those that have keys
}

// tally is what the keys of a namespace take.
type tally struct {
	keys  int64 // of the writer
	bytes atomic.Int64
	needs atomic.Int64 // of these, bytes of keys that the second spare part is for
}

// move counts a version of a key that is linked now; was is the one before it. A tombstone takes
// nothing, nor does nil.
func (p *space) move(t *Table, was, v *Version) {
	keys, bytes := int64(0), int64(0)
	if !v.Deleted {
		keys, bytes = 1, v.stored()
	}
	if was != nil && !was.Deleted {
		keys, bytes = keys-1, bytes-was.stored()
	}
	needs := needs(t.name, v) - needs(t.name, was)
	if keys == 0 && bytes == 0 && needs == 0 {
		return
	}
	t.live.Add(keys)
	t.liveBytes.Add(bytes)
	p.used.Add(bytes)
	namespace := namespaceOf(v.Key)
	n := p.namespaces[namespace]
	if n == nil {
		n = new(tally)
		p.mu.Lock()
		p.namespaces[strings.Clone(namespace)] = n // of its own: the key may go
		p.mu.Unlock()
	}
	n.bytes.Add(bytes)
	n.needs.Add(needs)
	if n.keys += keys; n.keys == 0 {
		p.mu.Lock()
		delete(p.namespaces, namespace)
		p.mu.Unlock()
	}
}

// spareBehind is each spare part behind a storage limit.
func spareBehind(limit int64) int64 { return min(limit/spareOf, mostSpare) }

// needsSpare reports whether the second spare part is for the keys of a table with such flags.
func needsSpare(table string, flags uint32) bool {
	return flags&proto.FlagTerminating != 0 || table == proto.TableLeases
}

// needs is what a version of a table takes, if the second spare part is for its key.
func needs(table string, v *Version) int64 {
	if v == nil || v.Deleted || !needsSpare(table, v.Flags) {
		return 0
	}
	return v.stored()
}

// fits reports whether so much is used that a write finds room that grows a key by so much.
func (p *space) fits(limit, part, grows int64, w *proto.Write, live *Version) bool {
	beyond := p.used.Load() + grows - limit
	switch {
	case grows <= 0 || beyond <= 0:
		return true
	case live == nil || grows > smallGrowth:
		return false
	case w.Flags&^live.Flags&proto.FlagTerminating != 0:
		return true
	case beyond <= part:
		return true
	}
	return beyond <= 2*part && needsSpare(w.Table, w.Flags) && p.needsOf(namespaceOf(w.Key))+grows <= part/spareOfNamespace
}

// needsOf is what the keys take, in a namespace, that the second spare part is for.
func (p *space) needsOf(namespace string) int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	if n := p.namespaces[namespace]; n != nil {
		return n.needs.Load()
	}
	return 0
}

// exceeds says by how much a write at a revision would exceed a limit, or nil. part is each spare part behind that, live the key's
// live version.
func (p *space) exceeds(limit, part int64, w *proto.Write, at proto.Revision, live *Version) *proto.Exceeded {
	if limit == 0 || w.Op != proto.Op_OP_PUT || strings.HasPrefix(w.Table, proto.ClusterTables) {
		return nil
	}
	size := int64(len(w.Value))
	if w.RevisionOffset != 0 && int(w.RevisionOffset) <= len(w.Value) { // as insertRevision
		size += int64(len(strconv.FormatUint(uint64(at), 10)))
	}
	grows := storedBytes(w.Key, size)
	if live != nil {
		grows -= live.stored()
	}
	if p.fits(limit, part, grows, w, live) {
		return nil
	}
	return &proto.Exceeded{Bounds: []*proto.ExceededBound{{Name: StorageBound, Requested: grows, Used: p.used.Load(), Max: limit}}}
}

// NoRoom says by how much a write would exceed the storage limit if it was applied to what readers see
// now, or nil if there is room for it.
func (s *State) NoRoom(w *proto.Write) *proto.Exceeded {
	limit := s.Mark().StorageBytes
	return s.NoRoomAbove(limit, spareBehind(limit), w)
}

// NoRoomAbove is NoRoom for another limit, with spare parts of another size. 0 is no limit.
func (s *State) NoRoomAbove(limit, part int64, w *proto.Write) *proto.Exceeded {
	m := s.Mark()
	if limit == 0 || w.Op != proto.Op_OP_PUT {
		return nil
	}
	if s.space.used.Load()+storedBytes(w.Key, int64(len(w.Value)))+longestRevision <= limit {
		return nil // whatever it replaces
	}
	var live *Version
	if t := s.Table(w.Table); t != nil {
		var err error
		if live, err = t.Get(w.Key, m.Applied); err != nil {
			return nil // the floor has passed the mark meanwhile: the entry will tell
		}
	}
	return s.space.exceeds(limit, part, w, m.Applied+1, live)
}

// Used is what all live keys take, in bytes.
func (s *State) Used() int64 { return s.space.used.Load() }

// Namespaces returns those that have live keys, and what these take in bytes. Keys in no namespace are
// those of "". The writer waits meanwhile if it makes or empties one: some 10 ms for 100,000.
func (s *State) Namespaces() map[string]int64 {
	s.space.mu.Lock()
	defer s.space.mu.Unlock()
	out := make(map[string]int64, len(s.space.namespaces))
	for namespace, n := range s.space.namespaces {
		out[namespace] = n.bytes.Load()
	}
	return out
}
