package check

import (
	"fmt"
	"slices"
	"sort"

	"github.com/quorate/quorate/test/judges/history"
)

// judge is one run of All.
type judge struct {
	*facts
	v *Verdict
}

func (j *judge) opViolation(check string, i int, format string, args ...any) {
	o := &j.h.Ops[i]
	j.v.add(Violation{Check: check, Text: Describe(j.h, i) + ": " + fmt.Sprintf(format, args...), At: o.Call, Node: o.Node, Ops: []int{i}, Watch: -1})
}

func (j *judge) opsViolation(check string, i, other int, format string, args ...any) {
	o := &j.h.Ops[i]
	ops := []int{i}
	if other >= 0 {
		ops = append(ops, other)
	}
	j.v.add(Violation{Check: check, Text: Describe(j.h, i) + ": " + fmt.Sprintf(format, args...), At: o.Call, Node: o.Node, Ops: ops, Watch: -1})
}

// wellFormed finds what no cluster can have caused.
func (j *judge) wellFormed() {
	values := map[string]int{}
	for i := range j.h.Ops {
		o := &j.h.Ops[i]
		if o.Return < o.Call {
			j.opViolation(Malformed, i, "it returned before it was called")
		}
		if isWrite(o.Kind) && !isDelete(o.Kind) {
			if other, ok := values[o.Value]; ok {
				j.opsViolation(Malformed, i, other, "its value was written before by %s", Describe(j.h, other))
			}
			values[o.Value] = i
			if o.Outcome == history.OK && o.Revision == 0 {
				j.opViolation(Malformed, i, "an acknowledged write without a resourceVersion")
			}
		}
		if !isWrite(o.Kind) && o.Outcome == history.OK && o.Kind == history.List && o.Revision == 0 {
			j.opViolation(ReadContent, i, "a list of no state: its resourceVersion is 0, which is only ever asked for")
		}
	}
}

// readLog checks the log in itself and indexes it.
func (j *judge) readLog() {
	j.learnBase()
	log := j.h.Log
	if len(log) == 0 {
		log = j.observed()
	}
	last := j.h.LogFrom
	sorted := true
	for i, e := range log {
		if e.Revision <= last {
			sorted = false
			j.v.add(Violation{Check: LogOrder, Watch: -1, Text: fmt.Sprintf("log entry %d, %s@%d, is not above the one before it, @%d", i, e.Key, e.Revision, last)})
		}
		last = max(last, e.Revision)
	}
	if !sorted {
		log = slices.Clone(log)
		sort.SliceStable(log, func(a, b int) bool { return log[a].Revision < log[b].Revision })
		log = slices.CompactFunc(log, func(a, b history.Entry) bool { return a.Revision == b.Revision })
	}
	j.load(log)
	j.v.Counts.Log = len(log)
}

// learnBase collects the objects from before the log.
func (j *judge) learnBase() {
	from := j.h.LogFrom
	if from == 0 {
		return
	}
	learn := func(it history.Item) {
		if it.Revision > 0 && it.Revision <= from {
			if b, ok := j.base[it.Key]; !ok || b.Revision < it.Revision {
				j.base[it.Key] = it
			}
		}
	}
	for i := range j.h.Ops {
		for _, it := range j.h.Ops[i].Items {
			learn(it)
		}
	}
	for i := range j.h.Watches {
		for _, e := range j.h.Watches[i].Events {
			if e.Type == history.Added || e.Type == history.Modified {
				learn(e.Item)
			}
		}
	}
}

// observed puts a log together from what clients saw.
func (j *judge) observed() []history.Entry {
	byRev := map[uint64]history.Entry{}
	see := func(e history.Entry) {
		if e.Revision > j.h.LogFrom {
			if _, ok := byRev[e.Revision]; !ok {
				byRev[e.Revision] = e
			}
		}
	}
	for i := range j.h.Ops {
		o := &j.h.Ops[i]
		if isWrite(o.Kind) && o.Outcome == history.OK {
			see(history.Entry{Item: history.Item{Key: o.Key, Value: o.Value, Revision: o.Revision}, Deleted: isDelete(o.Kind)})
		}
		for _, it := range o.Items {
			see(history.Entry{Item: it})
		}
	}
	for i := range j.h.Watches {
		w := &j.h.Watches[i]
		for _, e := range w.Events {
			switch {
			case e.Type == history.Added || e.Type == history.Modified:
				see(history.Entry{Item: e.Item})
			case e.Type == history.Deleted && w.Selector == "":
				see(history.Entry{Item: e.Item, Deleted: true})
			}
		}
	}
	log := make([]history.Entry, 0, len(byRev))
	for _, e := range byRev {
		log = append(log, e)
	}
	sort.Slice(log, func(a, b int) bool { return log[a].Revision < log[b].Revision })
	return log
}

