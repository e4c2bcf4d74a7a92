package mvcc

import (
	"bytes"
	"fmt"
	"math"
	"sync"

	"github.com/quorate/quorate/proto"
)

// How values are kept. A version that has just been written has its value as it is: it goes to the
// disk, to watchers, and to who asks for it next. Pack replaces it later by what it has of its own
// beside another text:
//
//   - of a superseded version the next one of its key: what changed are a few bytes;
//   - of the newest one a template: an earlier value of its table that looks like it. Objects of one
//     kind and owner repeat each other's metadata, managed fields and defaults.
//
// To put a value together costs little more than to copy it, so that gets and lists pay next to
// nothing. (A compressor would save more of a single object, and cost each reader ten times as much.)
//
// Nothing replicated follows from how a value is kept: neither hashes nor sizes nor records. So
// nodes may differ, and what packs is nobody's writer: one goroutine that calls Pack, next to the
// writer and the readers. A reader that holds bytes keeps them: nothing is ever written to again.

const (
	// smallValue and largeValue bound what is packed: of less there is nothing to save, and of more
	// each read would have to make a copy.
	smallValue = 128
	largeValue = 1 << 20
	// largeTemplate bounds what a template takes.
	largeTemplate = 64 << 10
	// longestRun is how many versions in a row may be read by way of each other.
	longestRun = 16
	// tableTemplates are kept ready per table, mostTemplates in all tables.
	tableTemplates, mostTemplates = 4, 1024
	// freshTemplate is for how many values that fit none a table begins no new one.
	freshTemplate = 16
)

// packed is a value by what it has of its own.
type packed struct {
	next  *Version  // its base is the value of this one,
	like  *template // or this one's
	delta string
	// uid is where the value has the version's UID, plus one: the delta is of a value that has the
	// template's there. Every object has another one, and the version knows it. Zero: it has not.
	uid uint32
}

// template is a value that others are like. Who is packed by it keeps it alive.
type template struct {
	value []byte
	uid   string
	index *deltaIndex // nil if it is no longer ready
}

func (p *packed) base() []byte {
	if p.next != nil {
		return p.next.Value()
	}
	return p.like.value
}

func (p *packed) value(v *Version) []byte {
	if v.size == 0 { // and p is nil
		return nil
	}
	return p.append(make([]byte, 0, v.size), v)
}

func (p *packed) append(b []byte, v *Version) []byte {
	if v.size == 0 {
		return b
	}
	had := len(b)
	b, err := appendDelta(b, p.delta, p.base())
	if err != nil || len(b)-had != int(v.size) {
		panic(fmt.Sprintf("mvcc: %s at %d has %d bytes of %d: %v", v.Key, v.Revision, len(b)-had, v.size, err))
	}
	if p.uid > 0 {
		copy(b[had+int(p.uid)-1:], v.UID)
	}
	return b
}

// superseded is a version and the next one of its key.
type superseded struct{ old, next *Version }

// written is a version of a table.
type written struct {
	table *Table
	v     *Version
}

// unpacked is what waits for Pack, in the order of revisions.
type unpacked struct {
	mu    sync.Mutex
	old   queue[superseded]
	fresh queue[written]
	// live are those that the floor has passed, and that were live when they were looked at last.
	live queue[written]
	// packs is set by the first Pack. Where nobody packs, nothing waits that the floor has passed.
	packs bool
}

// drop lets go of what the floor has passed and nobody reads again: under fast writes Pack does not come to all of it,
// and what waits would keep it. Writer only.
func (u *unpacked) drop(floor proto.Revision) {
	u.mu.Lock()
	defer u.mu.Unlock()
	keep := func(e written) {
		if u.packs && e.v.packed.Load() == nil && e.live() {
			u.live.add(e)
		}
	}
	u.old.each(math.MaxInt, func(e superseded) bool { return e.next.Revision > floor }, func(superseded) {})
	had := u.live.len()
	passed := u.fresh.each(math.MaxInt, func(e written) bool { return e.v.Revision > floor }, keep)
	// Two for each that has come: at most half of them are not live any more, and no call takes long.
	if u.live.each(min(had, 2*passed), func(written) bool { return false }, keep); !u.packs {
		u.live = queue[written]{}
	}
}

// live reports whether a version is the newest of its key, and no tombstone. Writer only.
func (e written) live() bool {
	if e.v.Deleted || e.table.gone.Load() {
		return false
	}
	_, newest := e.table.newest(e.v.Key)
	return newest == e.v
}

// queue is a list that is taken from its beginning, in pieces: what was taken is let go.
type queue[E any] struct{ pieces [][]E }

const queuePiece = 512

func (q *queue[E]) add(e E) {
	if n := len(q.pieces); n == 0 || len(q.pieces[n-1]) == queuePiece {
		q.pieces = append(q.pieces, make([]E, 0, queuePiece))
	}
	last := &q.pieces[len(q.pieces)-1]
	*last = append(*last, e)
}

// take moves what belongs before the first that stays, and no more than room has, to out.
func (q *queue[E]) take(out []E, stays func(E) bool) []E {
	for len(q.pieces) > 0 {
		first := q.pieces[0]
		n := 0
		for n < len(first) && len(out) < cap(out) && !stays(first[n]) {
			out = append(out, first[n])
			n++
		}
		clear(first[:n])
		if q.pieces[0] = first[n:]; n < len(first) {
			break
		}
		q.pieces[0] = nil
		q.pieces = q.pieces[1:]
	}
	return out
}

