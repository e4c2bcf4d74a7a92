package fairness

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/quorate/quorate/internal/must"
	v1 "k8s.io/api/flowcontrol/v1"
	"k8s.io/apiserver/pkg/apis/flowcontrol/bootstrap"
)

// cluster is the configuration of a new cluster.
func cluster() (schemas []*v1.FlowSchema, levels []*v1.PriorityLevelConfiguration) {
	return slices.Concat(bootstrap.MandatoryFlowSchemas, bootstrap.SuggestedFlowSchemas),
		slices.Concat(bootstrap.MandatoryPriorityLevelConfigurations, bootstrap.SuggestedPriorityLevelConfigurations)
}

// TestBootstrap: testdata/bootstrap.txt has the objects of a new cluster as the Kubernetes that is linked
// makes them. What a new one changes is read here first; -update writes it.
func TestBootstrap(t *testing.T) {
	var b strings.Builder
	line := func(kind, name string, spec any) {
		raw, err := json.Marshal(spec)
		must.OK(t, err)
		fmt.Fprintln(&b, kind, name, string(raw))
	}
	schemas, levels := cluster()
	for _, p := range levels {
		line("PriorityLevelConfiguration", p.Name, p.Spec)
	}
	for _, f := range schemas {
		line("FlowSchema", f.Name, f.Spec)
	}
	if *update {
		must.OK(t, os.WriteFile("testdata/bootstrap.txt", []byte(b.String()), 0o600))
	}
	want, err := os.ReadFile("testdata/bootstrap.txt")
	must.OK(t, err)
	if d := cmp.Diff(string(want), b.String()); d != "" {
		t.Errorf("-recorded +linked: %s", d)
	}
}

func newController(t testing.TB, seats int) *Controller {
	t.Helper()
	c := New(seats, slog.New(slog.DiscardHandler))
	c.Digest(cluster())
	return c
}

// TestClassify: which schema a new cluster finds for whom.
func TestClassify(t *testing.T) {
	c := newController(t, 600)
	authenticated := "system:authenticated"
	for _, row := range []struct {
		user, group, verb, what string // what: "/path" or "group/resource[/sub] namespace"
		want                    string
	}{
		{"admin", "system:masters", "get", "/healthz", "exempt"},
		{"admin", "system:masters", "list", "/pods default", "exempt"},
		{"system:anonymous", "system:unauthenticated", "get", "/readyz", "probes"},
		{"system:anonymous", "system:unauthenticated", "get", "/readyz/ping", "probes"},
		{"system:anonymous", "system:unauthenticated", "get", "/readyzz", "global-default"},
		{"system:anonymous", "system:unauthenticated", "post", "/readyz", "global-default"},
		{"system:kube-scheduler", authenticated, "update", "coordination.k8s.io/leases kube-system", "system-leader-election"},
		{"system:kube-scheduler", authenticated, "delete", "coordination.k8s.io/leases kube-system", "kube-scheduler"},
		{"system:kube-controller-manager", authenticated, "list", "/pods ", "kube-controller-manager"},
		{"system:node:n", "system:nodes", "patch", "/nodes/status ", "system-node-high"},
		{"system:node:n", "system:nodes", "patch", "/nodes/other ", "system-nodes"},
		{"system:node:n", "system:nodes", "update", "coordination.k8s.io/leases kube-node-lease", "system-node-high"},
		{"system:node:n", "system:nodes", "list", "/pods ", "system-nodes"},
		{"system:serviceaccount:kube-system:x", "system:serviceaccounts", "list", "/pods ", "kube-system-service-accounts"},
		{"system:serviceaccount:kube-systemx:x", "system:serviceaccounts", "list", "/pods ", "service-accounts"},
		{"system:serviceaccount:default:x", "system:serviceaccounts", "list", "/pods ", "service-accounts"},
		{"alice", authenticated, "list", "/pods default", "global-default"},
		{"alice", "nobody", "list", "/pods default", "catch-all"},
	} {
		r := Request{User: row.user, Groups: []string{row.group, authenticated}, Verb: row.verb, Path: row.what}
		if row.group == "nobody" || row.group == "system:unauthenticated" {
			r.Groups = r.Groups[:1]
		}
		parseWhat(t, row.what, &r)
		class := c.Classify(&r)
		if got, _ := class.Names(); got != row.want {
			t.Errorf("%s (%s) %s %s: %s, want %s", row.user, row.group, row.verb, row.what, got, row.want)
		}
	}
}

