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
	"strconv"
	"strings"
	"time"

	"github.com/quorate/quorate/test/history"
	"github.com/quorate/quorate/test/wire"
)

// caller makes operations, one at a time, and records them.
type caller struct {
	*client
	r      *run
	id     int
	rng    *rand.Rand
	home   *Node // pinned: it asks nobody else; nil: anybody
	mix    Mix
	ops    []history.Op
	writes int
	mine   map[string]uint64 // revisions that this client has seen of keys
	avoid  map[*Node]time.Time
}

// A client whose operation has an unknown outcome goes on under another number:
// that operation may take effect at any time.
const nextLife = 1000

func (k *caller) loop(ctx context.Context) {
	defer k.close()
	for ctx.Err() == nil {
		node := k.home
		if node == nil {
			node = k.choose()
		}
		before := len(k.ops)
		k.step(ctx, node)
		pause := time.Duration(k.rng.ExpFloat64() * float64(k.mix.Think))
		if len(k.ops) == before { // nobody there
			pause += 30 * time.Millisecond
		}
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
	}
}

// choose returns any node, but rather not one that lately did not answer.
func (k *caller) choose() *Node {
	for range 3 {
		if n := k.r.anyNode(k.rng); time.Now().After(k.avoid[n]) {
			return n
		}
	}
	return k.r.anyNode(k.rng)
}

// avoidFor is how long a client stays away from a node that did not answer.
const avoidFor = 2 * time.Second

// reached makes a call, and notes when the node did not answer, or could not.
func (k *caller) reached(ctx context.Context, n *Node, q request) (answer, error) {
	a, err := k.call(ctx, n, q)
	if (err != nil || a.code >= http.StatusInternalServerError) && k.avoid != nil {
		k.avoid[n] = time.Now().Add(avoidFor)
	}
	return a, err
}

// step makes one operation. One that has begun is not given up at the end of the
// load: its outcome would be unknown for no reason.
func (k *caller) step(_ context.Context, n *Node) {
	ctx := context.Background()
	key := k.r.key(k.rng)
	if k.rng.Float64() < k.mix.Writes {
		k.write(ctx, n, k.chooseWrite(key))
		return
	}
	if k.rng.IntN(2) == 0 {
		k.get(ctx, n, key)
	} else {
		k.list(ctx, n)
	}
}

func (k *caller) chooseWrite(key string) history.Op {
	switch dice := k.rng.IntN(20); {
	case dice < 4:
		return history.Op{Kind: history.Create, Key: key}
	case dice < 10:
		return history.Op{Kind: history.Update, Key: key}
	case dice < 16:
		return history.Op{Kind: history.UpdateIf, Key: key, Precondition: k.expect(key)}
	case dice < 18:
		return history.Op{Kind: history.Delete, Key: key}
	default:
		return history.Op{Kind: history.DeleteIf, Key: key, Precondition: k.expect(key)}
	}
}

// expect is the revision that a conditional write asks for: mostly the newest
// that anybody saw.
func (k *caller) expect(key string) uint64 {
	if rev := k.mine[key]; rev > 0 && k.rng.IntN(4) == 0 {
		return rev
	}
	return k.r.seen.Of(key)
}

func (k *caller) write(ctx context.Context, n *Node, op history.Op) {
	op.Client, op.Node = k.id, n.Name
	q := request{method: http.MethodPut, path: collection + "/" + op.Key}
	switch op.Kind {
	case history.Create, history.Update, history.UpdateIf:
		k.writes++
		op.Value = fmt.Sprintf("c%d-%d-%s", k.id, k.writes, wire.Colors[k.rng.IntN(len(wire.Colors))])
		padding := strings.Repeat("x", k.rng.IntN(k.mix.Padding+1))
		q.body = encode(op.Key, op.Value, padding, op.Precondition)
		switch {
		case op.Kind == history.Create:
			q.method, q.path = http.MethodPost, collection
		case op.Kind == history.Update && k.rng.IntN(3) == 0:
			// A merge patch of the same fields is an update of whatever is there.
			q.method, q.contentType = http.MethodPatch, "application/merge-patch+json"
		}
	case history.DeleteIf:
		q.method = http.MethodDelete
		q.body = fmt.Appendf(nil, `{"kind":"DeleteOptions","apiVersion":"v1","preconditions":{"resourceVersion":"%d"}}`, op.Precondition)
	default:
		q.method = http.MethodDelete
	}
	op.Call = k.r.now()
	a, err := k.reached(ctx, n, q)
	op.Return = k.r.now()
	if errors.Is(err, errNotSent) {
		return
	}
	var o object
	if err == nil {
		err = json.Unmarshal(a.body, &o)
	}
	if err != nil {
		op.Outcome, op.Reason = history.Unknown, err.Error()
	} else {
		wire.Judge(&op, a.code, a.header, &o)
	}
	switch op.Outcome {
	case history.Unknown:
		op.Return = history.Forever
		k.id += nextLife
	case history.OK:
		k.mine[op.Key] = max(op.Revision, k.mine[op.Key])
		k.r.seen.Note(history.Item{Key: op.Key, Revision: op.Revision})
		k.r.acked.Add(1)
	}
	k.ops = append(k.ops, op)
}

