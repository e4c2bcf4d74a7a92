package scale

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Options say what is measured.
type Options struct {
	Point string
	// Sizes are shares of the point's full size, in rising order; nil: those of the point.
	Sizes []float64
	// Duration of each row that goes on for a time.
	Duration time.Duration
	// Gets is the rate of the other client's gets.
	Gets float64
	// Command and Commit, for the report.
	Command, Commit string
}

// DefaultOptions are those without a word.
func DefaultOptions() Options {
	return Options{Duration: 10 * time.Second, Gets: 20}
}

// maxSize bounds what is measured, as a share of the full size.
const maxSize = 10

// ParseSizes parses shares such as 0.1,0.3,1; none of an empty text.
func ParseSizes(text string) ([]float64, error) {
	if text == "" {
		return nil, nil
	}
	var out []float64
	for _, word := range strings.Split(text, ",") {
		f, err := strconv.ParseFloat(strings.TrimSpace(word), 64)
		if err != nil || !(f > 0 && f <= maxSize) {
			return nil, fmt.Errorf("size %q: must be above 0, and %d at most", word, maxSize)
		}
		if len(out) > 0 && f <= out[len(out)-1] {
			return nil, errors.New("sizes must rise")
		}
		out = append(out, f)
	}
	return out, nil
}

// Validate checks the options.
func (o *Options) Validate() error {
	p := find(o.Point)
	if p == nil {
		return fmt.Errorf("point %q: must be one of %s", o.Point, strings.Join(Names(), ", "))
	}
	sizes := p.sizes(*o)
	switch largest := sizes[len(sizes)-1]; {
	case p.Most > 0 && largest > p.Most:
		return fmt.Errorf("size %g: must be %g at most for %s", largest, p.Most, p.Name)
	case o.Duration < time.Second || o.Duration > 5*time.Minute:
		return fmt.Errorf("duration %s: must be 1s to 5m", o.Duration)
	case !(o.Gets >= 1 && o.Gets <= 1000):
		return fmt.Errorf("gets %v: must be 1 to 1000 a second", o.Gets)
	}
	return nil
}
