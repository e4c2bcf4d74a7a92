package load

import (
	"context"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/quorate/quorate/bench/host"
	"github.com/quorate/quorate/bench/measure"
	"github.com/quorate/quorate/bench/report"
)

// Sweep is a row at rising rates.
type Sweep struct {
	Row    string  `json:"row"`
	Title  string  `json:"title"`
	P99Ms  float64 `json:"boundP99Ms"`
	Errors float64 `json:"boundErrorShare"`
	// Points are by rate. The knee is the highest rate up to which no bound was broken; zero if
	// the first rate broke one.
	Points []SweepPoint `json:"points"`
	Knee   float64      `json:"kneePerSecond"`
	// Why says which bound the next higher rate broke; empty if none was reached.
	Why string `json:"why,omitempty"`
	Cut bool   `json:"cutShort,omitempty"`
}

// SweepPoint is one rate.
type SweepPoint struct {
	Rate      float64         `json:"rate"`
	Due       int64           `json:"due"`
	PerSecond float64         `json:"operationsPerSecond"` // that succeeded within the time
	Errors    int64           `json:"errors"`
	Error     string          `json:"firstError,omitempty"`
	Unsent    int64           `json:"notSent,omitempty"`
	Latency   measure.Latency `json:"latency"`
	LateP99Ms float64         `json:"sentLateP99Ms"` // by the program itself
	CPU       float64         `json:"cpuPerOperation,omitempty"`
	Broken    string          `json:"broken,omitempty"` // the bound
	Again     bool            `json:"again,omitempty"`  // it was measured a second time

	due float64 // per second, as chance made it
}

const (
	sweepFirst = 100.0 // operations per second, if no rate is given
	// followed is how much of what is due must have succeeded when the time is up.
	followed = 0.95
	// halvings is how often the stretch between the last rate that was kept and the first
	// that was not is halved: the knee is known to a twelfth.
	halvings = 3
)

// sweeper raises the rate. at measures one.
type sweeper struct {
	p99    time.Duration
	errors float64
	most   float64
	at     func(ctx context.Context, rate float64) (SweepPoint, error)
}

// run doubles the rate until a bound is broken, twice in a row, and then looks for the knee
// between that rate and the last one that kept them.
func (s *sweeper) run(ctx context.Context, first float64) (out Sweep, err error) {
	kept, broken := 0.0, 0.0
	defer func() {
		slices.SortFunc(out.Points, func(a, b SweepPoint) int { return int(math.Copysign(1, a.Rate-b.Rate)) })
		out.Knee = kept
		for _, p := range out.Points {
			if p.Rate == broken {
				out.Why = fmt.Sprintf("%.0f/s: %s", p.Rate, p.Broken)
			}
		}
		out.Cut = ctx.Err() != nil
	}()
	for rate := first; rate <= s.most; {
		p, err := s.measure(ctx, rate)
		if err != nil {
			return out, err
		}
		out.Points = append(out.Points, p)
		if p.Broken != "" {
			broken = rate
			break
		}
		kept = rate
		if rate *= 2; rate > s.most && kept < s.most {
			rate = s.most
		}
	}
	if broken == 0 || kept == 0 {
		return out, nil
	}
	for range halvings {
		rate := math.Sqrt(kept * broken)
		p, err := s.measure(ctx, rate)
		if err != nil {
			return out, err
		}
		out.Points = append(out.Points, p)
		if p.Broken == "" {
			kept = rate
		} else {
			broken = rate
		}
	}
	return out, nil
}

// measure measures a rate, and once more if it breaks a bound: one slow moment of the
// machine is no knee.
func (s *sweeper) measure(ctx context.Context, rate float64) (SweepPoint, error) {
	p, err := s.at(ctx, rate)
	if err != nil {
		return p, err
	}
	if p.Broken = s.broken(&p); p.Broken == "" {
		return p, nil
	}
	if p, err = s.at(ctx, rate); err != nil {
		return p, err
	}
	p.Again, p.Broken = true, s.broken(&p)
	return p, nil
}

// broken says which bound a point breaks, or "".
func (s *sweeper) broken(p *SweepPoint) string {
	bound := measure.Millis(s.p99)
	switch share := float64(p.Errors) / float64(max(p.Due, 1)); {
	case share > s.errors:
		return fmt.Sprintf("%.2g %% of the operations failed, above %g %%; the first: %.200s", 100*share, 100*s.errors, p.Error)
	case p.LateP99Ms > bound/2:
		return fmt.Sprintf("this program sent %s ms late (p99): the machine has no time left for it", measure.Ms(p.LateP99Ms))
	case p.Latency.Count == 0:
		return "no operation was made"
	case p.Latency.P99Ms > bound:
		return fmt.Sprintf("p99 %s ms, above %s", measure.Ms(p.Latency.P99Ms), measure.Ms(bound))
	case p.Unsent > 0:
		return fmt.Sprintf("not sent: %s; too many were under way", report.Count(p.Unsent, "operation"))
	case p.PerSecond < followed*p.due:
		return fmt.Sprintf("throughput does not follow: %.0f of %.0f/s", p.PerSecond, p.due)
	}
	return ""
}

// sweepRow measures one row at rising rates.
func (b *bench) sweepRow(ctx context.Context, r *row) (*Sweep, error) {
	first := b.Rate
	if first == 0 {
		first = sweepFirst
	}
	s := &sweeper{p99: b.SweepP99, errors: b.SweepErrors, most: maxRate, at: func(ctx context.Context, rate float64) (SweepPoint, error) { return b.point(ctx, r, rate) }}
	out, err := s.run(ctx, first)
	out.Row, out.Title, out.P99Ms, out.Errors = r.name, r.title, measure.Millis(b.SweepP99), b.SweepErrors
	return &out, err
}

// point measures a row at one rate.
func (b *bench) point(ctx context.Context, r *row, rate float64) (SweepPoint, error) {
	t := newTally(max(1, len(r.mix)))
	defer b.tell(fmt.Sprintf("%s at %.0f/s", r.name, rate), t)()
	b.open(r, rate, min(warmup, b.Duration)).run(ctx, newTally(len(t.parts)))
	pids, _ := b.target.PIDs()
	before, err := host.CPUTimes(pids)
	if err != nil {
		return SweepPoint{}, err
	}
	b.open(r, rate, b.Duration).run(ctx, t)
	after, err := host.CPUTimes(pids)
	if err != nil {
		return SweepPoint{}, err
	}
	if ctx.Err() != nil {
		return SweepPoint{}, ErrStopped
	}
	one := b.newRow(r, t, before, after)
	p := SweepPoint{Rate: rate, Due: t.due, PerSecond: one.PerSecond, Errors: one.Errors, Error: one.Error, Unsent: one.Unsent, Latency: one.Latency, LateP99Ms: one.Late.P99Ms, CPU: one.CPU}
	p.Latency.Curve = nil
	p.due = float64(t.due) / t.elapsed.Seconds()
	return p, nil
}