// each takes what belongs before the first that stays, at most so many, calls f for each, and returns how many there were.
func (q *queue[E]) each(most int, stays func(E) bool, f func(E)) (n int) {
	room := make([]E, 0, queuePiece)
	for n < most {
		taken := q.take(room[:0:min(queuePiece, most-n)], stays)
		for _, e := range taken {
			f(e)
		}
		if n += len(taken); len(taken) == 0 {
			break
		}
	}
	return n
}

func (q *queue[E]) len() (n int) {
	for _, piece := range q.pieces {
		n += len(piece)
	}
	return n
}

// wait has Pack look at a version that is linked now. Writer only.
func (s *State) wait(t *Table, old, v *Version) {
	s.unpacked.mu.Lock()
	if old != nil {
		s.unpacked.old.add(superseded{old, v})
	}
	if v.Revision <= s.Floor() { // it is being loaded
		s.unpacked.live.add(written{t, v})
	} else {
		s.unpacked.fresh.add(written{t, v})
	}
	s.unpacked.mu.Unlock()
}

// packing is what Pack knows, of the goroutine that calls it.
type packing struct {
	index     deltaIndex
	room      []byte // for a delta
	text      []byte // for a value with the template's uid
	old       [packBatch]superseded
	fresh     [packBatch]written
	templates int
	counted   proto.Revision // State.Dropped when templates was counted last
}

// packBatch is how many versions are taken at once.
const packBatch = 256

// Pack packs some of what was superseded at or below old, and of what was written at or below
// fresh, and reports whether there is more. It is called by one goroutine at a time, which need not
// be the writer. fresh is at most old.
func (s *State) Pack(old, fresh proto.Revision) (more bool) {
	p := &s.packing
	s.unpacked.mu.Lock()
	s.unpacked.packs = true
	olds := s.unpacked.old.take(p.old[:0], func(e superseded) bool { return e.next.Revision > old })
	s.unpacked.mu.Unlock()
	floor := s.Floor()
	for _, e := range olds {
		if e.next.Revision > floor { // else nobody reads it again
			p.bySuccessor(e.old, e.next)
		}
	}
	clear(olds)
	if len(olds) == cap(olds) {
		return true // the older ones of a key first: see longestRun
	}
	s.unpacked.mu.Lock()
	young := func(e written) bool { return e.v.Revision > fresh }
	news := s.unpacked.fresh.take(s.unpacked.live.take(p.fresh[:0], young), young)
	s.unpacked.mu.Unlock()
	for _, e := range news {
		if e.v.packed.Load() == nil {
			p.byTemplate(e.table, e.v)
		}
	}
	clear(news)
	return len(news) == cap(news)
}

// bySuccessor packs a superseded version.
func (p *packing) bySuccessor(v, next *Version) {
	n := int(v.size)
	if n < smallValue || n > largeValue || next.size > largeValue || int(v.run)+1 >= longestRun {
		return
	}
	p.index.reset(next.Value())
	most := n * 3 / 4
	if was := v.packed.Load(); was != nil {
		most = len(was.delta) / 2
	}
	delta := p.index.append(p.room[:0], v.Value(), most)
	p.index.base = nil
	if delta == nil {
		return
	}
	p.keep(delta)
	next.run = v.run + 1
	v.pack(&packed{next: next, delta: string(delta)})
}

// keep keeps room for another delta, unless it is much.
func (p *packing) keep(delta []byte) {
	if p.room = delta; cap(delta) > largeTemplate {
		p.room = nil
	}
}

// byTemplate packs a version that is the newest of its key, or was when it came here.
func (p *packing) byTemplate(t *Table, v *Version) {
	n := int(v.size)
	if n < smallValue || n > largeTemplate || t.gone.Load() {
		return
	}
	value := v.Value()
	uid := bytes.Index(value, []byte(v.UID)) + 1
	if v.UID == "" {
		uid = 0
	}
	for i, like := range t.templates {
		text, at := value, 0
		if uid > 0 && len(like.uid) == len(v.UID) {
			p.text = append(p.text[:0], value...)
			copy(p.text[uid-1:], like.uid)
			text, at = p.text, uid
		}
		// What saves less than a tenth is not worth it.
		delta := like.index.append(p.room[:0], text, n-n/10-packedSize)
		if delta == nil {
			continue
		}
		p.keep(delta)
		copy(t.templates[1:i+1], t.templates[:i])
		t.templates[0], t.misses = like, 0
		v.pack(&packed{like: like, delta: string(delta), uid: uint32(at)})
		return
	}
	if t.misses++; len(t.templates) == tableTemplates && t.misses < freshTemplate {
		return
	}
	if len(t.templates) < tableTemplates {
		if p.templates >= mostTemplates && !p.recount(t.state) {
			return
		}
		p.templates++
		t.templates = append(t.templates, nil)
	} else {
		t.templates[tableTemplates-1].index = nil
	}
	made := &template{value: value, uid: v.UID, index: &deltaIndex{}}
	made.index.reset(value)
	copy(t.templates[1:], t.templates[:len(t.templates)-1])
	t.templates[0], t.misses = made, 0
}

// recount leaves out the templates of tables that were dropped, and reports whether there may be more. Templates are of the
// goroutine that packs alone.
func (p *packing) recount(s *State) bool {
	if dropped := s.Dropped(); dropped != p.counted {
		p.counted, p.templates = dropped, 0
		for _, t := range s.Tables() {
			p.templates += len(t.templates)
		}
	}
	return p.templates < mostTemplates
}

// packedSize is what a packed takes beside its delta.
const packedSize = 48

// pack changes how the value is kept. The packed one is there before the raw one goes.
func (v *Version) pack(p *packed) {
	v.packed.Store(p)
	v.raw.Store(nil)
}
