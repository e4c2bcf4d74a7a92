package check

import (
	"fmt"
	"hash/maphash"
	"maps"
	"math"
	"net/http"
	"slices"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/quorate/quorate/test/judges/history"
)

const (
	// judgeLimit bounds porcupine. A history that it cannot judge by then has failed.
	judgeLimit = 5 * time.Minute
	// storeLimit is the number of operations up to which porcupine also gets the
	// store as a whole: its cost grows with the square.
	storeLimit = 1500
)

// linearizable gives everything that must be linearizable to porcupine.
func (j *judge) linearizable() {
	byKey := map[string][]porcupine.Operation{}
	var all []porcupine.Operation
	for i := range j.h.Ops {
		op, ok := j.operation(i)
		if !ok {
			continue
		}
		all = append(all, op)
		if o := &j.h.Ops[i]; o.Kind != history.List {
			byKey[o.Key] = append(byKey[o.Key], op)
		}
	}
	for _, key := range slices.Sorted(maps.Keys(byKey)) {
		j.porcupine(LinearKey, "key "+key, j.keyModel(key), byKey[key])
	}
	if len(all) <= storeLimit {
		j.porcupine(LinearStore, "the store", j.storeModel(all), all)
	}
}

// input is what porcupine's models are asked: the operation, and the revision
// that it turned out to have got.
type input struct {
	*history.Op
	index int
	rev   uint64
	// ghost is a write that may never have happened.
	ghost bool
}

// operation translates an operation, unless it says nothing.
func (j *judge) operation(i int) (porcupine.Operation, bool) {
	o := &j.h.Ops[i]
	in := input{Op: o, index: i, rev: j.rev[i]}
	op := porcupine.Operation{ClientId: i, Call: int64(o.Call), Return: int64(o.Return)}
	switch {
	case isWrite(o.Kind) && o.Outcome != history.Refused:
		if !j.done[i] && (j.complete || o.Outcome == history.OK) {
			return op, false // it did not happen, or the log's check has said so
		}
		in.ghost = !j.done[i]
		if o.Outcome == history.Unknown {
			op.Return = int64(j.until(i))
		}
	case isWrite(o.Kind):
		if !telling(o) {
			return op, false
		}
	case !fresh(o):
		return op, false
	case o.Outcome == history.Refused && !(o.Kind == history.Get && o.Code == http.StatusNotFound):
		return op, false
	case o.Outcome == history.Unknown:
		return op, false
	}
	op.Input = in
	return op, true
}

// telling reports whether a refusal says something about the state.
func telling(o *history.Op) bool {
	switch o.Code {
	case http.StatusNotFound:
		return o.Kind != history.Create
	case http.StatusConflict:
		return o.Kind == history.Create || conditional(o.Kind)
	}
	return false
}

// until returns when an unknown write had happened at the latest: when somebody
// saw its revision, or a higher one.
func (j *judge) until(i int) time.Duration {
	if !j.done[i] {
		return history.Forever
	}
	n, _ := slices.BinarySearchFunc(j.seen, j.rev[i], func(s seen, rev uint64) int {
		if s.rev < rev {
			return -1
		}
		return 1
	})
	if n == len(j.seen) {
		return history.Forever
	}
	return max(j.seen[n].at, j.h.Ops[i].Call)
}

// object is a key's state in the models.
type object struct {
	rev   uint64 // of the newest version, also of a deletion
	live  bool
	value string
	// loose: rev is only a lower bound, after a write whose revision nobody knows.
	loose bool
	// any: the object was there before the log began, or it was not.
	any bool
}

// step is the store's specification for one key.
func step(s object, in input) (bool, object) {
	o := in.Op
	if isWrite(o.Kind) && o.Outcome != history.Refused {
		if in.ghost {
			// It had its effect if it could have one.
			if o.Kind == history.Create == s.live {
				return true, s
			}
			return true, object{rev: s.rev, live: !isDelete(o.Kind), value: o.Value, loose: true}
		}
		ok := in.rev > s.rev && (s.any || (o.Kind == history.Create) != s.live)
		if conditional(o.Kind) && o.Precondition != s.rev && !s.any && !s.loose {
			ok = false
		}
		return ok, object{rev: in.rev, live: !isDelete(o.Kind), value: o.Value}
	}
	if s.any {
		return true, s
	}
	switch {
	case o.Kind == history.Get && len(o.Items) == 1:
		it := o.Items[0]
		return s.live && s.value == it.Value && (s.rev == it.Revision || s.loose), s
	case o.Kind == history.Get, o.Code == http.StatusNotFound:
		return !s.live, s
	case o.Kind == history.Create:
		return s.live, s
	}
	return !s.live || s.loose || s.rev != o.Precondition, s
}

// first is a key's state before everything.
func (j *judge) first(key string) object {
	if b, ok := j.base[key]; ok {
		return object{rev: b.Revision, live: true, value: b.Value}
	}
	versions := j.keys[key]
	return object{any: len(versions) > 0 && j.log[versions[0]].unsure || len(versions) == 0 && j.h.LogFrom > 0}
}

func (j *judge) keyModel(key string) porcupine.Model {
	return porcupine.Model{
		Init: func() any { return j.first(key) },
		Step: func(state, in, _ any) (bool, any) {
			ok, next := step(state.(object), in.(input))
			return ok, next
		},
		Equal: func(a, b any) bool { return a == b },
		Hash:  func(s any) uint64 { return maphash.Comparable(seed, s.(object)) },
	}
}

var seed = maphash.MakeSeed()

// world is the state of the whole store. It is never changed, only replaced.
type world struct {
	rev  uint64
	last uint64 // revision of the newest write of the history
	keys map[string]object
	hash uint64
}