// read makes one read and records it unless the answer is to be filled in. It
// reports whether there is one.
func (k *caller) read(ctx context.Context, n *Node, op *history.Op, path string, q url.Values) (o object, ok bool) {
	op.Client, op.Node = k.id, n.Name
	op.Call = k.r.now()
	a, err := k.reached(ctx, n, request{method: http.MethodGet, path: path, query: q})
	op.Return = k.r.now()
	if errors.Is(err, errNotSent) {
		return o, false
	}
	if err == nil {
		err = json.Unmarshal(a.body, &o)
	}
	if err != nil {
		op.Outcome, op.Reason = history.Refused, err.Error()
		k.ops = append(k.ops, *op)
		return o, false
	}
	op.Role, op.Staleness = a.header.Get("X-Quorate-Role"), wire.Staleness(a.header)
	if a.code != http.StatusOK {
		op.Outcome, op.Code, op.Reason = history.Refused, a.code, o.Reason
		k.ops = append(k.ops, *op)
		return o, false
	}
	op.Outcome = history.OK
	return o, true
}

func (k *caller) get(ctx context.Context, n *Node, key string) {
	op := history.Op{Kind: history.Get, Key: key}
	q := k.mode(&op, k.chooseMode(3))
	o, ok := k.read(ctx, n, &op, collection+"/"+key, q)
	if !ok {
		return
	}
	it := itemOf(&o)
	op.Items = []history.Item{it}
	k.mine[key] = it.Revision
	k.r.seen.Note(it)
	k.ops = append(k.ops, op)
}

func (k *caller) chooseMode(n int) int {
	if k.mix.MostRecent {
		return 0
	}
	return k.rng.IntN(n)
}

// mode makes the parameters of 0 Most Recent, 1 Any, 2 Not older than, 3 Exact.
func (k *caller) mode(op *history.Op, mode int) url.Values {
	switch mode {
	case 0:
		op.Mode = history.MostRecent
	case 1:
		op.Mode = history.Any
	case 2:
		op.Mode, op.Asked = history.NotOlderThan, k.r.seen.Around(k.rng, 50, 2)
	case 3:
		op.Mode, op.Asked = history.Exact, max(k.r.seen.Around(k.rng, k.mix.Back, 0), k.r.from)
	}
	return wire.Query(op)
}

// list makes a list, half of the time in pages from several nodes.
func (k *caller) list(ctx context.Context, n *Node) {
	op := history.Op{Kind: history.List}
	mode := k.chooseMode(4)
	q := k.mode(&op, mode)
	switch dice := k.rng.IntN(8); {
	case dice == 0:
		op.Prefix = k.r.key(k.rng)
		q.Set("fieldSelector", "metadata.name="+op.Prefix)
	case dice < 5 && (mode == 0 || mode == 3):
		op.Limit = 1 + k.rng.IntN(6)
		q.Set("limit", strconv.Itoa(op.Limit))
	}
	for {
		o, ok := k.read(ctx, n, &op, collection, q)
		if !ok {
			return
		}
		op.Revision = o.Revision()
		for i := range o.Items {
			op.Items = append(op.Items, itemOf(&o.Items[i]))
		}
		op.More = o.Metadata.Continue != ""
		k.r.seen.Note(op.Items...)
		k.r.seen.Note(history.Item{Revision: op.Revision})
		k.ops = append(k.ops, op)
		if !op.More || len(op.Items) == 0 {
			return
		}
		if k.home == nil {
			n = k.choose()
		}
		op = history.Op{Kind: history.List, Mode: history.Exact, Limit: op.Limit,
			After: op.Items[len(op.Items)-1].Key, Asked: op.Revision}
		q = url.Values{"limit": {strconv.Itoa(op.Limit)}, "continue": {o.Metadata.Continue}}
	}
}
