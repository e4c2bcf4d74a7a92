package fairness

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	v1 "k8s.io/api/flowcontrol/v1"
	"k8s.io/apiserver/pkg/apis/flowcontrol/bootstrap"
)

// Controller holds the configuration in force. Safe for concurrent use.
type Controller struct {
	seats int
	log   *slog.Logger
	born  time.Time

	// schemas are in the order in which they are asked; the last one matches all.
	schemas atomic.Pointer[[]*schema]

	mu      sync.Mutex // guards what follows, and the sharing of the levels
	levels  map[string]*level
	fair    float64
	metrics series
}

// schema is a FlowSchema in use.
type schema struct {
	name       string
	precedence int32
	rules      []v1.PolicyRulesWithSubjects
	by         v1.FlowDistinguisherMethodType // empty: one flow
	exempt     bool
	flow       *flow

	uid, levelUID []string
}

// New returns a Controller with the mandatory configuration. seats is what all
// levels together have: about how many requests may run at once.
func New(seats int, log *slog.Logger) *Controller {
	c := &Controller{seats: seats, log: log, born: time.Now(), levels: map[string]*level{}}
	c.metrics.init()
	c.Digest(nil, nil)
	return c
}

func (c *Controller) now() time.Duration { return time.Since(c.born) }

// Run divides the seats again from time to time, until ctx ends.
func (c *Controller) Run(ctx context.Context) {
	tick := time.NewTicker(adjustPeriod)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			c.mu.Lock()
			c.reap()
			c.adjust()
			c.mu.Unlock()
		}
	}
}

// Classify finds the schema of a request.
func (c *Controller) Classify(r *Request) Class {
	schemas := *c.schemas.Load()
	s := schemas[len(schemas)-1]
	for _, x := range schemas {
		if matches(x.rules, r) {
			s = x
			break
		}
	}
	class := Class{flow: s.flow, schema: s}
	if s.exempt {
		return class
	}
	switch s.by {
	case v1.FlowDistinguisherMethodByUserType:
		class.hash = flowHash(s.name, r.User)
	case v1.FlowDistinguisherMethodByNamespaceType:
		class.hash = flowHash(s.name, r.Namespace)
	default:
		class.hash = flowHash(s.name, "")
	}
	return class
}

// Digest replaces the configuration. Levels that are broken, and schemas whose
// level is missing, are left out; mandatory objects that are missing are imagined.
// Requests that wait or run in a level that is gone end there.
func (c *Controller) Digest(schemas []*v1.FlowSchema, levels []*v1.PriorityLevelConfiguration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	defined := map[string]*v1.PriorityLevelConfiguration{}
	for _, p := range levels {
		if err := check(p); err != nil {
			c.log.Warn("a PriorityLevelConfiguration is not used", "name", p.Name, "err", err)
			continue
		}
		defined[p.Name] = p
	}
	for _, p := range bootstrap.MandatoryPriorityLevelConfigurations {
		if defined[p.Name] == nil {
			defined[p.Name] = p
		}
	}
	for name, l := range c.levels {
		l.wanted = defined[name] != nil
	}
	for name, p := range defined {
		l := c.levels[name]
		if l == nil {
			l = newLevel(name, c.now)
			c.levels[name] = l
		}
		l.wanted = true
		l.configure(p)
	}
	c.reap()
	c.shareOut()
	c.adjust()
	c.order(schemas, defined)
}

// order makes the list of schemas.
func (c *Controller) order(given []*v1.FlowSchema, levels map[string]*v1.PriorityLevelConfiguration) {
	given = slices.Clone(given)
	for _, must := range bootstrap.MandatoryFlowSchemas {
		if !slices.ContainsFunc(given, func(f *v1.FlowSchema) bool {
			return f.Name == must.Name && levels[f.Spec.PriorityLevelConfiguration.Name] != nil
		}) {
			given = append(given, must)
		}
	}
	var list []*schema
	for _, f := range given {
		p := levels[f.Spec.PriorityLevelConfiguration.Name]
		if p == nil {
			continue
		}
		s := &schema{
			name: f.Name, precedence: f.Spec.MatchingPrecedence, rules: f.Spec.Rules,
			exempt: p.Spec.Type == v1.PriorityLevelEnablementExempt,
			uid:    []string{string(f.UID)}, levelUID: []string{string(p.UID)},
		}
		if m := f.Spec.DistinguisherMethod; m != nil {
			s.by = m.Type
		}
		s.flow = c.flowOf(s.name, c.levels[p.Name])
		list = append(list, s)
	}
	slices.SortFunc(list, func(a, b *schema) int {
		// The one that takes everything is the last also among its equals.
		return cmp.Or(cmp.Compare(a.precedence, b.precedence), compareLast(a, b), cmp.Compare(a.name, b.name))
	})
	// What matches nothing belongs to catch-all: the last, whatever its precedence.
	at := slices.IndexFunc(list, func(s *schema) bool { return s.name == v1.FlowSchemaNameCatchAll })
	list = append(list, list[at])
	c.schemas.Store(&list)
}

