package sim

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

// keys are what the clients fight over.
var keys = []string{
	"default/k0", "default/k1", "default/k2", "default/k3", "default/k4", "default/k5",
	"kube-public/k6", "kube-public/k7", "kube-public/k8", "kube-public/k9",
}

// client makes operations, one at a time.
type client struct {
	c      *cluster
	id     int
	rng    *rand.Rand
	ops    []history.Op
	writes int
	mine   map[string]uint64 // revisions that this client has seen of keys
}

// A client whose operation has an unknown outcome goes on under another number:
// that operation may take effect at any time.
const nextLife = 100

func (k *client) run(stop <-chan struct{}) {
	for {
		select {
		case <-stop:
			return
		default:
		}
		time.Sleep(time.Duration(k.rng.ExpFloat64() * float64(k.c.profile.think)))
		k.step()
	}
}

// step makes one operation against a node.
func (k *client) step() {
	s := k.c.anySeat(k.rng)
	if s == nil || s.isDrained() {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second+time.Duration(k.rng.Int64N(int64(3*time.Second))))
	defer cancel()
	key := keys[k.rng.IntN(len(keys))]
	switch dice := k.rng.IntN(100); {
	case dice < 14:
		k.write(ctx, s, history.Op{Kind: history.Create, Key: key})
	case dice < 28:
		k.write(ctx, s, history.Op{Kind: history.Update, Key: key})
	case dice < 42:
		k.write(ctx, s, history.Op{Kind: history.UpdateIf, Key: key, Precondition: k.expect(key)})
	case dice < 48:
		k.write(ctx, s, history.Op{Kind: history.Delete, Key: key})
	case dice < 54:
		k.write(ctx, s, history.Op{Kind: history.DeleteIf, Key: key, Precondition: k.expect(key)})
	case dice < 75:
		k.get(ctx, s, key)
	default:
		k.lists(ctx, s)
	}
}

// expect is the revision that a conditional write asks for: mostly the newest
// that was seen.
func (k *client) expect(key string) uint64 {
	if rev := k.mine[key]; rev > 0 && k.rng.IntN(4) == 0 {
		return rev
	}
	return k.c.seen.Of(key)
}

func (k *client) write(ctx context.Context, s *seat, op history.Op) {
	op.Client, op.Node = k.id, s.name
	method, path, q := http.MethodPut, pathOf(op.Key), url.Values{}
	var body []byte
	switch op.Kind {
	case history.Create, history.Update, history.UpdateIf:
		k.writes++
		// Restored clusters hold values of the first one: theirs begin otherwise.
		op.Value = fmt.Sprintf("%c%d-%d-%s", s.name[0], k.id, k.writes, wire.Colors[k.rng.IntN(len(wire.Colors))])
		body = encode(op.Key, op.Value, op.Precondition)
		switch op.Kind {
		case history.Create:
			method = http.MethodPost
			namespace, _, _ := strings.Cut(op.Key, "/")
			path = collection(namespace)
		case history.Update:
			// Service accounts are not updated without a resourceVersion, but patched.
			method = http.MethodPatch
		}
	case history.DeleteIf:
		method = http.MethodDelete
		body = fmt.Appendf(nil, `{"kind":"DeleteOptions","apiVersion":"v1","preconditions":{"resourceVersion":"%d"}}`, op.Precondition)
	default:
		method = http.MethodDelete
	}
	op.Call = k.c.now()
	a, err := s.call(ctx, method, path, q, body)
	op.Return = k.c.now()
	var o object
	switch {
	case errors.Is(err, errNotSent):
		return
	case err != nil:
		op.Outcome, op.Reason = history.Unknown, err.Error()
	default:
		if err := json.Unmarshal(a.body, &o); err != nil {
			k.c.fail("%s %s answered %d with %q: %v", op.Kind, op.Key, a.code, a.body, err)
		}
		wire.Judge(&op, a.code, a.header, &o)
	}
	if op.Outcome == history.Unknown {
		op.Return = history.Forever
		k.id += nextLife
	} else if op.Outcome == history.OK {
		k.mine[op.Key] = op.Revision
		k.c.seen.Note(history.Item{Key: op.Key, Revision: op.Revision})
	}
	k.ops = append(k.ops, op)
}

