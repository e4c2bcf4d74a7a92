package storage

import "fmt"

// MaxRulesChanged is how often one write is decided again because of changed rules before the
// caller is sent away: each round costs a log entry.
const MaxRulesChanged = 16

// RulesChangingError is returned when the rules that decide on a write changed again and
// again while it was decided. Nothing was written; it may be tried again later.
type RulesChangingError struct {
	// Times is how often they changed.
	Times int
}

func (e *RulesChangingError) Error() string {
	return fmt.Sprintf("the rules that decide on this write changed %d times while it was decided", e.Times)
}
