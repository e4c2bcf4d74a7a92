package dense

import (
	"cmp"
	"container/heap"
	"errors"
	"fmt"
	"math"
	"net/http"
	"slices"
	"sort"
	"strings"
	"time"

	"github.com/quorate/quorate/test/judges/history"
)

// History is a history with dense revisions.
type History struct {
	*history.History
	// Log is what was there before, then the log. Log[i] has revision i+2.
	Log []Entry
	// Ops are the operations that say something, by their calls.
	Ops []Op
	// Silent counts the operations that say nothing.
	Silent int

	keys map[string][]int // indexes into Log, in order
	seen []sight
}

// Entry is a version of a key.
type Entry struct {
	Key string
	// Value of a deletion is what it deleted.
	Value    string
	Deleted  bool
	Revision uint64
	// Version counts the writes of the key since it was created; 0 of a deletion.
	Version uint64
	// Before is the index in Log of what was there before; -1 if nothing was.
	Before int

	writer int    // index into History.Ops, or -1
	real   uint64 // its resourceVersion
}

// Op is an operation that says something.
type Op struct {
	*history.Op
	// State is the revision of the state that it tells of; of a write, the one that it made,
	// or 0 if nobody knows whether it took effect and when.
	State uint64
	// Place is where it stands among the others: State, but for reads that may be older
	// than what was acknowledged.
	Place uint64
	// Call and Return are in half nanoseconds from 4 on. Whatever happened in one instant is
	// concurrent: virtual time stands still while many things happen.
	Call, Return int64
}

// sight is that a revision had come about at a time.
type sight struct {
	at  int64
	rev uint64
}

// Forever is the Return of what never returned.
const Forever = math.MaxInt64

// ErrNoLog says that the log of a run is not known.
var ErrNoLog = errors.New("the history has no log")

// New returns a history with dense revisions.
func New(h *history.History) (*History, error) {
	if len(h.Log) == 0 {
		return nil, ErrNoLog
	}
	d := &History{History: h, keys: map[string][]int{}}
	if err := d.readLog(); err != nil {
		return nil, err
	}
	d.readSights()
	d.readOps()
	d.deletes()
	d.places()
	return d, nil
}

// Revision is the dense revision of a resourceVersion.
func (d *History) Revision(resourceVersion uint64) uint64 {
	return 1 + uint64(sort.Search(len(d.Log), func(i int) bool { return d.Log[i].real > resourceVersion }))
}

// Base is how many objects were there before the log.
func (d *History) Base() int { return len(d.Log) - len(d.History.Log) }

// At is the version of a key at a revision; nil if it was not there.
func (d *History) At(key string, rev uint64) *Entry {
	versions := d.keys[key]
	n := sort.Search(len(versions), func(i int) bool { return d.Log[versions[i]].Revision > rev })
	if n == 0 || d.Log[versions[n-1]].Deleted {
		return nil
	}
	return &d.Log[versions[n-1]]
}

// Wrote is the version that is at a resourceVersion; nil if there is none.
func (d *History) Wrote(resourceVersion uint64) *Entry {
	n := d.Revision(resourceVersion)
	if n < 2 || d.Log[n-2].real != resourceVersion {
		return nil
	}
	return &d.Log[n-2]
}

// Live counts the keys with a prefix, behind one, that were there at a revision.
func (d *History) Live(prefix, after string, rev uint64) (n int) {
	for key := range d.keys {
		if strings.HasPrefix(key, prefix) && key > after && d.At(key, rev) != nil {
			n++
		}
	}
	return n
}

