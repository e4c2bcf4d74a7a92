package wire

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/quorate/quorate/test/judges/history"
)

// World is what a client lives in: how it asks the nodes of a run (N is one), and what
// the objects of the run look like.
type World[N any] interface {
	// Now is the time of the run.
	Now() time.Duration
	// Name is a node's, in the history.
	Name(node N) string
	// Call makes a request and returns the whole answer. What no node has seen is
	// ErrNotSent.
	Call(ctx context.Context, node N, q Request) (Answer, error)
	// Garbled is told of an answer that is no object.
	Garbled(op *history.Op, a Answer, err error)
	// Item is what an object says.
	Item(o *Object) history.Item
	// ObjectPath and CollectionPath are where objects are: by their keys, and those whose
	// keys begin with a prefix that stands for a namespace, or "".
	ObjectPath(key string) string
	CollectionPath(prefix string) string
}

// Client makes operations, one at a time, and records them.
type Client[N any] struct {
	World World[N]
	Seen  *Seen
	RNG   *rand.Rand
	// ID is the client's in the history. One whose operation has an unknown outcome goes on
	// under another, NextLife higher: that operation may take effect at any time.
	ID, NextLife int
	Ops          []history.Op

	writes int
	mine   map[string]uint64 // revisions that this client has seen of keys
}

// Expect is the revision that a conditional write asks for: mostly the newest that
// anybody saw.
func (k *Client[N]) Expect(key string) uint64 {
	if rev := k.mine[key]; rev > 0 && k.RNG.IntN(4) == 0 {
		return rev
	}
	return k.Seen.Of(key)
}

// Value is one that nobody has written before, if no other client has the prefix.
func (k *Client[N]) Value(prefix string) string {
	k.writes++
	return fmt.Sprintf("%s%d-%d-%s", prefix, k.ID, k.writes, Colors[k.RNG.IntN(len(Colors))])
}

// WriteRequest is how op is asked for; body is the object, unless op is a delete. An
// update is a PUT.
func (k *Client[N]) WriteRequest(op *history.Op, body []byte) Request {
	q := Request{Method: http.MethodPut, Path: k.World.ObjectPath(op.Key), Body: body}
	switch op.Kind {
	case history.Create:
		q.Method, q.Path = http.MethodPost, k.World.CollectionPath(op.Key)
	case history.Delete:
		q.Method = http.MethodDelete
	case history.DeleteIf:
		q.Method = http.MethodDelete
		q.Body = fmt.Appendf(nil, `{"kind":"DeleteOptions","apiVersion":"v1","preconditions":{"resourceVersion":"%d"}}`, op.Precondition)
	}
	return q
}

// MergePatch makes a patch of an update that has no resourceVersion: one of all fields
// is an update of whatever is there.
func MergePatch(q *Request) {
	q.Method, q.ContentType = http.MethodPatch, "application/merge-patch+json"
}

// Write makes a write and records it, unless no node has seen it.
func (k *Client[N]) Write(ctx context.Context, node N, op history.Op, q Request) history.Outcome {
	a, err := k.call(ctx, node, &op, q)
	if errors.Is(err, ErrNotSent) {
		return ""
	}
	var o Object
	if err == nil {
		err = k.decode(&op, a, &o)
	}
	if err != nil {
		op.Outcome, op.Reason = history.Unknown, err.Error()
	} else {
		Judge(&op, a.Code, a.Header, &o)
	}
	switch op.Outcome {
	case history.Unknown:
		op.Return = history.Forever
		k.ID += k.NextLife
	case history.OK:
		k.saw(op.Key, max(op.Revision, k.mine[op.Key]))
		k.Seen.Note(history.Item{Key: op.Key, Revision: op.Revision})
	}
	k.Ops = append(k.Ops, op)
	return op.Outcome
}

func (k *Client[N]) call(ctx context.Context, node N, op *history.Op, q Request) (Answer, error) {
	op.Client, op.Node = k.ID, k.World.Name(node)
	op.Call = k.World.Now()
	a, err := k.World.Call(ctx, node, q)
	op.Return = k.World.Now()
	return a, err
}

func (k *Client[N]) decode(op *history.Op, a Answer, o *Object) error {
	err := json.Unmarshal(a.Body, o)
	if err != nil {
		k.World.Garbled(op, a, err)
	}
	return err
}

func (k *Client[N]) saw(key string, revision uint64) {
	if k.mine == nil {
		k.mine = map[string]uint64{}
	}
	k.mine[key] = revision
}

// Read makes one read. It reports whether it was answered with what was asked for,
// which the caller enters in op and records; all else is recorded, but for what no
// node has seen.
func (k *Client[N]) Read(ctx context.Context, node N, op *history.Op, path string, query url.Values) (o Object, ok bool) {
	a, err := k.call(ctx, node, op, Request{Method: http.MethodGet, Path: path, Query: query})
	if errors.Is(err, ErrNotSent) {
		return o, false
	}
	if err == nil {
		err = k.decode(op, a, &o)
	}
	if err != nil {
		op.Outcome, op.Reason = history.Refused, err.Error()
		k.Ops = append(k.Ops, *op)
		return o, false
	}
	op.Role, op.Staleness = a.Header.Get("X-Quorate-Role"), Staleness(a.Header)
	if a.Code != http.StatusOK {
		op.Outcome, op.Code, op.Reason = history.Refused, a.Code, o.Reason
		k.Ops = append(k.Ops, *op)
		return o, false
	}
	op.Outcome = history.OK
	return o, true
}

// Get reads op's key in op's mode.
func (k *Client[N]) Get(ctx context.Context, node N, op history.Op) {
	o, ok := k.Read(ctx, node, &op, k.World.ObjectPath(op.Key), Query(&op))
	if !ok {
		return
	}
	it := k.World.Item(&o)
	op.Items = []history.Item{it}
	k.saw(op.Key, it.Revision)
	k.Seen.Note(it)
	k.Ops = append(k.Ops, op)
}

// List reads what op asks for, if it has a limit in pages, each from the node that next
// returns. A selector is added to what op says.
func (k *Client[N]) List(ctx context.Context, node N, op history.Op, selector url.Values, next func(N) N) {
	query := Query(&op)
	if op.Limit > 0 {
		query.Set("limit", strconv.Itoa(op.Limit))
	}
	for name, values := range selector {
		query[name] = values
	}
	path := k.World.CollectionPath(op.Prefix)
	for {
		o, ok := k.Read(ctx, node, &op, path, query)
		if !ok {
			return
		}
		op.Revision = o.Revision()
		for i := range o.Items {
			op.Items = append(op.Items, k.World.Item(&o.Items[i]))
		}
		op.More = o.Metadata.Continue != ""
		k.Seen.Note(op.Items...)
		k.Seen.Note(history.Item{Revision: op.Revision})
		k.Ops = append(k.Ops, op)
		if !op.More || len(op.Items) == 0 {
			return
		}
		node = next(node)
		op = history.Op{Kind: history.List, Mode: history.Exact, Prefix: op.Prefix, Limit: op.Limit,
			After: op.Items[len(op.Items)-1].Key, Asked: op.Revision}
		query = url.Values{"limit": {strconv.Itoa(op.Limit)}, "continue": {o.Metadata.Continue}}
	}
}