// read makes one read and records it, unless nobody answered. It reports whether
// it was answered with what was asked for.
func (k *client) read(ctx context.Context, s *seat, op *history.Op, path string, q url.Values) (o object, ok bool) {
	op.Client, op.Node = k.id, s.name
	op.Call = k.c.now()
	a, err := s.call(ctx, http.MethodGet, path, q, nil)
	op.Return = k.c.now()
	switch {
	case errors.Is(err, errNotSent):
		return o, false
	case err != nil:
		op.Outcome, op.Reason = history.Refused, err.Error()
		k.ops = append(k.ops, *op)
		return o, false
	}
	op.Role = a.header.Get("X-Quorate-Role")
	if err := json.Unmarshal(a.body, &o); err != nil {
		k.c.fail("%s %s answered %d with %q: %v", op.Kind, path, a.code, a.body, err)
	}
	op.Staleness = wire.Staleness(a.header)
	if a.code != http.StatusOK {
		op.Outcome, op.Code, op.Reason = history.Refused, a.code, o.Reason
		k.ops = append(k.ops, *op)
		return o, false
	}
	op.Outcome = history.OK
	return o, true
}

func (k *client) get(ctx context.Context, s *seat, key string) {
	op := history.Op{Kind: history.Get, Key: key}
	q := k.mode(&op, k.rng.IntN(3))
	o, ok := k.read(ctx, s, &op, pathOf(key), q)
	if !ok {
		return
	}
	it := itemOf(&o)
	op.Items = []history.Item{it}
	k.mine[key] = it.Revision
	k.c.seen.Note(it)
	k.ops = append(k.ops, op)
}

// mode chooses how fresh a read must be: 0 Most Recent, 1 Any, 2 Not older than,
// 3 Exact.
func (k *client) mode(op *history.Op, mode int) url.Values {
	switch mode {
	case 0:
		op.Mode = history.MostRecent
	case 1:
		op.Mode = history.Any
	case 2:
		op.Mode, op.Asked = history.NotOlderThan, k.c.seen.Around(k.rng, 20, 1)
	case 3:
		op.Mode, op.Asked = history.Exact, k.c.seen.Around(k.rng, 40, 0)
	}
	return wire.Query(op)
}

// lists makes a list, in pages on several nodes half of the time.
func (k *client) lists(ctx context.Context, s *seat) {
	op := history.Op{Kind: history.List}
	namespace := ""
	if k.rng.IntN(3) == 0 {
		namespace = "default"
		op.Prefix = "default/"
	}
	mode := k.rng.IntN(4)
	q := k.mode(&op, mode)
	if k.rng.IntN(2) == 0 && mode != 1 && mode != 2 {
		op.Limit = 1 + k.rng.IntN(4)
		q.Set("limit", strconv.Itoa(op.Limit))
	}
	for {
		o, ok := k.read(ctx, s, &op, collection(namespace), q)
		if !ok {
			return
		}
		op.Revision = o.Revision()
		for i := range o.Items {
			op.Items = append(op.Items, itemOf(&o.Items[i]))
		}
		op.More = o.Metadata.Continue != ""
		k.c.seen.Note(op.Items...)
		k.c.seen.Note(history.Item{Revision: op.Revision})
		k.ops = append(k.ops, op)
		if !op.More || len(op.Items) == 0 {
			return
		}
		// The next page from any node.
		if next := k.c.anySeat(k.rng); next != nil {
			s = next
		}
		time.Sleep(time.Duration(k.rng.Int64N(int64(k.c.profile.think))))
		op = history.Op{Kind: history.List, Mode: history.Exact, Prefix: op.Prefix, Limit: op.Limit,
			After: op.Items[len(op.Items)-1].Key, Asked: op.Revision}
		q = url.Values{"limit": {strconv.Itoa(op.Limit)}, "continue": {o.Metadata.Continue}}
	}
}
