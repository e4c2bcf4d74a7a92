//go:build linux && amd64

package chaos

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"time"

	"github.com/quorate/quorate/test/judges/history"
	"github.com/quorate/quorate/test/judges/wire"
)

// tail reads the log of the cluster through a watch, from the beginning on.
type tail struct {
	*client
	r       *run
	rng     *rand.Rand
	node    *Node // nil: any, another after each cut
	entries []history.Entry
	at      uint64
	broken  error // a 410: the history was too short
}

func newTail(r *run, node *Node) *tail {
	return &tail{client: newClient(r.c), r: r, rng: rand.New(rand.NewPCG(1, 2)), node: node, at: r.from}
}

// follow reads until a revision was seen, 0: never, or ctx ends.
func (t *tail) follow(ctx context.Context, until uint64) {
	defer t.close()
	for ctx.Err() == nil && t.broken == nil && (until == 0 || t.at < until) {
		n := t.node
		if n == nil {
			n = t.r.anyNode(t.rng)
		}
		t.once(ctx, n, until)
		select {
		case <-ctx.Done():
		case <-time.After(20 * time.Millisecond):
		}
	}
}

func (t *tail) once(ctx context.Context, n *Node, until uint64) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	// A stopped node ends no watch.
	idle := time.AfterFunc(3*time.Second, cancel)
	defer idle.Stop()
	resp, err := t.open(ctx, n, wire.Request{Method: http.MethodGet, Path: collection, Query: url.Values{
		"watch": {"1"}, "allowWatchBookmarks": {"true"}, "resourceVersion": {strconv.FormatUint(t.at, 10)}}})
	if err != nil {
		return
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return
	}
	for d := json.NewDecoder(resp.Body); until == 0 || t.at < until; {
		var f wire.Frame
		if err := d.Decode(&f); err != nil {
			return
		}
		idle.Reset(3 * time.Second)
		switch f.Type {
		case history.Error:
			if f.Object.Code == http.StatusGone {
				t.broken = fmt.Errorf("%s: %s", n.Name, f.Object.Message)
			}
			return
		case history.Bookmark:
		default:
			t.entries = append(t.entries, history.Entry{Item: itemOf(&f.Object), Deleted: f.Type == history.Deleted})
		}
		t.at = max(t.at, f.Object.Revision())
	}
}

// collect waits until all nodes are the same and reads the log from each.
func (r *run) collect(ctx context.Context, h *history.History, recorders []*tail) {
	last, err := r.marker(ctx, h)
	if err == nil {
		err = r.sameStates(ctx, h)
	}
	if err != nil {
		r.fail("%v", err)
	}
	if last > 0 {
		r.readLogs(ctx, h, recorders, last)
	}
	r.checkLogs()
	r.countAll()
}

// marker writes the last version of the run.
func (r *run) marker(ctx context.Context, h *history.History) (uint64, error) {
	k := newCaller(r, 999, rand.New(rand.NewPCG(9, 9)), Mix{Padding: 1})
	defer k.close()
	for _, n := range r.targets() {
		k.write(ctx, n, history.Op{Kind: history.Create, Key: fmt.Sprintf("cm-end-%d", len(k.Ops))})
		if at := len(k.Ops) - 1; at >= 0 && k.Ops[at].Outcome == history.OK {
			h.Ops = append(h.Ops, k.Ops...)
			return k.Ops[at].Revision, nil
		}
	}
	h.Ops = append(h.Ops, k.Ops...)
	return 0, fmt.Errorf("the last write was not acknowledged: %+v", k.Ops)
}

// sameStates waits until all nodes have the same state, and notes it.
func (r *run) sameStates(ctx context.Context, h *history.History) error {
	nodes := r.targets()
	return await(ctx, 30*time.Second, "all nodes are the same", func() error {
		s, err := nodes[0].Status(ctx)
		if err != nil {
			return err
		}
		h.States = nil
		for _, m := range s.Members {
			if m.Error != "" || m.StateHash == "" {
				return fmt.Errorf("%s: no state: %s", m.Name, m.Error)
			}
			h.States = append(h.States, history.State{Node: m.Name, Revision: m.StateHashAt, Hash: m.StateHash, Floor: m.Floor})
		}
		if len(h.States) != len(nodes) {
			return fmt.Errorf("%d members, want %d", len(h.States), len(nodes))
		}
		for _, st := range h.States {
			if st.Floor > r.from {
				r.count("floors above the first revision", 1)
			}
			if a := h.States[0]; st.Revision != a.Revision || st.Hash != a.Hash || st.Floor != a.Floor {
				return fmt.Errorf("states differ: %+v", h.States)
			}
		}
		if len(s.Diverged) > 0 {
			return fmt.Errorf("diverged: %v", s.Diverged)
		}
		return nil
	})
}

// readLogs reads the log: from every node, or, when the history is too short for
// that, from those who read it all the time.
func (r *run) readLogs(ctx context.Context, h *history.History, recorders []*tail, last uint64) {
	logs := map[string]*tail{}
	for _, n := range r.targets() {
		if !r.s.ShortHistory {
			logs[n.Name] = newTail(r, n)
		}
	}
	for i, t := range recorders {
		logs["recorder "+strconv.Itoa(i)] = t
	}
	var errs []error
	for name, t := range logs {
		if t.broken == nil {
			short, cancel := context.WithTimeout(ctx, 20*time.Second)
			t.follow(short, last)
			cancel()
		}
		switch {
		case t.broken != nil:
			errs = append(errs, fmt.Errorf("log of %s: %w", name, t.broken))
		case t.at < last:
			errs = append(errs, fmt.Errorf("log of %s: came to %d, not to %d", name, t.at, last))
		case h.Log == nil:
			h.Log = t.entries
		case !slices.Equal(h.Log, t.entries):
			r.fail("the log of %s has %d entries, another has %d: %s", name, len(t.entries), len(h.Log), firstDifference(t.entries, h.Log))
		}
	}
	if len(errs) > 0 && (h.Log == nil || !r.s.ShortHistory) {
		r.fail("%v", errors.Join(errs...))
	}
}

func firstDifference(a, b []history.Entry) string {
	for i := range min(len(a), len(b)) {
		if a[i] != b[i] {
			return fmt.Sprintf("%+v, %+v", a[i], b[i])
		}
	}
	return "one is longer"
}

// countAll adds what networks and disks did.
func (r *run) countAll() {
	if r.c.Switch != nil {
		c := r.c.Switch.Counts()
		for what, n := range map[string]uint64{"packets forwarded": c.Forwarded, "packets cut": c.Cut, "packets lost": c.Lost,
			"packets duplicated": c.Duplicated, "packets reordered": c.Reordered, "packets delayed": c.Delayed, "packets overflown": c.Overflown} {
			r.count(what, int(n))
		}
	}
	for _, n := range r.c.Nodes() {
		if n.disk != nil {
			c := n.disk.Counts()
			for what, n := range map[string]uint64{"syncs": c.Syncs, "syncs slow": c.Slow, "syncs hung": c.Hung, "syncs failed": c.Failed, "writes without room": c.Full} {
				r.count(what, int(n))
			}
		}
	}
}
