package fairness

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

const prefix = "apiserver_flowcontrol_"

var (
	timeBuckets   = []float64{0, 0.005, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 30}
	lengthBuckets = []float64{0, 10, 25, 50, 100, 250, 500, 1000}
	seatBuckets   = []float64{1, 2, 4, 8, 16, 32, 64, 100}
	watchBuckets  = []float64{0, 1, 10, 100, 1000, 10000}
)

// series are the histograms; the rest is read from the levels when it is asked for.
type series struct {
	lengths, estimates, watchers, waited, took *prometheus.HistogramVec
}

func (s *series) init() {
	of := func(name, help string, buckets []float64, more ...string) *prometheus.HistogramVec {
		return prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: prefix + name, Help: help, Buckets: buckets},
			append([]string{"priority_level", "flow_schema"}, more...))
	}
	s.lengths = of("request_queue_length_after_enqueue", "Length of the queue that a request was put into, itself included.", lengthBuckets)
	s.estimates = of("work_estimated_seats", "Seats that requests were estimated to need.", seatBuckets)
	s.watchers = of("watch_count_samples", "Watches that hear of a change, for requests that change something.", watchBuckets)
	s.waited = of("request_wait_duration_seconds", "Time that requests waited in their queues, in seconds.", timeBuckets, "execute")
	s.took = of("request_execution_seconds", "Time that requests held their seats, in seconds; of watches the beginning.", timeBuckets, "type")
}

func (s *series) vectors() []*prometheus.HistogramVec {
	return []*prometheus.HistogramVec{s.lengths, s.estimates, s.watchers, s.waited, s.took}
}

// observers resolves a flow's histograms once.
func (s *series) observers(f *flow) {
	level, schema := f.level.name, f.schema
	f.lengths = s.lengths.WithLabelValues(level, schema)
	f.estimates = s.estimates.WithLabelValues(level, schema)
	f.watchers = s.watchers.WithLabelValues(level, schema)
	f.waited[0] = s.waited.WithLabelValues(level, schema, "false")
	f.waited[1] = s.waited.WithLabelValues(level, schema, "true")
	f.took[0] = s.took.WithLabelValues(level, schema, "regular")
	f.took[1] = s.took.WithLabelValues(level, schema, "watch")
}

func (s *series) forget(l *level) {
	for _, v := range s.vectors() {
		v.DeletePartialMatch(prometheus.Labels{"priority_level": l.name})
	}
}

func desc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc(prefix+name, help, labels, nil)
}

const (
	labelLevel  = "priority_level"
	labelSchema = "flow_schema"
)

var (
	rejectedDesc    = desc("rejected_requests_total", "Requests that were refused, by reason.", labelLevel, labelSchema, "reason")
	dispatchedDesc  = desc("dispatched_requests_total", "Requests that were let in.", labelLevel, labelSchema)
	noSeatsDesc     = desc("request_dispatch_no_accommodation_total", "Times that the next request had to wait for more seats.", labelLevel, labelSchema)
	queuedDesc      = desc("current_inqueue_requests", "Requests that wait in queues.", labelLevel, labelSchema)
	queuedSeatsDesc = desc("current_inqueue_seats", "Seats that waiting requests need.", labelLevel, labelSchema)
	runningDesc     = desc("current_executing_requests", "Requests that run (of watches, their beginning).", labelLevel, labelSchema)
	seatsDesc       = desc("current_executing_seats", "Seats in use.", labelLevel, labelSchema)

	nominalDesc   = desc("nominal_limit_seats", "A level's own seats.", labelLevel)
	lowDesc       = desc("lower_limit_seats", "Seats that a level does not lend.", labelLevel)
	highDesc      = desc("upper_limit_seats", "Seats that a level may have with what it borrows.", labelLevel)
	limitDesc     = desc("current_limit_seats", "Seats that a level has now.", labelLevel)
	peakDesc      = desc("demand_seats_high_watermark", "Most seats that a level could use, in the last period.", labelLevel)
	averageDesc   = desc("demand_seats_average", "Average of the seats that a level could use, in the last period.", labelLevel)
	deviationDesc = desc("demand_seats_stdev", "Standard deviation of the seats that a level could use, in the last period.", labelLevel)
	smoothedDesc  = desc("demand_seats_smoothed", "Smoothed demand of seats.", labelLevel)
	targetDesc    = desc("target_seats", "What the seats are divided in proportion to.", labelLevel)
	fairDesc      = desc("seat_fair_frac", "Part of its target that every level gets whose bounds allow it.")

	demandDesc = desc("demand_seats", "Seats that a level could use, as a fraction of its own; each nanosecond is an observation.", labelLevel)
	seatsInUse = desc("priority_level_seat_utilization", "Seats in use, as a fraction of the level's; each nanosecond is an observation.", labelLevel, "phase")
	requestUse = desc("priority_level_request_utilization", "Requests that wait or run, as a fraction of how many may; each nanosecond is an observation.", "phase", labelLevel)

	clockDesc    = desc("current_r", "Reading of the level's clock of fair shares, in seat-seconds.", labelLevel)
	dispatchDesc = desc("dispatch_r", "Reading of that clock when a request was last let in.", labelLevel)
	latestDesc   = desc("latest_s", "Reading at which that request was due.", labelLevel)
	boundsDesc   = desc("next_s_bounds", "Least and greatest reading at which waiting queues are due.", labelLevel, "bound")
)

