package storage

import (
	"fmt"
	"strings"

	"github.com/quorate/quorate/proto"
)

// LimitExceededError is returned when a write that was to keep limits would exceed one.
// Nothing was written. Other limits may be exceeded too: this is the first.
type LimitExceededError struct {
	// Table and Key are those of the write.
	Table, Key string
	// Exceeded is the limit, with all of its bounds that would be exceeded.
	Exceeded *proto.Exceeded
}

func (e *LimitExceededError) Error() string {
	var bounds []string
	for _, b := range e.Exceeded.GetBounds() {
		bounds = append(bounds, fmt.Sprintf("%s: %d more on top of %d, at most %d", b.Name, b.Requested, b.Used, b.Max))
	}
	return fmt.Sprintf("%s %s would exceed the limit of %s %s: %s",
		e.Table, e.Key, e.Exceeded.GetTable(), e.Exceeded.GetKey(), strings.Join(bounds, ", "))
}