func parseWhat(t *testing.T, what string, r *Request) {
	t.Helper()
	at := slices.Index([]byte(what), ' ')
	if at < 0 {
		return
	}
	r.IsResource, r.Namespace = true, what[at+1:]
	parts := append(splitSlash(what[:at]), "")
	r.Group, r.Resource, r.Subresource = parts[0], parts[1], parts[2]
}

func splitSlash(s string) (out []string) {
	from := 0
	for i := range s {
		if s[i] == '/' {
			out = append(out, s[from:i])
			from = i + 1
		}
	}
	return append(out, s[from:])
}

// TestDeal: hands hold different cards, and all cards come about equally often.
func TestDeal(t *testing.T) {
	const deck, size, hands = 128, 6, 100_000
	counts := make([]int, deck)
	for range hands {
		var cards [maxHand]int
		hand := deal(rand.Uint64(), deck, size, &cards)
		for i, card := range hand {
			if card < 0 || card >= deck || i > 0 && card <= hand[i-1] {
				t.Fatalf("hand %v", hand)
			}
			counts[card]++
		}
	}
	want := float64(hands) * size / deck
	for card, n := range counts {
		if math.Abs(float64(n)-want) > 6*math.Sqrt(want) {
			t.Errorf("card %d came %d times, want about %.0f", card, n, want)
		}
	}
}

// TestDivide: what is divided adds up, within the bounds, in proportion.
func TestDivide(t *testing.T) {
	for seed := range uint64(1000) {
		rng := rand.New(rand.NewPCG(seed, 1))
		var wants []want
		var low, high float64
		for range 1 + rng.IntN(8) {
			w := want{low: float64(rng.IntN(50))}
			w.target = w.low + float64(rng.IntN(100))
			w.high = w.low + float64(rng.IntN(600))
			low, high = low+w.low, high+w.high
			wants = append(wants, w)
		}
		sum := low + rng.Float64()*(high-low)
		shares, fair := divide(sum, wants)
		var total float64
		for i, s := range shares {
			total += s
			if s < wants[i].low-1e-6 || s > wants[i].high+1e-6 {
				t.Errorf("seed %d: share %v of %+v", seed, s, wants[i])
			}
		}
		if math.Abs(total-sum) > 1e-3*max(1, sum) {
			t.Errorf("seed %d: %v, want %v (fair %v): %v of %+v", seed, total, sum, fair, shares, wants)
		}
	}
}