func (w *world) with(key string, rev uint64, o object) *world {
	next := &world{rev: max(w.rev, rev), last: max(w.last, rev), keys: maps.Clone(w.keys)}
	next.keys[key] = o
	next.hash = w.hash ^ maphash.Comparable(seed, entry{key, w.keys[key]}) ^ maphash.Comparable(seed, entry{key, o})
	return next
}

// at is the same state at a higher revision: one clock counts for all that is seen.
func (w *world) at(rev uint64) *world {
	if rev <= w.rev {
		return w
	}
	return &world{rev: rev, last: w.last, keys: w.keys, hash: w.hash}
}

type entry struct {
	key string
	object
}

// writeOrder is the order of the writes that a history tells of, by revision.
type writeOrder []uint64

func orderOf(ops []porcupine.Operation) (order writeOrder) {
	for i := range ops {
		if x := ops[i].Input.(input); isWrite(x.Kind) && x.Outcome != history.Refused && !x.ghost {
			order = append(order, x.rev)
		}
	}
	slices.Sort(order)
	return order
}

// next is the revision of the first write above another one; the greatest number if
// there is none.
func (w writeOrder) next(rev uint64) uint64 {
	n, _ := slices.BinarySearch(w, rev+1)
	if n == len(w) {
		return math.MaxUint64
	}
	return w[n]
}

// storeModel is the model of the whole store. No write may be overtaken by one of a higher
// revision, or by a list of one: an attempt with either cannot end well, because the write
// would have no place any more. It is given up there at once, not when the write returns:
// otherwise porcupine tries all subsets of the reads in between, which took up to 21 GB
// where many operations overlap.
func (j *judge) storeModel(ops []porcupine.Operation) porcupine.Model {
	order := orderOf(ops)
	return porcupine.Model{
		Init: func() any {
			w := &world{keys: map[string]object{}}
			for _, key := range j.names {
				w.keys[key] = j.first(key)
			}
			return w
		},
		Step: func(state, in, _ any) (bool, any) {
			w, x := state.(*world), in.(input)
			if x.Kind == history.List {
				return x.Revision < order.next(w.last) && w.lists(x.Op), w.at(x.Revision)
			}
			if isWrite(x.Kind) && x.Outcome != history.Refused && !x.ghost && (x.rev <= w.rev || x.rev != order.next(w.last)) {
				return false, w
			}
			before, ok := w.keys[x.Key]
			if !ok {
				before = j.first(x.Key)
			}
			ok, after := step(before, x)
			if !ok || after == before {
				return ok, w
			}
			return true, w.with(x.Key, x.rev, after)
		},
		Equal: func(a, b any) bool {
			x, y := a.(*world), b.(*world)
			return x == y || x.hash == y.hash && x.rev == y.rev && x.last == y.last && maps.Equal(x.keys, y.keys)
		},
		Hash: func(s any) uint64 { return s.(*world).hash },
	}
}

// lists reports whether a list shows this state.
func (w *world) lists(o *history.Op) bool {
	if o.Revision < w.rev || o.Limit > 0 || o.Prefix != "" || o.After != "" {
		return o.Revision >= w.rev // its content is compared with the log
	}
	live := 0
	for _, x := range w.keys {
		if x.live || x.any {
			live++
		}
	}
	if live < len(o.Items) {
		return false
	}
	for _, it := range o.Items {
		x := w.keys[it.Key]
		if x.any {
			continue
		}
		if !x.live || x.value != it.Value || x.rev != it.Revision && !x.loose {
			return false
		}
	}
	for key, x := range w.keys {
		if x.live && !slices.ContainsFunc(o.Items, func(it history.Item) bool { return it.Key == key }) {
			return false
		}
	}
	return true
}

// porcupine judges operations by a model.
func (j *judge) porcupine(check, what string, model porcupine.Model, ops []porcupine.Operation) {
	result, info := porcupine.CheckOperationsVerbose(model, ops, judgeLimit)
	if result == porcupine.Ok {
		return
	}
	x := Violation{Check: check, Watch: -1, Text: fmt.Sprintf("%s, %d operations: not linearizable", what, len(ops))}
	if result == porcupine.Unknown {
		x.Text = fmt.Sprintf("%s, %d operations: not judged within %v", what, len(ops), judgeLimit)
		j.v.add(x)
		return
	}
	if at := stuck(info, ops); at >= 0 {
		i := ops[at].Input.(input).index
		x.Ops, x.At, x.Node = []int{i}, j.h.Ops[i].Call, j.h.Ops[i].Node
		x.Text += "; the first that fits nowhere: " + Describe(j.h, i)
	}
	j.v.add(x)
}

// stuck returns the operation that ended the longest attempt: of those that are
// in none of the longest, the one that returned first. Attempts of one length come
// in any order, so that the earliest operation of all of them is taken.
func stuck(info porcupine.LinearizationInfo, ops []porcupine.Operation) int {
	longest := 0
	for _, partial := range info.PartialLinearizations() {
		for _, p := range partial {
			longest = max(longest, len(p))
		}
	}
	at := -1
	for _, partial := range info.PartialLinearizations() {
		for _, p := range partial {
			if len(p) == longest {
				if i := firstOutside(p, ops); i >= 0 && (at < 0 || i < at) {
					at = i
				}
			}
		}
	}
	return at
}

func firstOutside(attempt []int, ops []porcupine.Operation) int {
	in := make(map[int]bool, len(attempt))
	for _, i := range attempt {
		in[i] = true
	}
	at := -1
	for i := range ops {
		if !in[i] && (at < 0 || ops[i].Return < ops[at].Return) {
			at = i
		}
	}
	return at
}
