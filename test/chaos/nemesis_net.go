//go:build linux && amd64

package chaos

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/quorate/quorate/test/chaos/host"

	"github.com/quorate/quorate/test/judges/wire"
)

// link sets what happens to packets from some nodes to others.
func (r *run) link(from, to []*Node, f host.Link) {
	for _, a := range from {
		for _, b := range to {
			if a != b {
				r.c.Switch.Set(a.addr, b.addr, f)
			}
		}
	}
}

var cutLink = host.Link{Cut: true}

// others returns the nodes of the cluster without some.
func (r *run) others(without ...*Node) []*Node {
	var out []*Node
next:
	for _, n := range r.targets() {
		for _, w := range without {
			if n == w {
				continue next
			}
		}
		out = append(out, n)
	}
	return out
}

// split cuts every link between some nodes and the others for a while.
func (r *run) split(ctx context.Context, kind string, d time.Duration, side ...*Node) {
	defer r.fault(kind, "", false, side...)()
	r.isolate(side...)
	rest(ctx, d)
	r.c.Switch.Heal()
}

// isolate cuts every link between some nodes and the others.
func (r *run) isolate(side ...*Node) {
	others := r.others(side...)
	r.link(side, others, cutLink)
	r.link(others, side, cutLink)
}

// partitions cuts the network in all the ways there are, one after the other.
func partitions(ctx context.Context, r *run) error {
	ways := []func(context.Context, *run, *Node) error{isolateLeader, minority, bridge, oneWay, flapping, undialled}
	for round := 0; ctx.Err() == nil; round++ {
		leader, err := r.leader(ctx)
		if err != nil {
			return ended(ctx, err)
		}
		if err := ways[round%len(ways)](ctx, r, leader); err != nil {
			return ended(ctx, err)
		}
		rest(ctx, between(r.rng, 500*time.Millisecond, 2*time.Second))
	}
	return nil
}

func isolateLeader(ctx context.Context, r *run, leader *Node) error {
	r.split(ctx, "isolate leader", between(r.rng, 2*time.Second, 5*time.Second), leader)
	return nil
}

// minority cuts off a random follower.
func minority(ctx context.Context, r *run, leader *Node) error {
	followers := r.followers(leader)
	r.split(ctx, "minority", between(r.rng, time.Second, 4*time.Second), followers[r.rng.IntN(len(followers))])
	return nil
}

// bridge lets two nodes see each other only through what a third tells them.
func bridge(ctx context.Context, r *run, leader *Node) error {
	followers := r.followers(leader)
	a, b := []*Node{leader}, followers[:1]
	if r.rng.IntN(2) == 0 { // the leader is the bridge
		a = followers[1:]
	}
	defer r.fault("bridge", "", false, append(a, b...)...)()
	r.link(a, b, cutLink)
	r.link(b, a, cutLink)
	rest(ctx, between(r.rng, 2*time.Second, 4*time.Second))
	r.c.Switch.Heal()
	return nil
}

// oneWay lets a leader talk and not hear, or hear and not talk.
func oneWay(ctx context.Context, r *run, leader *Node) error {
	from, to := []*Node{leader}, r.others(leader)
	if r.rng.IntN(2) == 0 {
		from, to = to, from
	}
	defer r.fault("one-way", "", false, from...)()
	r.link(from, to, cutLink)
	rest(ctx, between(r.rng, 2*time.Second, 5*time.Second))
	r.c.Switch.Heal()
	return nil
}

// undialled lets nobody open a connection to the leader, as its firewall might: what is
// sent is dropped without an answer. A follower that starts then has none, and serves
// all the same: it is asked and asks over what the leader opens.
func undialled(ctx context.Context, r *run, leader *Node) error {
	followers := r.followers(leader)
	f := followers[r.rng.IntN(len(followers))]
	defer r.fault("undialled", "", false, leader)()
	defer r.c.Switch.Heal()
	r.link(r.others(leader), []*Node{leader}, host.Link{NoDial: true})
	// It waits until the node is ready, which it is not without the leader.
	return r.killAndStart(ctx, 0, f)
}

// flapping cuts and heals a node's links every 50 to 500 ms.
func flapping(ctx context.Context, r *run, leader *Node) error {
	victim := []*Node{leader}
	if r.rng.IntN(2) == 0 {
		victim = r.followers(leader)[:1]
	}
	defer r.fault("flapping", "", false, victim...)()
	for until := time.Now().Add(4 * time.Second); time.Now().Before(until) && ctx.Err() == nil; {
		r.isolate(victim...)
		rest(ctx, between(r.rng, 50*time.Millisecond, 500*time.Millisecond))
		r.c.Switch.Heal()
		rest(ctx, between(r.rng, 50*time.Millisecond, 500*time.Millisecond))
	}
	return nil
}