// limited is a controller with one level of ours, whose requests of user u are
// one flow, and the class of such a request.
func limited(seats, queues, hand, length int) (c *Controller, class func(user string) Class) {
	p := &v1.PriorityLevelConfiguration{}
	p.Name = "test"
	share, none := int32(1), int32(0)
	p.Spec = v1.PriorityLevelConfigurationSpec{Type: v1.PriorityLevelEnablementLimited, Limited: &v1.LimitedPriorityLevelConfiguration{
		NominalConcurrencyShares: &share, LendablePercent: &none, BorrowingLimitPercent: &none,
		LimitResponse: v1.LimitResponse{Type: v1.LimitResponseTypeReject},
	}}
	if queues > 0 {
		p.Spec.Limited.LimitResponse = v1.LimitResponse{Type: v1.LimitResponseTypeQueue, Queuing: &v1.QueuingConfiguration{
			Queues: int32(queues), HandSize: int32(hand), QueueLengthLimit: int32(length)}}
	}
	f := &v1.FlowSchema{}
	f.Name = "test"
	f.Spec = v1.FlowSchemaSpec{
		PriorityLevelConfiguration: v1.PriorityLevelConfigurationReference{Name: "test"}, MatchingPrecedence: 5,
		DistinguisherMethod: &v1.FlowDistinguisherMethod{Type: v1.FlowDistinguisherMethodByUserType},
		Rules: []v1.PolicyRulesWithSubjects{{
			Subjects:         []v1.Subject{{Kind: v1.SubjectKindUser, User: &v1.UserSubject{Name: "*"}}},
			NonResourceRules: []v1.NonResourcePolicyRule{{Verbs: []string{"*"}, NonResourceURLs: []string{"*"}}},
		}},
	}
	// catch-all has 5 shares beside the level's 1.
	c = New(6*seats, slog.New(slog.DiscardHandler))
	c.Digest([]*v1.FlowSchema{f}, []*v1.PriorityLevelConfiguration{p})
	return c, func(user string) Class { return c.Classify(&Request{User: user, Verb: "get", Path: "/x"}) }
}

// TestElephantAndMouse: one user with a hundred clients takes no more from another
// with four than half of the seats, and makes it wait no longer than a few
// requests take.
func TestElephantAndMouse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const seats, each = 8, 10 * time.Millisecond
		_, class := limited(seats, 64, 6, 50)
		ctx, stop := context.WithTimeout(t.Context(), 5*time.Second)
		defer stop()
		var mu sync.Mutex
		done, refused := map[string]int{}, map[string]int{}
		var waited time.Duration
		var wg sync.WaitGroup
		client := func(user string, pause time.Duration) {
			for ctx.Err() == nil {
				k := class(user)
				var ticket Ticket
				began := time.Now()
				why := k.Enter(ctx, &ticket, One, 15*time.Second, false)
				if why == Admitted {
					if user == "mouse" {
						mu.Lock()
						waited = max(waited, time.Since(began))
						mu.Unlock()
					}
					time.Sleep(each)
					ticket.Release()
				}
				mu.Lock()
				if why == Admitted {
					done[user]++
				} else if ctx.Err() == nil {
					refused[user]++
				}
				mu.Unlock()
				if why != Admitted {
					time.Sleep(time.Second) // Retry-After
				}
				time.Sleep(pause)
			}
		}
		for range 400 {
			wg.Go(func() { client("elephant", 0) })
		}
		for range 4 {
			wg.Go(func() { client("mouse", 10*time.Millisecond) })
		}
		wg.Wait()
		// Without others the mouse would do 4 clients / 20 ms = 200/s: 1,000.
		if done["mouse"] < 600 {
			t.Errorf("the mouse did %d requests, want most of 1000; the elephant %d", done["mouse"], done["elephant"])
		}
		if waited > 10*each {
			t.Errorf("the mouse waited for up to %s", waited)
		}
		if refused["mouse"] > 0 || refused["elephant"] == 0 {
			t.Errorf("refused: %v", refused)
		}
		if total := done["mouse"] + done["elephant"]; total < 5*seats*90 {
			t.Errorf("%d requests on %d seats in 5 s: seats were idle", total, seats)
		}
	})
}

