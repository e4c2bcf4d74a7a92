//go:build linux && amd64

package chaos

import (
	"context"
	"math/rand/v2"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/quorate/quorate/test/judges/history"
	"github.com/quorate/quorate/test/judges/wire"
)

// caller makes operations, one at a time, and records them.
type caller struct {
	wire.Client[*Node]
	*client
	r     *run
	home  *Node // pinned: it asks nobody else; nil: anybody
	mix   Mix
	avoid map[*Node]time.Time
}

func newCaller(r *run, id int, rng *rand.Rand, mix Mix) *caller {
	k := &caller{client: newClient(r.c), r: r, mix: mix, avoid: map[*Node]time.Time{}}
	k.Client = wire.Client[*Node]{World: k, Seen: &r.seen, RNG: rng, ID: id, NextLife: 1000}
	return k
}

func (k *caller) loop(ctx context.Context) {
	defer k.close()
	for ctx.Err() == nil {
		node := k.home
		if node == nil {
			node = k.choose()
		}
		before := len(k.Ops)
		k.step(ctx, node)
		pause := time.Duration(k.RNG.ExpFloat64() * float64(k.mix.Think))
		if len(k.Ops) == before { // nobody there
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
		if n := k.r.anyNode(k.RNG); time.Now().After(k.avoid[n]) {
			return n
		}
	}
	return k.r.anyNode(k.RNG)
}

// avoidFor is how long a client stays away from a node that did not answer.
const avoidFor = 2 * time.Second

// Now implements wire.World.
func (k *caller) Now() time.Duration { return k.r.now() }

// Name implements wire.World.
func (k *caller) Name(n *Node) string { return n.Name }

// Call implements wire.World. It notes when the node did not answer, or could not.
func (k *caller) Call(ctx context.Context, n *Node, q wire.Request) (wire.Answer, error) {
	a, err := k.call(ctx, n, q)
	if err != nil || a.Code >= http.StatusInternalServerError {
		k.avoid[n] = time.Now().Add(avoidFor)
	}
	return a, err
}

// Garbled implements wire.World: processes that are killed and disks that are damaged
// may cut an answer short.
func (k *caller) Garbled(*history.Op, wire.Answer, error) {}

// Item implements wire.World.
func (k *caller) Item(o *wire.Object) history.Item { return itemOf(o) }

// ObjectPath implements wire.World.
func (k *caller) ObjectPath(key string) string { return collection + "/" + key }

// CollectionPath implements wire.World: all objects are in one namespace.
func (k *caller) CollectionPath(string) string { return collection }

// step makes one operation. One that has begun is not given up at the end of the
// load: its outcome would be unknown for no reason.
func (k *caller) step(_ context.Context, n *Node) {
	ctx := context.Background()
	key := k.r.key(k.RNG)
	if k.RNG.Float64() < k.mix.Writes {
		k.write(ctx, n, k.chooseWrite(key))
		return
	}
	if k.RNG.IntN(2) == 0 {
		op := history.Op{Kind: history.Get, Key: key}
		k.mode(&op, k.chooseMode(3))
		k.Get(ctx, n, op)
	} else {
		k.list(ctx, n)
	}
}

func (k *caller) chooseWrite(key string) history.Op {
	switch dice := k.RNG.IntN(20); {
	case dice < 4:
		return history.Op{Kind: history.Create, Key: key}
	case dice < 10:
		return history.Op{Kind: history.Update, Key: key}
	case dice < 16:
		return history.Op{Kind: history.UpdateIf, Key: key, Precondition: k.Expect(key)}
	case dice < 18:
		return history.Op{Kind: history.Delete, Key: key}
	default:
		return history.Op{Kind: history.DeleteIf, Key: key, Precondition: k.Expect(key)}
	}
}

func (k *caller) write(ctx context.Context, n *Node, op history.Op) {
	var body []byte
	if op.Kind != history.Delete && op.Kind != history.DeleteIf {
		op.Value = k.Value("c")
		body = encode(op.Key, op.Value, strings.Repeat("x", k.RNG.IntN(k.mix.Padding+1)), op.Precondition)
	}
	q := k.WriteRequest(&op, body)
	if op.Kind == history.Update && k.RNG.IntN(3) == 0 {
		wire.MergePatch(&q)
	}
	if k.Write(ctx, n, op, q) == history.OK {
		k.r.acked.Add(1)
	}
}

func (k *caller) chooseMode(n int) int {
	if k.mix.MostRecent {
		return 0
	}
	return k.RNG.IntN(n)
}

// mode chooses how fresh a read must be: 0 Most Recent, 1 Any, 2 Not older than,
// 3 Exact.
func (k *caller) mode(op *history.Op, mode int) {
	switch mode {
	case 0:
		op.Mode = history.MostRecent
	case 1:
		op.Mode = history.Any
	case 2:
		op.Mode, op.Asked = history.NotOlderThan, k.Seen.Around(k.RNG, 50, 2)
	case 3:
		op.Mode, op.Asked = history.Exact, max(k.Seen.Around(k.RNG, k.mix.Back, 0), k.r.from)
	}
}

// list makes a list, half of the time in pages from several nodes.
func (k *caller) list(ctx context.Context, n *Node) {
	op := history.Op{Kind: history.List}
	mode := k.chooseMode(4)
	k.mode(&op, mode)
	var selector url.Values
	switch dice := k.RNG.IntN(8); {
	case dice == 0:
		op.Prefix = k.r.key(k.RNG)
		selector = url.Values{"fieldSelector": {"metadata.name=" + op.Prefix}}
	case dice < 5 && (mode == 0 || mode == 3):
		op.Limit = 1 + k.RNG.IntN(6)
	}
	k.List(ctx, n, op, selector, func(n *Node) *Node {
		if k.home != nil {
			return n
		}
		return k.choose()
	})
}