func compareLast(a, b *schema) int {
	last := func(s *schema) int {
		if s.name == v1.FlowSchemaNameCatchAll {
			return 1
		}
		return 0
	}
	return last(a) - last(b)
}

func (c *Controller) flowOf(name string, l *level) *flow {
	l.mu.Lock()
	defer l.mu.Unlock()
	f := l.flows[name]
	if f == nil {
		f = &flow{schema: name, level: l}
		c.metrics.observers(f)
		l.flows[name] = f
	}
	return f
}

// check refuses what this package could not work with; validation lets nothing of
// it pass.
func check(p *v1.PriorityLevelConfiguration) error {
	limited := p.Spec.Type == v1.PriorityLevelEnablementLimited
	switch {
	case limited != (p.Spec.Limited != nil):
		return fmt.Errorf("type %q does not go with its fields", p.Spec.Type)
	case limited == (p.Name == v1.PriorityLevelConfigurationNameExempt):
		return fmt.Errorf("only the level %q is exempt", v1.PriorityLevelConfigurationNameExempt)
	case !limited:
		return nil
	}
	r := p.Spec.Limited.LimitResponse
	if (r.Type == v1.LimitResponseTypeQueue) != (r.Queuing != nil) {
		return fmt.Errorf("limitResponse %q does not go with its fields", r.Type)
	}
	if q := r.Queuing; q != nil && (q.Queues < 1 || q.HandSize < 1 || q.HandSize > min(q.Queues, maxHand) || q.QueueLengthLimit < 1) {
		return fmt.Errorf("%d queues of %d, hands of %d", q.Queues, q.QueueLengthLimit, q.HandSize)
	}
	return nil
}

// configure takes over what an object says about queues and shares.
func (l *level) configure(p *v1.PriorityLevelConfiguration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.exempt = p.Spec.Limited == nil
	l.deck, l.hand, l.length = 0, 0, 0
	if l.exempt {
		l.shares, l.lends, l.borrows = 0, 0, 0
		if e := p.Spec.Exempt; e != nil {
			l.shares = int(deref(e.NominalConcurrencyShares, 0))
			l.lends = int(deref(e.LendablePercent, 0))
		}
		return
	}
	s := p.Spec.Limited
	l.shares = int(deref(s.NominalConcurrencyShares, 30))
	l.lends = int(deref(s.LendablePercent, 0))
	l.borrows = int(deref(s.BorrowingLimitPercent, unlimited))
	if q := s.LimitResponse.Queuing; q != nil {
		l.deck, l.hand, l.length = int(q.Queues), int(q.HandSize), int(q.QueueLengthLimit)
	}
	// Queues beyond the deck stay until they are empty: who waits there is in busy.
	for len(l.queues) < l.deck {
		l.queues = append(l.queues, &queue{})
	}
	l.queues = l.queues[:l.deck:l.deck]
}

func deref(p *int32, otherwise int32) int32 {
	if p == nil {
		return otherwise
	}
	return *p
}

// unlimited stands for no bound of what a level borrows.
const unlimited = -1

func percent(n, p int) int { return int(math.Round(float64(n) * float64(p) / 100)) }

// shareOut turns shares and percents into seats.
func (c *Controller) shareOut() {
	var sum float64
	for _, l := range c.levels {
		sum += float64(l.shares)
	}
	for _, l := range c.levels {
		l.mu.Lock()
		l.nominal = int(math.Ceil(float64(c.seats) * float64(l.shares) / max(sum, 1)))
		l.low = l.nominal - percent(l.nominal, l.lends)
		l.high = l.nominal + c.seats
		if l.borrows != unlimited {
			l.high = l.nominal + percent(l.nominal, l.borrows)
		}
		l.mostSeats.Store(0)
		if l.deck > 0 {
			// A request is never so wide that a level could not run several.
			most := min(math.Ceil(float64(l.nominal)*0.15), float64(l.nominal/l.hand))
			l.mostSeats.Store(int64(max(1, most)))
		}
		l.mu.Unlock()
	}
}

// reap forgets levels that nobody defines and nobody uses.
func (c *Controller) reap() {
	for name, l := range c.levels {
		if l.wanted || !l.idle() {
			continue
		}
		l.mu.Lock() // a request that was classified before may begin yet
		if l.timer != nil {
			l.timer.Stop()
		}
		l.mu.Unlock()
		c.metrics.forget(l)
		delete(c.levels, name)
	}
}