// TestWideLeavesRoom: lists without end make nobody wait who needs one seat, and
// requests of one seat without end do not keep a list waiting for ever.
func TestWideLeavesRoom(t *testing.T) {
	const seats = 24
	wide := Work{Seats: 10}
	for _, c := range []struct {
		name                    string
		many, one               Work
		manyTake, oneTakes      time.Duration
		manyClients             int
		waits                   time.Duration
		manyAtLeast, oneAtLeast int
	}{
		// Two lists at a time, for five seconds of one second each.
		{"lists", wide, One, time.Second, 5 * time.Millisecond, 40, 0, 10, 90},
		{"wider than the level", Work{Seats: 100}, One, time.Second, 5 * time.Millisecond, 40, 0, 5, 90},
		// A list waits until narrow requests have left the seats that it may have.
		{"narrow", One, wide, 20 * time.Millisecond, 50 * time.Millisecond, 100, 200 * time.Millisecond, 4000, 35},
		// It is charged with a hundred seats, so its turn comes seldom.
		{"narrow, and one wider than the level", One, Work{Seats: 100}, 20 * time.Millisecond, 50 * time.Millisecond, 100, 500 * time.Millisecond, 2000, 10},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				_, class := limited(seats, 64, 6, 50)
				ctx, stop := context.WithTimeout(t.Context(), 5*time.Second)
				defer stop()
				var wg sync.WaitGroup
				var many, one atomic.Int64
				var waited time.Duration
				run := func(user string, w Work, takes time.Duration) (waited time.Duration, ok bool) {
					k := class(user)
					var ticket Ticket
					began := time.Now()
					if k.Enter(ctx, &ticket, w, 15*time.Second, false) != Admitted {
						return 0, false
					}
					waited = time.Since(began)
					time.Sleep(takes)
					ticket.Release()
					return waited, true
				}
				for i := range c.manyClients {
					wg.Go(func() {
						for ctx.Err() == nil {
							if _, ok := run(fmt.Sprint("many-", i%3), c.many, c.manyTake); ok {
								many.Add(1)
							}
						}
					})
				}
				wg.Go(func() {
					time.Sleep(10 * time.Millisecond)
					for ctx.Err() == nil {
						if w, ok := run("one", c.one, c.oneTakes); ok {
							waited = max(waited, w)
							one.Add(1)
						}
						time.Sleep(45 * time.Millisecond)
					}
				})
				wg.Wait()
				if waited > c.waits {
					t.Errorf("the one waited for up to %s, want at most %s", waited, c.waits)
				}
				if one.Load() < int64(c.oneAtLeast) || many.Load() < int64(c.manyAtLeast) {
					t.Errorf("%d of the one, %d of the many, want %d and %d", one.Load(), many.Load(), c.oneAtLeast, c.manyAtLeast)
				}
			})
		})
	}
}

// TestBounds: what is refused, and why.
func TestBounds(t *testing.T) {
	t.Run("queue-full", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			_, class := limited(1, 1, 1, 2)
			k := class("u")
			var first Ticket
			if why := k.Enter(t.Context(), &first, One, time.Second, false); why != Admitted {
				t.Fatal(why)
			}
			results := make(chan Reason, 10)
			for range 3 {
				go func() {
					var ticket Ticket
					why := k.Enter(t.Context(), &ticket, One, time.Second, false)
					if why == Admitted {
						ticket.Release()
					}
					results <- why
				}()
			}
			synctest.Wait()
			if why := <-results; why != QueueFull {
				t.Errorf("the third that waits: %s", why)
			}
			time.Sleep(time.Second)
			for range 2 {
				if why := <-results; why != TimedOut {
					t.Errorf("after its time: %s", why)
				}
			}
			first.Release()
			first.Release() // does nothing
			if why := k.Enter(t.Context(), &first, One, time.Second, false); why != Admitted {
				t.Error(why)
			}
			first.Release()
		})
	})
	t.Run("without queues", func(t *testing.T) {
		_, class := limited(1, 0, 0, 0)
		k := class("u")
		var one, two Ticket
		if why := k.Enter(t.Context(), &one, One, time.Second, false); why != Admitted {
			t.Fatal(why)
		}
		if why := k.Enter(t.Context(), &two, One, time.Second, false); why != ConcurrencyLimit {
			t.Error(why)
		}
		one.Release()
		if why := k.Enter(t.Context(), &two, One, time.Second, false); why != Admitted {
			t.Error(why)
		}
		two.Release()
	})
	t.Run("cancelled", func(t *testing.T) {
		_, class := limited(1, 4, 1, 2)
		k := class("u")
		var one, two Ticket
		k.Enter(t.Context(), &one, One, time.Second, false)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if why := k.Enter(ctx, &two, One, time.Minute, false); why != Cancelled {
			t.Error(why)
		}
		one.Release()
	})
	t.Run("wider than the level", func(t *testing.T) {
		_, class := limited(2, 4, 2, 2)
		k := class("u")
		var wide, other Ticket
		if why := k.Enter(t.Context(), &wide, Work{Seats: 5}, time.Second, false); why != Admitted {
			t.Fatal(why)
		}
		if why := k.Enter(t.Context(), &other, One, time.Millisecond, false); why != TimedOut {
			t.Error(why)
		}
		wide.Release()
	})
}

