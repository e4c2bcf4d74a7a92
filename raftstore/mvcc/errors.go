package mvcc

import "errors"

var (
	// ErrCompacted is returned when a read or a watch asks for a revision below
	// the floor.
	ErrCompacted = errors.New("revision is below the history floor")
	// ErrFuture is returned when a read asks for a revision that this state has
	// not applied yet.
	ErrFuture = errors.New("revision is not applied yet")
	// ErrOrder is returned by Apply and the loaders when an index does not rise.
	// The caller must stop the node: its log or its disk is not what it was.
	ErrOrder = errors.New("index out of order")
)