// settle finds what every write came to: acknowledged ones must be in the log,
// unknown ones are if they happened, refused ones must not be.
func (j *judge) settle() {
	byValue := map[string]int{}
	for i := range j.h.Ops {
		o := &j.h.Ops[i]
		if !isWrite(o.Kind) {
			continue
		}
		if !isDelete(o.Kind) {
			byValue[o.Value] = i
		}
		if o.Outcome == history.OK && o.Revision > 0 {
			j.acknowledged(i)
		}
	}
	for i := range j.log {
		v := &j.log[i]
		if v.deleted || v.writer >= 0 {
			continue
		}
		w, ok := byValue[v.value]
		if !ok {
			continue // phantoms, below
		}
		o := &j.h.Ops[w]
		switch {
		case o.Key != v.key:
		case j.done[w]:
		case o.Outcome == history.Refused:
			j.opViolation(LogRefused, w, "it was refused, but the log has it at %d", v.rev)
			v.writer, j.done[w], j.rev[w] = w, true, v.rev
		case o.Outcome == history.Unknown:
			v.writer, j.done[w], j.rev[w] = w, true, v.rev
		}
	}
}

// acknowledged looks a write with a revision up.
func (j *judge) acknowledged(i int) {
	o := &j.h.Ops[i]
	if o.Revision <= j.h.LogFrom {
		j.opViolation(LogAcknowledged, i, "the log begins only after %d", j.h.LogFrom)
		return
	}
	v := j.at(o.Revision)
	switch {
	case v == nil:
		j.v.Counts.LostWrites++
		j.opViolation(LogAcknowledged, i, "acknowledged, but the log has nothing at %d", o.Revision)
		return
	case v.key != o.Key || v.deleted != isDelete(o.Kind) || !v.deleted && v.value != o.Value:
		j.v.Counts.LostWrites++
		j.opViolation(LogAcknowledged, i, "acknowledged, but the log has at %d: %s", o.Revision, j.describe(v))
		return
	case v.writer >= 0:
		j.opsViolation(LogAcknowledged, i, v.writer, "its revision was acknowledged twice, also to %s", Describe(j.h, v.writer))
		return
	}
	v.writer, j.done[i], j.rev[i] = i, true, o.Revision
}

// phantoms finds versions that nobody wrote.
func (j *judge) phantoms() {
	if !j.complete {
		return
	}
	for i := range j.log {
		if v := &j.log[i]; v.writer < 0 {
			j.v.add(Violation{Check: LogPhantom, Watch: -1, Text: fmt.Sprintf("%s: no operation can have caused it, or not twice", j.describe(v))})
		}
	}
}

// conditions checks each version against the one before it: what its operation
// asked for must have been so.
func (j *judge) conditions() {
	for key, versions := range j.keys {
		before := present{}
		if b, ok := j.base[key]; ok {
			before = present{rev: b.Revision, value: b.Value, live: true}
		}
		for n, i := range versions {
			v := &j.log[i]
			if n == 0 && j.h.LogFrom > 0 && !before.live && v.writer >= 0 && j.h.Ops[v.writer].Kind != history.Create {
				v.live, v.unsure = true, true
			}
			if j.complete && v.writer >= 0 && !v.unsure {
				j.condition(v, before)
			}
			before = present{rev: v.rev, value: v.value, live: !v.deleted}
		}
	}
}

func (j *judge) condition(v *version, before present) {
	o := &j.h.Ops[v.writer]
	switch {
	case o.Kind == history.Create && before.live:
		j.opViolation(LogCondition, v.writer, "it created %s at %d, which existed @%d", v.key, v.rev, before.rev)
	case o.Kind != history.Create && !before.live:
		j.opViolation(LogCondition, v.writer, "at %d there was no %s", v.rev, v.key)
	case conditional(o.Kind) && o.Precondition != before.rev:
		j.opViolation(LogCondition, v.writer, "took effect at %d, when %s was @%d", v.rev, v.key, before.rev)
	}
}