// TestRefusedReturnsNothing: a request that was refused has no seat to give back,
// whatever it was refused for and however often it says that it has ended.
func TestRefusedReturnsNothing(t *testing.T) {
	for _, x := range []struct {
		why           Reason
		queues, depth int
		cancelled     bool
	}{{QueueFull, 1, 1, false}, {ConcurrencyLimit, 0, 0, false}, {TimedOut, 4, 2, false}, {Cancelled, 4, 2, true}} {
		t.Run(x.why.String(), func(t *testing.T) {
			c, class := limited(2, x.queues, min(x.queues, 1), x.depth)
			k := class("u")
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			var running, refused Ticket
			if why := k.Enter(ctx, &running, Work{Seats: 2}, time.Second, false); why != Admitted {
				t.Fatal(why)
			}
			if x.cancelled {
				cancel()
			}
			waits, stop := context.WithCancel(t.Context())
			defer stop()
			var wg sync.WaitGroup
			if x.why == QueueFull {
				wg.Go(func() {
					var first Ticket
					k.Enter(waits, &first, One, time.Minute, false)
					first.Release()
				})
				for l := c.levels[k.flow.level.name]; ; time.Sleep(time.Millisecond) {
					l.mu.Lock()
					n := l.waiting
					l.mu.Unlock()
					if n == 1 {
						break
					}
				}
			}
			for range 3 {
				if why := k.Enter(ctx, &refused, Work{Seats: 2}, time.Millisecond, false); why != x.why {
					t.Fatal(why)
				}
				refused.Release()
			}
			stop()
			wg.Wait()
			l := c.levels[k.flow.level.name]
			if l.running != 1 || l.inUse != 2 || k.flow.running != 1 || k.flow.seats != 2 {
				t.Errorf("%d requests have %d seats, %d and %d of the flow; one has two", l.running, l.inUse, k.flow.running, k.flow.seats)
			}
			running.Release()
		})
	}
}

// TestReleaseRaces: who ends a request early and the request itself may do so at once.
func TestReleaseRaces(t *testing.T) {
	c, class := limited(100, 4, 1, 2)
	k := class("u")
	for range 200 {
		var ticket Ticket
		if why := k.Enter(t.Context(), &ticket, One, time.Second, false); why != Admitted {
			t.Fatal(why)
		}
		var wg sync.WaitGroup
		for range 2 {
			wg.Go(ticket.Release)
		}
		wg.Wait()
	}
	if l := c.levels[k.flow.level.name]; l.running != 0 || l.inUse != 0 {
		t.Errorf("%d requests have %d seats", l.running, l.inUse)
	}
}

// TestLinger: the seats of a write stay in use for its watchers, and a request that
// waits for them is let in when that is over.
func TestLinger(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, class := limited(2, 4, 2, 2)
		k := class("u")
		var write, read Ticket
		if why := k.Enter(t.Context(), &write, Work{Seats: 1, AfterSeats: 2, After: 100 * time.Millisecond}, time.Second, false); why != Admitted {
			t.Fatal(why)
		}
		write.Release()
		began := time.Now()
		if why := k.Enter(t.Context(), &read, One, time.Second, false); why != Admitted || time.Since(began) != 100*time.Millisecond {
			t.Errorf("%s after %s", why, time.Since(began))
		}
		read.Release()
	})
}

