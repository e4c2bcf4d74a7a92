package consistency

import (
	"errors"
	"fmt"
	"time"

	"github.com/quorate/quorate/proto"
)

var (
	// ErrUnavailable is matched by the error for a read that needed a quorum, or
	// needed this node to catch up, and did not get it in time.
	ErrUnavailable = errors.New("the read could not be made consistent in time")
	// ErrClosed is the cause after Reader.Close.
	ErrClosed = errors.New("the reader is closed")
)

// retryAfter is what the client of a failed wait is told, in seconds.
const retryAfter = 1

// UnavailableError is returned for a Most Recent read without a quorum. It
// matches ErrUnavailable and its cause.
type UnavailableError struct {
	Cause      error
	RetryAfter int // seconds
}

func (e *UnavailableError) Error() string { return fmt.Sprintf("%v: %v", ErrUnavailable, e.Cause) }

// Unwrap returns both ErrUnavailable and the cause.
func (e *UnavailableError) Unwrap() []error { return []error{ErrUnavailable, e.Cause} }

// TooLargeError is returned for a revision that does not exist yet, or that
// could not be confirmed in time.
type TooLargeError struct {
	Asked, Current proto.Revision
	RetryAfter     int // seconds
	// Unconfirmed says that no quorum could be asked: the revision may well exist.
	Unconfirmed bool
}

// Error is the text that clients look for.
func (e *TooLargeError) Error() string {
	return fmt.Sprintf("Too large resource version: %d, current: %d", e.Asked, e.Current)
}

// TooStaleError is returned for an Any read with MaxStaleness on a node that
// does not know that it is that fresh.
type TooStaleError struct {
	Staleness, Max time.Duration
	RetryAfter     int // seconds
}

// unknownAge is beyond any staleness that was measured: the node was not found
// current since its start.
const unknownAge = 100 * 365 * 24 * time.Hour

func (e *TooStaleError) Error() string {
	if e.Staleness > unknownAge {
		return fmt.Sprintf("this node does not know how old its state is, and at most %v was asked for", e.Max)
	}
	return fmt.Sprintf("this node's state may be %v old, more than the %v asked for", e.Staleness, e.Max)
}
