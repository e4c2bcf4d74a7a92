package disk

import (
	"errors"
	"fmt"
	"slices"

	"github.com/quorate/quorate/proto"
	"github.com/quorate/quorate/raftstore/mvcc"
	"go.etcd.io/bbolt"
)

// Added is a new version of a key in a table.
type Added struct {
	Table   string
	Version *mvcc.Version
}

// Batch is what some applied entries have changed. The DB takes it over.
type Batch struct {
	// Added versions in ascending revision order.
	Added []Added
	// Removed revisions: no reader can reach them any more.
	Removed []proto.Revision
	// State after the last of the entries. Versions need not be set.
	State *proto.StateRecord
}

// part is what some consecutive batches have changed. What is pending is cut into parts, because a transaction cannot use
// the pages again that it frees: on a full disk several small ones find room where a large one does not.
type part struct {
	added   []Added
	removed []proto.Revision
	state   *proto.StateRecord // after the last of the batches
	bytes   int64
}

// fewestParts are kept whatever they take.
const fewestParts = 16

// bound makes fewer parts of many while they take more than so many bytes: the smallest two neighbours become one. Versions that came and
// went in the same part are left out. Those that were there at its end stay, as that may become the state of
// the file: so 16 times the size of the state, with its history, bounds how much a flush has waiting. durable is the applied index of the file.
func bound(parts []part, durable proto.Revision, most int64) []part {
	var bytes int64
	before := durable
	for i := range parts {
		parts[i].settle(before)
		before = proto.Revision(parts[i].state.Applied)
		bytes += parts[i].bytes
	}
	for bytes > most && len(parts) > fewestParts {
		at := 1
		for i := 2; i < len(parts); i++ {
			if parts[i-1].cost()+parts[i].cost() <= parts[at-1].cost()+parts[at].cost() {
				at = i
			}
		}
		p := &parts[at-1]
		bytes -= p.bytes + parts[at].bytes
		p.append(parts[at])
		before = durable
		if at > 1 {
			before = proto.Revision(parts[at-2].state.Applied)
		}
		p.settle(before)
		bytes += p.bytes
		parts = slices.Delete(parts, at, at+1)
	}
	return parts
}

func (p *part) append(next part) {
	p.added = append(p.added, next.added...)
	p.removed = append(p.removed, next.removed...)
	p.state = next.state
	p.bytes += next.bytes
}

// cost is about how many bytes of pages the part takes: a removal has one page at least written again.
func (p *part) cost() int64 { return p.bytes + 4096*int64(len(p.removed)) }

// settle leaves out versions that came behind an index, that before the part, and went.
func (p *part) settle(before proto.Revision) {
	came := map[proto.Revision]bool{} // of those that went: whether their versions are here
	for _, r := range p.removed {
		if r > before {
			came[r] = false
		}
	}
	if len(came) == 0 {
		return
	}
	p.added = slices.DeleteFunc(p.added, func(a Added) bool {
		_, went := came[a.Version.Revision]
		if went {
			came[a.Version.Revision] = true
			p.bytes -= a.bytes() + 8
		}
		return went
	})
	p.removed = slices.DeleteFunc(p.removed, func(r proto.Revision) bool { return came[r] })
}

func (a Added) bytes() int64 { return a.Version.Size() + int64(len(a.Table)) }

// added is how many bytes parts add to a file whose applied index is durable.
func added(parts []part, durable proto.Revision) (bytes int64) {
	gone := map[proto.Revision]bool{}
	for _, p := range parts {
		for _, r := range p.removed {
			if r > durable {
				gone[r] = true
			}
		}
	}
	for _, p := range parts {
		for _, a := range p.added {
			if !gone[a.Version.Revision] {
				bytes += a.bytes()
			}
		}
	}
	return bytes
}

// write puts parts into one transaction: records and state must never be
// apart. durable is the applied index of the file so far. It counts the pages that it takes in d.
func write(tx *bbolt.Tx, parts []part, tot *totals, durable proto.Revision, d *demand) error {
	state := parts[len(parts)-1].state
	if proto.Revision(state.Applied) < durable {
		return fmt.Errorf("state goes from %d to %d: %w", durable, state.Applied, mvcc.ErrOrder)
	}
	versions, meta := tx.Bucket(versionsBucket), tx.Bucket(metaBucket)
	// Revisions only grow: a page is never inserted into again.
	versions.FillPercent = 1
	// What came and went while it was pending never reaches the disk.
	gone := map[proto.Revision]bool{}
	for _, p := range parts {
		for _, r := range p.removed {
			if r > durable {
				gone[r] = true
				continue
			}
			if err := drop(versions, r, tot); err != nil {
				return err
			}
			d.removed(r)
		}
	}
	last := durable
	for _, p := range parts {
		for _, a := range p.added {
			r := a.Version.Revision
			if r <= last || r > proto.Revision(p.state.Applied) {
				return fmt.Errorf("revision %d after %d in a state at %d: %w", r, last, p.state.Applied, mvcc.ErrOrder)
			}
			last = r
			if gone[r] {
				delete(gone, r)
				continue
			}
			value, err := encodeVersion(a.Table, a.Version)
			if err != nil {
				return err
			}
			if err := put(versions, r, value, tot); err != nil {
				return err
			}
			d.added(len(value))
		}
	}
	if len(gone) > 0 {
		return fmt.Errorf("%d removed revisions above %d were never added: %w", len(gone), durable, mvcc.ErrOrder)
	}
	state.Versions = tot.versions
	if err := errors.Join(putFormat(meta), meta.Put(totalsKey, tot.encode()), putState(meta, state)); err != nil {
		return err
	}
	d.meta = len(meta.Get(stateKey))
	return nil
}
