package sim

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quorate/quorate/internal/must"
	"github.com/quorate/quorate/proto"
	"github.com/quorate/quorate/raftstore"
)

// silenceRun runs a test on a cluster with the default timing, in virtual time.
func silenceRun(t *testing.T, voters int, test func(t *testing.T, c *cluster)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		p := newProfile(1, rand.New(rand.NewPCG(1, 0)))
		p.voters, p.nonvoters, p.network, p.sync, p.double, p.slow = voters, 1, time.Millisecond, 2*time.Millisecond, 0, 0
		p.lazy, p.timing = 0, raftstore.Timing{}
		p.limits = raftstore.Limits{}
		p.segment = 0 // as in production: each new segment costs more syncs
		c := newCluster(p, 1, t.TempDir(), nil)
		defer func() {
			c.mendAll()
			c.close()
			time.Sleep(5 * time.Minute) // timers of what has ended
			for _, b := range c.broken {
				t.Error(b)
			}
		}()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		must.OK(t, c.form(ctx))
		time.Sleep(5 * time.Second) // all have heard the leader
		test(t, c)
	})
}

// mendAll ends all faults of links, processes and disks.
func (c *cluster) mendAll() {
	c.net.heal()
	for _, s := range c.members() {
		if n := s.running(); n != nil {
			n.host.pause(false)
			n.disk.set(func(d *drive) { d.slow = 0 })
		}
	}
}

// slowDisk makes a sync take 0.75 to 1.5 s.
func slowDisk(n *node) { n.disk.set(func(d *drive) { d.slow = 750 * time.Millisecond }) }

func (c *cluster) term() uint64 { return c.leader().store.Status().Term }

func putKey(ctx context.Context, s *raftstore.Store, key string) error {
	_, err := s.Propose(ctx, &proto.Write{Table: "t", Key: key, Op: proto.Op_OP_PUT, Value: []byte("v")})
	return err
}

// cutFrom cuts the way of one machine to others.
func (c *cluster) cutFrom(n *node, out, in bool, others ...*node) {
	for _, o := range others {
		if out {
			c.net.setCut(n.name, o.name, true, false)
		}
		if in {
			c.net.setCut(o.name, n.name, true, false)
		}
	}
}

// others are the machines but one.
func (c *cluster) others(of *node) (out []*node) {
	for _, s := range c.members() {
		if n := s.running(); n != nil && n != of {
			out = append(out, n)
		}
	}
	return out
}

// TestSilentLeader: whatever makes a leader silent, and whether its disk is slow meanwhile or not,
// writes and linearizable reads that other nodes had been given just before and while it is
// are answered within two seconds, without one that fails.
func TestSilentLeader(t *testing.T) {
	const within = 2 * time.Second
	for _, fault := range []struct {
		name string
		do   func(c *cluster, l *node)
	}{
		{"paused", func(_ *cluster, l *node) { l.host.pause(true) }},
		{"cut off", func(c *cluster, l *node) { c.cutFrom(l, true, true, c.others(l)...) }},
		{"hears nothing", func(c *cluster, l *node) { c.cutFrom(l, false, true, c.others(l)...) }},
		{"is not heard", func(c *cluster, l *node) { c.cutFrom(l, true, false, c.others(l)...) }},
		{"its machine vanishes", func(_ *cluster, l *node) { l.crash(true, false) }},
	} {
		for _, voters := range []int{3, 5} {
			for _, slow := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s/%d voters/slow disk %v", fault.name, voters, slow), func(t *testing.T) {
					silenceRun(t, voters, func(t *testing.T, c *cluster) {
						l := c.leader()
						others := c.others(l)
						ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
						defer cancel()
						if slow {
							slowDisk(l)
							go func() { _ = putKey(ctx, l.store, "on the slow disk") }()
							time.Sleep(100 * time.Millisecond)
						}
						began := time.Now()
						fault.do(c, l)
						results := make(chan error)
						asked := 0
						ask := func(what string, f func() error) {
							asked++
							go func() {
								err := f()
								if took := time.Since(began); err == nil && took > within {
									err = fmt.Errorf("only %v after the fault", took)
								}
								if err != nil {
									err = fmt.Errorf("%s: %w", what, err)
								}
								results <- err
							}()
						}
						for time.Since(began) < within/2 {
							for _, o := range others {
								at := time.Since(began)
								ask(fmt.Sprintf("write through %s at %v", o.name, at), func() error {
									return putKey(ctx, o.store, fmt.Sprint(o.name, at))
								})
								ask(fmt.Sprintf("read on %s at %v", o.name, at), func() error {
									_, err := o.store.ReadIndex(ctx)
									return err
								})
							}
							time.Sleep(100 * time.Millisecond)
						}
						for range asked {
							if err := <-results; err != nil {
								t.Error(err)
							}
						}
						t.Logf("all are answered %v after the fault, term %d", time.Since(began), c.term())
					})
				})
			}
		}
	}
}