// Describe implements prometheus.Collector.
func (c *Controller) Describe(ch chan<- *prometheus.Desc) { prometheus.DescribeByCollect(c, ch) }

// Collect implements prometheus.Collector.
func (c *Controller) Collect(ch chan<- prometheus.Metric) {
	for _, v := range c.metrics.vectors() {
		v.Collect(ch)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.now()
	ch <- prometheus.MustNewConstMetric(fairDesc, prometheus.GaugeValue, c.fair)
	for _, l := range c.levels {
		l.mu.Lock()
		l.collect(ch, now)
		for _, f := range l.flows {
			f.collect(ch)
		}
		l.mu.Unlock()
	}
}

func (l *level) collect(ch chan<- prometheus.Metric, now time.Duration) {
	gauge := func(d *prometheus.Desc, v float64, more ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, append([]string{l.name}, more...)...)
	}
	gauge(nominalDesc, float64(l.nominal))
	gauge(lowDesc, float64(l.low))
	gauge(highDesc, float64(l.high))
	gauge(limitDesc, float64(l.limit))
	gauge(peakDesc, l.demandPeak)
	gauge(averageDesc, l.demandAverage)
	gauge(deviationDesc, l.demandDeviation)
	gauge(smoothedDesc, l.smoothed)
	gauge(targetDesc, l.target)
	gauge(clockDesc, l.r/1e9)
	gauge(dispatchDesc, l.lastDispatched/1e9)
	gauge(latestDesc, l.lastStart/1e9)
	if len(l.busy) > 0 {
		least, most := l.busy[0].next, l.busy[0].next
		for _, q := range l.busy {
			least, most = min(least, q.next), max(most, q.next)
		}
		gauge(boundsDesc, least/1e9, "min")
		gauge(boundsDesc, most/1e9, "max")
	}
	for _, o := range []*occupancy{&l.demandOfSeats, &l.seatsUsed, &l.runs, &l.waits} {
		o.advance(now)
	}
	ch <- l.demandOfSeats.metric(demandDesc, l.name)
	ch <- l.seatsUsed.metric(seatsInUse, l.name, "executing")
	ch <- l.runs.metric(requestUse, "executing", l.name)
	ch <- l.waits.metric(requestUse, "waiting", l.name)
}

func (f *flow) collect(ch chan<- prometheus.Metric) {
	names := []string{f.level.name, f.schema}
	gauge := func(d *prometheus.Desc, v int) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, float64(v), names...)
	}
	gauge(queuedDesc, f.waiting)
	gauge(queuedSeatsDesc, f.waitingSeats)
	gauge(runningDesc, f.running)
	gauge(seatsDesc, f.seats)
	ch <- prometheus.MustNewConstMetric(dispatchedDesc, prometheus.CounterValue, float64(f.dispatched), names...)
	ch <- prometheus.MustNewConstMetric(noSeatsDesc, prometheus.CounterValue, float64(f.noSeats), names...)
	for why := QueueFull; why < reasons; why++ {
		ch <- prometheus.MustNewConstMetric(rejectedDesc, prometheus.CounterValue, float64(f.refused[why]), f.level.name, f.schema, why.String())
	}
}