// Keys are all keys, sorted.
func (d *History) Keys() []string {
	var keys []string
	for key := range d.keys {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	return keys
}

func (d *History) readLog() error {
	last := d.LogFrom
	for _, it := range d.base() {
		d.append(history.Entry{Item: it})
	}
	for _, e := range d.History.Log {
		if e.Revision <= last {
			return fmt.Errorf("the log has %s@%d behind %d", e.Key, e.Revision, last)
		}
		last = e.Revision
		d.append(e)
	}
	return nil
}

// base is what was there before the log, as far as anybody saw it.
func (d *History) base() []history.Item {
	items := map[string]history.Item{}
	see := func(it history.Item) {
		if it.Revision > 0 && it.Revision <= d.LogFrom && items[it.Key].Revision < it.Revision {
			items[it.Key] = it
		}
	}
	for i := range d.History.Ops {
		for _, it := range d.History.Ops[i].Items {
			see(it)
		}
	}
	for i := range d.Watches {
		for _, e := range d.Watches[i].Events {
			if e.Type == history.Added || e.Type == history.Modified {
				see(e.Item)
			}
		}
	}
	d.unseen(items)
	all := make([]history.Item, 0, len(items))
	for _, it := range items {
		all = append(all, it)
	}
	slices.SortFunc(all, func(a, b history.Item) int {
		return cmp.Or(cmp.Compare(a.Revision, b.Revision), cmp.Compare(a.Key, b.Key))
	})
	return all
}

// unseen adds objects that show only in what the log does to them: something that was not
// created there was there before. It shows by its deletion what it was, if at all.
func (d *History) unseen(items map[string]history.Item) {
	if d.LogFrom == 0 {
		return
	}
	creates := map[string]bool{}
	for i := range d.History.Ops {
		if o := &d.History.Ops[i]; o.Kind == history.Create {
			creates[o.Value] = true
		}
	}
	first := map[string]bool{}
	for _, e := range d.History.Log {
		if first[e.Key] {
			continue
		}
		first[e.Key] = true
		if _, ok := items[e.Key]; !ok && (e.Deleted || !creates[e.Value]) {
			items[e.Key] = history.Item{Key: e.Key, Value: d.deletedValue(e.Key)}
		}
	}
}

func (d *History) deletedValue(key string) string {
	for i := range d.Watches {
		for _, e := range d.Watches[i].Events {
			if e.Type == history.Deleted && e.Key == key {
				return e.Value
			}
		}
	}
	return ""
}

func (d *History) append(e history.Entry) {
	x := Entry{Key: e.Key, Value: e.Value, Deleted: e.Deleted, Revision: uint64(len(d.Log)) + 2, Before: -1, writer: -1, real: e.Revision}
	if versions := d.keys[e.Key]; len(versions) > 0 && !d.Log[versions[len(versions)-1]].Deleted {
		x.Before = versions[len(versions)-1]
	}
	switch {
	case e.Deleted && x.Before >= 0:
		x.Value = d.Log[x.Before].Value
	case e.Deleted:
	case x.Before >= 0:
		x.Version = d.Log[x.Before].Version + 1
	default:
		x.Version = 1
	}
	d.keys[e.Key] = append(d.keys[e.Key], len(d.Log))
	d.Log = append(d.Log, x)
}

// readSights collects what was seen when.
func (d *History) readSights() {
	see := func(at int64, resourceVersion uint64) {
		if resourceVersion > 0 {
			d.seen = append(d.seen, sight{at, d.Revision(resourceVersion)})
		}
	}
	for i := range d.History.Ops {
		o := &d.History.Ops[i]
		if o.Outcome != history.OK {
			continue
		}
		see(Returned(o.Return), o.Revision)
		for _, it := range o.Items {
			see(Returned(o.Return), it.Revision)
		}
	}
	for i := range d.Watches {
		for _, e := range d.Watches[i].Events {
			see(Returned(e.At), e.Revision)
		}
	}
	slices.SortFunc(d.seen, func(a, b sight) int { return cmp.Compare(a.at, b.at) })
	var newest uint64
	d.seen = slices.DeleteFunc(d.seen, func(s sight) bool {
		if s.rev <= newest {
			return true
		}
		newest = s.rev
		return false
	})
}

// Until is when a revision had come about at the latest.
func (d *History) Until(rev uint64) int64 {
	n := sort.Search(len(d.seen), func(i int) bool { return d.seen[i].rev >= rev })
	if n == len(d.seen) {
		return Forever
	}
	return d.seen[n].at
}

// before is the newest revision that somebody had seen before a time.
func (d *History) before(at int64) uint64 {
	n := sort.Search(len(d.seen), func(i int) bool { return d.seen[i].at >= at })
	if n == 0 {
		return 1
	}
	return d.seen[n-1].rev
}

// IsWrite reports whether an operation changes something if it can.
func IsWrite(k history.Kind) bool { return k != history.Get && k != history.List }

// IsDelete reports whether an operation deletes.
func IsDelete(k history.Kind) bool { return k == history.Delete || k == history.DeleteIf }

// Conditional reports whether an operation asks for a resourceVersion.
func Conditional(k history.Kind) bool { return k == history.UpdateIf || k == history.DeleteIf }

// Fresh reports whether a read must cover all that was acknowledged before.
func Fresh(o *history.Op) bool { return o.Mode == history.MostRecent }

// readOps takes the operations that say something.
func (d *History) readOps() {
	values := map[string]int{}
	for i, e := range d.Log {
		if !e.Deleted {
			values[e.Value] = i
		}
	}
	for i := range d.History.Ops {
		o := &d.History.Ops[i]
		x := Op{Op: o, Call: Called(o.Call), Return: Returned(o.Return)}
		switch {
		case !says(o):
			d.Silent++
			continue
		case !IsWrite(o.Kind) || o.Outcome == history.Refused:
		case o.Outcome == history.OK && o.Revision > 0:
			x.State = d.Revision(o.Revision)
			d.claim(o.Revision, i)
		case o.Outcome == history.Unknown:
			x.Return = Forever
			if at, ok := values[o.Value]; ok && !IsDelete(o.Kind) && d.Log[at].Key == o.Key {
				x.State = d.Log[at].Revision
				d.Log[at].writer = i
			}
		}
		d.Ops = append(d.Ops, x)
	}
	slices.SortStableFunc(d.Ops, func(a, b Op) int { return cmp.Compare(a.Call, b.Call) })
}

func (d *History) claim(resourceVersion uint64, i int) {
	if e := d.Wrote(resourceVersion); e != nil && e.Key == d.History.Ops[i].Key && e.writer < 0 {
		e.writer = i
	}
}

// says reports whether an operation says something of the state, or may have changed it.
func says(o *history.Op) bool {
	switch {
	case o.Outcome == history.OK:
		return true
	case o.Outcome == history.Unknown:
		return IsWrite(o.Kind)
	case o.Code == http.StatusNotFound:
		return o.Kind != history.Create && o.Kind != history.List
	case o.Code == http.StatusConflict:
		return o.Kind == history.Create || Conditional(o.Kind)
	}
	return false
}

// deletes gives the deletions that no answer names to the deletes that name none: first to
// those that were acknowledged, then to those that can have caused no other one.
func (d *History) deletes() {
	var acknowledged, conditional, others []*Op
	for i := range d.Ops {
		o := &d.Ops[i]
		switch {
		case !IsDelete(o.Kind) || o.State > 0 || o.Outcome == history.Refused:
		case o.Outcome == history.OK:
			acknowledged = append(acknowledged, o)
		case o.Kind == history.DeleteIf:
			conditional = append(conditional, o)
		default:
			others = append(others, o)
		}
	}
	slices.SortStableFunc(acknowledged, func(a, b *Op) int { return cmp.Compare(a.Return, b.Return) })
	for _, ops := range [][]*Op{acknowledged, conditional, others} {
		for _, o := range ops {
			d.giveDeletion(o)
		}
	}
}

func (d *History) giveDeletion(o *Op) {
	since := d.before(o.Call)
	for _, i := range d.keys[o.Key] {
		e := &d.Log[i]
		switch {
		case !e.Deleted || e.writer >= 0 || e.Revision <= since || d.Until(e.Revision) < o.Call:
		case o.Kind == history.DeleteIf && (e.Before < 0 || d.Log[e.Before].real != o.Precondition):
		default:
			e.writer, o.State = 0, e.Revision
			return
		}
	}
}

// returns are operations that have returned, by when.
type returns []*Op

func (r returns) Len() int           { return len(r) }
func (r returns) Less(i, j int) bool { return r[i].Return < r[j].Return }
func (r returns) Swap(i, j int)      { r[i], r[j] = r[j], r[i] }
func (r *returns) Push(x any)        { *r = append(*r, x.(*Op)) }
func (r *returns) Pop() any {
	old := *r
	x := old[len(old)-1]
	*r = old[:len(old)-1]
	return x
}

// places finds where every answer stands.
func (d *History) places() {
	base := uint64(d.Base()) + 1
	least := base
	var open returns
	for i := range d.Ops {
		o := &d.Ops[i]
		for len(open) > 0 && open[0].Return < o.Call {
			least = max(least, heap.Pop(&open).(*Op).Place)
		}
		least = max(least, d.before(o.Call))
		switch {
		case IsWrite(o.Kind) && o.Outcome != history.Refused:
			o.Place = o.State
		case o.Kind == history.List:
			o.State = d.Revision(o.Revision)
			o.Place = o.State
			if !Fresh(o.Op) {
				o.Place = max(least, o.State)
			}
		case o.Kind == history.Get && !Fresh(o.Op):
			o.State = d.when(o.Op, max(base, d.Revision(o.Asked)))
			o.Place = max(least, o.State)
		default:
			o.State = d.when(o.Op, least)
			o.Place = o.State
		}
		heap.Push(&open, o)
	}
}

// Least is the least revision that a consistent read may tell of when it is called then.
func (d *History) Least(call int64) uint64 {
	least := max(uint64(d.Base())+1, d.before(call))
	for i := range d.Ops {
		if o := &d.Ops[i]; o.Return < call {
			least = max(least, o.Place)
		}
	}
	return least
}

// Called is the call of something at an instant.
func Called(at time.Duration) int64 { return 2*int64(at) + 4 }

// Returned is the return of something at an instant.
func Returned(at time.Duration) int64 {
	if at >= math.MaxInt64/4 {
		return Forever
	}
	return 2*int64(at) + 5
}

// when is the least revision from one on at which an answer is true; that one if there is none.
func (d *History) when(o *history.Op, least uint64) uint64 {
	if d.true(o, least) {
		return least
	}
	for _, i := range d.keys[o.Key] {
		if rev := d.Log[i].Revision; rev > least && d.true(o, rev) {
			return rev
		}
	}
	return least
}

// true reports whether an answer about one key fits the state at a revision.
func (d *History) true(o *history.Op, rev uint64) bool {
	e := d.At(o.Key, rev)
	switch {
	case o.Kind == history.Get && len(o.Items) == 1:
		return e != nil && e.real == o.Items[0].Revision
	case o.Kind == history.Get, o.Code == http.StatusNotFound:
		return e == nil
	case o.Kind == history.Create:
		return e != nil
	}
	return e == nil || e.real != o.Precondition
}