// TestEstimates: what requests cost in a new cluster of 600 seats.
func TestEstimates(t *testing.T) {
	c := newController(t, 600)
	k := c.Classify(&Request{User: "alice", Groups: []string{"system:authenticated"}, IsResource: true, Verb: "list", Resource: "pods"})
	for _, row := range []struct {
		of   Collection
		want int
	}{
		{Collection{}, 1},
		{Collection{Objects: 99, Bytes: 99_999}, 1},
		{Collection{Objects: 200, Bytes: 200_000}, 2},
		{Collection{Objects: 1000, Bytes: 1_000_000, Limit: 500}, 5},
		{Collection{Objects: 1000, Bytes: 1_000_000, Single: true}, 1},
		// global-default has 49 seats and hands of 6: at most 8 seats each.
		{Collection{Objects: 100_000, Bytes: 100_000_000}, 8},
	} {
		if got := k.List(row.of); got.Seats != row.want {
			t.Errorf("%+v: %d seats, want %d", row.of, got.Seats, row.want)
		}
	}
	if w := k.Write(9); w != One {
		t.Errorf("9 watchers: %+v", w)
	}
	if w := k.Write(30); w != (Work{Seats: 1, AfterSeats: 3, After: eventTime}) {
		t.Errorf("30 watchers: %+v", w)
	}
	if w := k.Write(1600); w != (Work{Seats: 1, AfterSeats: 8, After: 20 * eventTime}) {
		t.Errorf("1600 watchers: %+v", w)
	}
}

// TestNewConfiguration: seats are shared, broken objects are left out, a level that
// is gone drains, mandatory ones are imagined.
func TestNewConfiguration(t *testing.T) {
	c := newController(t, 600)
	for name, want := range map[string]int{"exempt": 0, "catch-all": 13, "system": 74, "node-high": 98, "leader-election": 25,
		"workload-high": 98, "workload-low": 245, "global-default": 49} {
		if l := c.levels[name]; l == nil || l.nominal != want {
			t.Errorf("%s: %+v, want %d seats", name, l, want)
		}
	}
	r := &Request{User: "alice", Groups: []string{"system:authenticated"}, IsResource: true, Verb: "list", Resource: "pods"}
	k := c.Classify(r)
	var ticket Ticket
	if why := k.Enter(t.Context(), &ticket, One, time.Second, false); why != Admitted {
		t.Fatal(why)
	}
	c.Digest(nil, nil)
	if c.levels["global-default"] == nil || c.levels["system"] != nil {
		t.Error("a level that is in use must stay, one that is not must go")
	}
	k = c.Classify(r)
	if schema, level := k.Names(); schema != "catch-all" || level != "catch-all" {
		t.Errorf("%s %s", schema, level)
	}
	ticket.Release()
	c.Digest(nil, nil)
	if len(c.levels) != 2 {
		t.Errorf("%d levels are left", len(c.levels))
	}
	schemas, levels := cluster()
	levels[2].Spec.Limited = nil
	c.Digest(schemas, levels)
	if c.levels[levels[2].Name] != nil {
		t.Errorf("a broken level is in use")
	}
}