// badLinks makes all links slow, lossy and disorderly in turn.
func badLinks(ctx context.Context, r *run) error {
	faults := []struct {
		kind string
		link host.Link
	}{
		{"delay", host.Link{Delay: 75 * time.Millisecond, Jitter: 50 * time.Millisecond}},
		{"loss", host.Link{Loss: 0.1}},
		{"duplicate and reorder", host.Link{Duplicate: 0.3, Reorder: 0.3}},
		{"loss of half", host.Link{Loss: 0.5}},
		{"everything", host.Link{Delay: 20 * time.Millisecond, Jitter: 20 * time.Millisecond, Loss: 0.05, Duplicate: 0.1, Reorder: 0.2}},
	}
	for round := 0; ctx.Err() == nil; round++ {
		f := faults[round%len(faults)]
		over := r.fault(f.kind, "all links", false, r.targets()...)
		r.link(r.targets(), r.targets(), f.link)
		rest(ctx, between(r.rng, 3*time.Second, 5*time.Second))
		r.c.Switch.Heal()
		over()
		rest(ctx, 500*time.Millisecond)
	}
	return nil
}

// losingSide cuts off the leader with the non-voter: two nodes of four, one vote
// of three. That side must serve nothing fresh; the other must go on.
func losingSide(ctx context.Context, r *run) error {
	var nonvoter *Node
	for _, n := range r.targets() {
		if n.nonvoter {
			nonvoter = n
		}
	}
	k := newClient(r.c)
	defer k.close()
	for ctx.Err() == nil {
		leader, err := r.leader(ctx)
		if err != nil {
			return ended(ctx, err)
		}
		side := []*Node{leader, nonvoter}
		over := r.fault("leader and non-voter cut off", "", false, side...)
		r.isolate(side...)
		// A request that came before the cut may still be answered.
		rest(ctx, 2*time.Second)
		begin := r.acked.Load()
		for until := time.Now().Add(3 * time.Second); time.Now().Before(until) && ctx.Err() == nil; {
			for _, n := range side {
				if err := r.servesNothingFresh(ctx, k, n); err != nil {
					r.fail("%v", err)
				}
			}
		}
		if ctx.Err() == nil && r.acked.Load() == begin {
			r.fail("the majority acknowledged nothing in 3 s")
		}
		r.c.Switch.Heal()
		over()
		rest(ctx, 2*time.Second)
	}
	return nil
}

// servesNothingFresh asks a node that has no quorum: Most Recent must fail, with
// how long to wait before the next try, and any state must be served.
func (r *run) servesNothingFresh(ctx context.Context, k *client, n *Node) error {
	began := time.Now()
	a, err := k.call(ctx, n, wire.Request{Method: http.MethodGet, Path: collection})
	switch {
	case err != nil:
		return ended(ctx, fmt.Errorf("%s: a Most Recent list without a quorum: %w", n.Name, err))
	case a.Code == http.StatusOK:
		return fmt.Errorf("%s served a Most Recent list without a quorum", n.Name)
	case a.Header.Get("Retry-After") == "":
		return fmt.Errorf("%s: %d without Retry-After: %s", n.Name, a.Code, a.Body)
	case time.Since(began) > 4*time.Second:
		return fmt.Errorf("%s: it took %s to refuse", n.Name, time.Since(began))
	}
	r.count("fresh reads refused without quorum", 1)
	a, err = k.call(ctx, n, wire.Request{Method: http.MethodGet, Path: collection, Query: url.Values{"resourceVersion": {"0"}}})
	if err != nil || a.Code != http.StatusOK {
		return ended(ctx, fmt.Errorf("%s: a list of any state without a quorum: %d %s %w", n.Name, a.Code, a.Body, err))
	}
	r.count("any reads served without quorum", 1)
	return nil
}

// blackhole cuts a follower off until the others have dropped the log that it
// needs, so that only a snapshot helps.
func blackhole(ctx context.Context, r *run) error {
	for ctx.Err() == nil {
		leader, err := r.leader(ctx)
		if err != nil {
			return ended(ctx, err)
		}
		victim := r.followers(leader)[0]
		before, err := victim.metric(ctx, "quorate_snapshots_installed_total")
		if err != nil {
			return ended(ctx, err)
		}
		over := r.fault("blackhole", "until a snapshot is needed", false, victim)
		r.isolate(victim)
		err = r.awaitAcks(ctx, 350, time.Minute) // several times --trailing-logs
		r.c.Switch.Heal()
		over()
		if err != nil {
			return ended(ctx, err)
		}
		if err := await(ctx, 30*time.Second, victim.Name+" installs a snapshot", func() error {
			now, err := victim.metric(ctx, "quorate_snapshots_installed_total")
			if err == nil && now == before {
				err = errors.New("none yet")
			}
			return err
		}); err != nil {
			return ended(ctx, err)
		}
		r.count("snapshots installed", 1)
	}
	return nil
}

// metric returns the value of a metric without labels; one that does not show is 0.
func (n *Node) metric(ctx context.Context, name string) (v float64, err error) {
	k := newClient(n.c)
	defer k.close()
	a, err := k.call(ctx, n, wire.Request{Method: http.MethodGet, Path: "/metrics"})
	if err != nil || a.Code != http.StatusOK {
		return 0, fmt.Errorf("%s: metrics: %d %w", n.Name, a.Code, err)
	}
	for line := range strings.Lines(string(a.Body)) {
		if value, ok := strings.CutPrefix(line, name+" "); ok {
			_, err = fmt.Sscan(value, &v)
		}
	}
	return v, err
}
