package measure

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// maxMicros is what a histogram has room for; what is longer is noted as that.
const maxMicros = 1_800_000_000

// Histogram is a distribution of microseconds, or of other whole numbers, with three
// digits. It is not safe for concurrent use.
type Histogram struct{ *hdrhistogram.Histogram }

// NewHistogram makes an empty one.
func NewHistogram() Histogram { return Histogram{hdrhistogram.New(1, maxMicros, 3)} }

// Record notes a number.
func (h Histogram) Record(n int64) { _ = h.RecordValue(min(max(n, 0), maxMicros)) }

// RecordTime notes a time.
func (h Histogram) RecordTime(d time.Duration) { h.Record(d.Microseconds()) }

// Tally is what came of operations of one sort. It is safe for concurrent use; its fields are for who has waited for the
// last operation.
type Tally struct {
	mu     sync.Mutex
	Times  Histogram
	Bytes  int64
	Errors int64
	First  error
}

// NewTally makes an empty one.
func NewTally() *Tally { return &Tally{Times: NewHistogram()} }

// Note takes the outcome of an operation.
func (t *Tally) Note(took time.Duration, bytes int, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case err == nil:
		t.Times.RecordTime(took)
		t.Bytes += int64(bytes)
	case t.Errors == 0:
		t.First = err
		fallthrough
	default:
		t.Errors++
	}
}

// FirstError is the text of the first error; empty without any.
func (t *Tally) FirstError() string {
	if t.First == nil {
		return ""
	}
	return t.First.Error()
}

// Latency is a distribution of times.
type Latency struct {
	Count  int64   `json:"count"`
	MeanMs float64 `json:"meanMs"`
	P50Ms  float64 `json:"p50Ms"`
	P90Ms  float64 `json:"p90Ms"`
	P99Ms  float64 `json:"p99Ms"`
	P999Ms float64 `json:"p999Ms"`
	MaxMs  float64 `json:"maxMs"`
	Curve  []Point `json:"curve,omitempty"`
}

// Point says that Percentile percent were at most Ms.
type Point struct {
	Percentile float64 `json:"percentile"`
	Ms         float64 `json:"ms"`
}

// percentiles are the points of a curve.
var percentiles = []float64{0, 5, 10, 20, 30, 40, 50, 60, 70, 80, 85, 90, 93, 95, 97, 98, 99, 99.3, 99.5, 99.7, 99.8, 99.9, 99.95, 99.97, 99.99, 99.995, 99.999, 100}

// Latency summarizes a histogram of microseconds. Percentiles of fewer times
// than they need are those of the longest.
func (h Histogram) Latency() Latency {
	at := func(p float64) float64 { return float64(h.ValueAtQuantile(p)) / 1000 }
	l := Latency{Count: h.TotalCount(), P50Ms: at(50), P90Ms: at(90), P99Ms: at(99), P999Ms: at(99.9), MaxMs: float64(h.Max()) / 1000}
	if l.Count > 0 {
		l.MeanMs = h.Mean() / 1000
	}
	return l
}

// Curve is Latency with points of all percentiles.
func (h Histogram) Curve() Latency {
	l := h.Latency()
	// Beyond one in as many as there were, a curve has nothing more to say.
	for _, p := range percentiles {
		if p == 100 || (100-p)/100*float64(l.Count) >= 1 {
			l.Curve = append(l.Curve, Point{Percentile: p, Ms: float64(h.ValueAtQuantile(p)) / 1000})
		}
	}
	return l
}

// Millis are a time's milliseconds.
func Millis(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// Ms prints milliseconds with about three digits.
func Ms(f float64) string {
	switch {
	case f >= 100 || f <= -100:
		return fmt.Sprintf("%.0f", f)
	case f >= 10 || f <= -10:
		return fmt.Sprintf("%.1f", f)
	default:
		return fmt.Sprintf("%.2f", f)
	}
}

// Named is a histogram, and what its file is called.
type Named struct {
	Name string
	Histogram
}

// WriteFiles writes a percentile file of HdrHistogram for each: DIR/PREFIX-NAME.hgrm.
func WriteFiles(dir, prefix string, all []Named) error {
	var errs []error
	for _, n := range all {
		errs = append(errs, n.WriteFile(filepath.Join(dir, prefix+"-"+n.Name+".hgrm")))
	}
	return errors.Join(errs...)
}

// WriteFile writes a histogram of microseconds as a percentile file of HdrHistogram (.hgrm),
// in milliseconds, for its plotter and others that read it.
func (h Histogram) WriteFile(name string) error {
	f, err := os.Create(name)
	if err != nil {
		return err
	}
	_, err = h.PercentilesPrint(f, 5, 1000)
	return errors.Join(err, f.Close())
}