// TestSlowDisksKeepTheirLeader: an hour in which every sync of every disk takes 0.75 to 1.5 s has no
// election, and the writes succeed. (Ten minutes with five voters.)
func TestSlowDisksKeepTheirLeader(t *testing.T) {
	for voters, length := range map[int]time.Duration{3: time.Hour, 5: 10 * time.Minute} {
		t.Run(fmt.Sprint(voters), func(t *testing.T) {
			silenceRun(t, voters, func(t *testing.T, c *cluster) {
				l, term := c.leader(), c.term()
				ctx, cancel := context.WithTimeout(t.Context(), length)
				defer cancel()
				var written, failed atomic.Int64
				ended := make(chan struct{})
				nodes := append(c.others(l), l)
				for _, n := range nodes {
					slowDisk(n)
				}
				for i, n := range nodes {
					go func() {
						for k := 0; sleep(ctx, time.Second) == nil; k++ {
							switch err := putKey(ctx, n.store, fmt.Sprint(i, "/", k%100)); {
							case err == nil:
								written.Add(1)
							case !errors.Is(err, context.DeadlineExceeded):
								failed.Add(1)
							}
						}
						ended <- struct{}{}
					}()
				}
				for range nodes {
					<-ended
				}
				t.Logf("%d writes, %d failed", written.Load(), failed.Load())
				if c.leader() != l || c.term() != term {
					t.Errorf("term %d has become %d", term, c.term())
				}
				if failed.Load() > 0 {
					t.Errorf("%d of %d writes failed", failed.Load(), written.Load())
				}
			})
		})
	}
}

// TestHealthyLeaderStays: a voter that hears the leader no more, or nobody, or that stands still,
// takes no leadership away from one that a majority hears.
func TestHealthyLeaderStays(t *testing.T) {
	for _, fault := range []struct {
		name string
		do   func(c *cluster, l *node, some []*node)
	}{
		{"cut from the leader", func(c *cluster, l *node, some []*node) { c.cutFrom(l, true, true, some...) }},
		{"the leader does not hear them", func(c *cluster, l *node, some []*node) { c.cutFrom(l, false, true, some...) }},
		{"they do not hear the leader", func(c *cluster, l *node, some []*node) { c.cutFrom(l, true, false, some...) }},
		{"cut from all", func(c *cluster, _ *node, some []*node) {
			for _, n := range some {
				c.cutFrom(n, true, true, c.others(n)...)
			}
		}},
		{"they stand still", func(_ *cluster, _ *node, some []*node) {
			for _, n := range some {
				n.host.pause(true)
			}
		}},
	} {
		for voters, few := range map[int]int{3: 1, 5: 2} {
			t.Run(fmt.Sprintf("%s/%d of %d", fault.name, few, voters), func(t *testing.T) {
				silenceRun(t, voters, func(t *testing.T, c *cluster) {
					l, term := c.leader(), c.term()
					var some []*node
					for _, n := range c.others(l) {
						if n.name[0] == 'n' && len(some) < few {
							some = append(some, n)
						}
					}
					fault.do(c, l, some)
					time.Sleep(10 * time.Second)
					c.net.heal()
					for _, n := range some {
						n.host.pause(false)
					}
					time.Sleep(30 * time.Second)
					if c.leader() != l || c.term() != term {
						t.Errorf("term %d has become %d", term, c.term())
					}
					if err := putKey(t.Context(), some[0].store, "k"); err != nil {
						t.Error(err)
					}
				})
			})
		}
	}
}

// TestRefusedCandidate: a voter that could not reach the leader, and was refused by one that could, is a
// candidate that begins again at its election timeout. When the leader falls silent, the other one does not
// wait for it, although it would be the better leader.
func TestRefusedCandidate(t *testing.T) {
	const within = 2 * time.Second // as long as any silent leader takes
	silenceRun(t, 3, func(t *testing.T, c *cluster) {
		l := c.leader()
		var voters []*node
		for _, o := range c.others(l) {
			if o.store.Role() == "follower" {
				voters = append(voters, o)
			}
		}
		slices.SortFunc(voters, func(a, b *node) int { return strings.Compare(a.store.Status().NodeId, b.store.Status().NodeId) })
		other, refused := voters[0], voters[1] // of two with the same log, the one with the greater id leads
		c.cutFrom(refused, true, true, l)
		for refused.store.Role() != "candidate" {
			time.Sleep(100 * time.Millisecond)
		}
		time.Sleep(1500 * time.Millisecond) // its campaign has come to nothing
		if l.store.Role() != "leader" {
			t.Fatal("a minority has deposed the leader")
		}
		began := time.Now()
		l.host.pause(true)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		for putKey(ctx, other.store, "k") != nil {
			time.Sleep(10 * time.Millisecond)
		}
		if took := time.Since(began); took > within {
			t.Errorf("no leader for %v", took)
		}
	})
}
