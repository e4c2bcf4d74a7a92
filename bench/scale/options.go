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
	// Sizes are shares of the point's full size, in rising order.
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
	return Options{Sizes: []float64{0.1, 0.3, 1}, Duration: 10 * time.Second, Gets: 20}
}

// ParseSizes parses shares such as 0.1,0.3,1.
func ParseSizes(text string) ([]float64, error) {
	var out []float64
	for _, word := range strings.Split(text, ",") {
		f, err := strconv.ParseFloat(strings.TrimSpace(word), 64)
		if err != nil || !(f > 0 && f <= 10) {
			return nil, fmt.Errorf("size %q: must be above 0, and 10 at most", word)
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
	switch {
	case find(o.Point) == nil:
		return fmt.Errorf("point %q: must be one of %s", o.Point, strings.Join(Names(), ", "))
	case len(o.Sizes) == 0:
		return errors.New("sizes: none")
	case o.Duration < time.Second || o.Duration > 5*time.Minute:
		return fmt.Errorf("duration %s: must be 1s to 5m", o.Duration)
	case !(o.Gets >= 1 && o.Gets <= 1000):
		return fmt.Errorf("gets %v: must be 1 to 1000 a second", o.Gets)
	}
	return nil
}
