package sim

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/quorate/quorate/test/judges/history"
	"github.com/quorate/quorate/test/judges/wire"
)

// keys are what the clients fight over.
var keys = []string{
	"default/k0", "default/k1", "default/k2", "default/k3", "default/k4", "default/k5",
	"kube-public/k6", "kube-public/k7", "kube-public/k8", "kube-public/k9",
}

// client makes operations, one at a time.
type client struct {
	wire.Client[*seat]
	c *cluster
}

func newClient(c *cluster, id int, rng *rand.Rand) *client {
	return &client{c: c, Client: wire.Client[*seat]{World: world{c}, Seen: &c.seen, RNG: rng, ID: id, NextLife: 100}}
}

// world is where clients live: machines of a cluster, which they ask for service accounts.
type world struct{ c *cluster }

func (w world) Now() time.Duration { return w.c.now() }

func (world) Name(s *seat) string { return s.name }

func (world) Call(ctx context.Context, s *seat, q wire.Request) (wire.Answer, error) {
	return s.call(ctx, q)
}

func (w world) Garbled(op *history.Op, a wire.Answer, err error) {
	w.c.fail("%s %s answered %d with %q: %v", op.Kind, op.Key, a.Code, a.Body, err)
}

func (world) Item(o *wire.Object) history.Item { return itemOf(o) }

func (world) ObjectPath(key string) string { return pathOf(key) }

func (world) CollectionPath(prefix string) string { return collection(prefix) }

func (k *client) run(stop <-chan struct{}) {
	for {
		select {
		case <-stop:
			return
		default:
		}
		time.Sleep(time.Duration(k.RNG.ExpFloat64() * float64(k.c.profile.think)))
		k.step()
	}
}

// step makes one operation against a node.
func (k *client) step() {
	s := k.c.anySeat(k.RNG)
	if s == nil || s.isDrained() {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second+time.Duration(k.RNG.Int64N(int64(3*time.Second))))
	defer cancel()
	key := keys[k.RNG.IntN(len(keys))]
	switch dice := k.RNG.IntN(100); {
	case dice < 14:
		k.write(ctx, s, history.Op{Kind: history.Create, Key: key})
	case dice < 28:
		k.write(ctx, s, history.Op{Kind: history.Update, Key: key})
	case dice < 42:
		k.write(ctx, s, history.Op{Kind: history.UpdateIf, Key: key, Precondition: k.Expect(key)})
	case dice < 48:
		k.write(ctx, s, history.Op{Kind: history.Delete, Key: key})
	case dice < 54:
		k.write(ctx, s, history.Op{Kind: history.DeleteIf, Key: key, Precondition: k.Expect(key)})
	case dice < 75:
		op := history.Op{Kind: history.Get, Key: key}
		k.mode(&op, k.RNG.IntN(3))
		k.Get(ctx, s, op)
	default:
		k.lists(ctx, s)
	}
}

func (k *client) write(ctx context.Context, s *seat, op history.Op) {
	var body []byte
	if op.Kind != history.Delete && op.Kind != history.DeleteIf {
		// Restored clusters hold values of the first one: theirs begin otherwise.
		op.Value = k.Value(s.name[:1])
		body = encode(op.Key, op.Value, op.Precondition)
	}
	q := k.WriteRequest(&op, body)
	if op.Kind == history.Update {
		// Service accounts are not updated without a resourceVersion, but patched.
		wire.MergePatch(&q)
	}
	k.Write(ctx, s, op, q)
}

// mode chooses how fresh a read must be: 0 Most Recent, 1 Any, 2 Not older than,
// 3 Exact.
func (k *client) mode(op *history.Op, mode int) {
	switch mode {
	case 0:
		op.Mode = history.MostRecent
	case 1:
		op.Mode = history.Any
	case 2:
		op.Mode, op.Asked = history.NotOlderThan, k.Seen.Around(k.RNG, 20, 1)
	case 3:
		op.Mode, op.Asked = history.Exact, k.Seen.Around(k.RNG, 40, 0)
	}
}

// lists makes a list, in pages on several nodes half of the time.
func (k *client) lists(ctx context.Context, s *seat) {
	op := history.Op{Kind: history.List}
	if k.RNG.IntN(3) == 0 {
		op.Prefix = "default/"
	}
	mode := k.RNG.IntN(4)
	k.mode(&op, mode)
	if k.RNG.IntN(2) == 0 && mode != 1 && mode != 2 {
		op.Limit = 1 + k.RNG.IntN(4)
	}
	k.List(ctx, s, op, nil, func(s *seat) *seat {
		if next := k.c.anySeat(k.RNG); next != nil {
			s = next
		}
		time.Sleep(time.Duration(k.RNG.Int64N(int64(k.c.profile.think))))
		return s
	})
}