// TestBorrow: a level that is busy gets what others do not use, and gives it back.
func TestBorrow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newController(t, 600)
		ctx, stop := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		wg.Go(func() { c.Run(ctx) })
		busy := c.Classify(&Request{User: "alice", Groups: []string{"system:authenticated"}, IsResource: true, Verb: "get", Resource: "pods"})
		tickets := make([]Ticket, 200)
		for i := range tickets {
			wg.Go(func() { busy.Enter(t.Context(), &tickets[i], One, time.Minute, false) })
		}
		synctest.Wait()
		l := c.levels["global-default"]
		running := func() int { l.mu.Lock(); defer l.mu.Unlock(); return l.running }
		if n := running(); n > 120 {
			t.Errorf("%d run at once before anything was lent", n)
		}
		time.Sleep(3 * adjustPeriod)
		synctest.Wait()
		if n := running(); n < 190 {
			t.Errorf("%d of 200 run, although nobody else wants seats", n)
		}
		for i := range tickets {
			tickets[i].Release()
		}
		stop()
		wg.Wait()
	})
}

// TestWatchers counts watches as writes see them.
func TestWatchers(t *testing.T) {
	var w Watchers
	for _, x := range []Watched{{Table: "pods"}, {Table: "pods", Namespace: "a"}, {Table: "pods", Namespace: "a", Name: "x"}, {Table: "nodes"}} {
		w.Add(x)
	}
	for of, want := range map[Watched]int{
		{Table: "pods", Namespace: "a", Name: "x"}: 3, {Table: "pods", Namespace: "a", Name: "y"}: 2,
		{Table: "pods", Namespace: "b", Name: "x"}: 1, {Table: "nodes", Name: "n"}: 1, {Table: "secrets", Namespace: "a", Name: "x"}: 0,
	} {
		if got := w.Interested(of); got != want {
			t.Errorf("%+v: %d, want %d", of, got, want)
		}
	}
	w.Remove(Watched{Table: "pods"})
	if len(w.counts) != 3 {
		t.Error(w.counts)
	}
}

// TestConcurrent is for the race detector: requests, configurations and scrapes at
// once, after which nothing is left.
func TestConcurrent(t *testing.T) {
	c, class := limited(4, 8, 2, 4)
	schemas, levels := cluster()
	var wg sync.WaitGroup
	for i := range 16 {
		wg.Go(func() {
			for n := range 300 {
				k := class(fmt.Sprint(i % 3))
				var ticket Ticket
				ctx, cancel := context.WithTimeout(t.Context(), time.Duration(n%3)*time.Millisecond)
				if k.Enter(ctx, &ticket, Work{Seats: 1 + n%3, AfterSeats: n % 4, After: time.Duration(n%2) * time.Millisecond}, time.Millisecond, n%2 == 0) == Admitted {
					ticket.Release()
				}
				cancel()
			}
		})
	}
	wg.Go(func() {
		for n := range 50 {
			c.Digest(schemas[:n%len(schemas)], levels)
			gather(t, c)
		}
	})
	wg.Wait()
	for name, l := range c.levels {
		deadline := time.Now().Add(5 * time.Second)
		for !l.idle() && time.Now().Before(deadline) {
			time.Sleep(time.Millisecond)
		}
		if l.inUse != 0 || l.waiting != 0 || l.waitingSeats != 0 || l.active != 0 || len(l.busy) != 0 {
			t.Errorf("%s is left with %d seats in use, %d requests that wait, %d active queues", name, l.inUse, l.waiting, l.active)
		}
	}
}

func BenchmarkRequest(b *testing.B) {
	c := newController(b, 600)
	for _, r := range []Request{
		{User: "admin", Groups: []string{"system:masters", "system:authenticated"}, IsResource: true, Verb: "get", Resource: "configmaps", Namespace: "default"},
		{User: "alice", Groups: []string{"dev", "system:authenticated"}, IsResource: true, Verb: "get", Resource: "configmaps", Namespace: "default"},
	} {
		b.Run(r.User, func(b *testing.B) {
			b.ReportAllocs()
			var ticket Ticket
			for b.Loop() {
				k := c.Classify(&r)
				if k.Enter(b.Context(), &ticket, One, time.Second, false) != Admitted {
					b.Fatal("refused")
				}
				ticket.Release()
			}
		})
	}
}
