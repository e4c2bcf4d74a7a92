// Package decoded bounds the memory that JSON of other servers takes when it is decoded: webhooks, conversion webhooks and
// aggregated API servers send what they like, and 8 MiB of [{},{},…] become a gigabyte.
package decoded

import (
	"context"
	"fmt"

	"golang.org/x/sync/semaphore"
)

// Most is how much one answer may take, in bytes by Cost. It is for what is small in good faith; see Room.Take for more.
const Most = 64 << 20

// What a part takes in the Go types of Kubernetes, what is garbage at once included: a slice of structs is copied again and
// again while it grows. Measured with lists of {} and of 1 in the largest of them (TestCost).
const (
	perByte    = 3
	perObject  = 1000
	perElement = 160
	perMember  = 128
)

// Cost is about how many bytes a JSON text takes when it is decoded. It does not matter whether the text is JSON.
func Cost(text []byte) int64 {
	var objects, elements, members int64
	for i := 0; i < len(text); i++ {
		switch text[i] {
		case '"':
			for i++; i < len(text) && text[i] != '"'; i++ {
				if text[i] == '\\' {
					i++
				}
			}
		case '{':
			objects++
		case ',', '[':
			elements++
		case ':':
			members++
		}
	}
	return perByte*int64(len(text)) + perObject*objects + perElement*elements + perMember*members
}

// Room is for what is decoded at the same time. Safe for concurrent use.
type Room struct {
	size int64
	left *semaphore.Weighted
}

// NewRoom makes room for so many bytes by Cost.
func NewRoom(size int64) *Room { return &Room{size, semaphore.NewWeighted(size)} }

// TooLargeError refuses an answer whatever is free.
type TooLargeError struct{ Cost, Most int64 }

func (e *TooLargeError) Error() string {
	return fmt.Sprintf("the answer would take %d MiB of memory when it is decoded, at most %d are allowed", e.Cost>>20, e.Most>>20)
}

// Take waits for room for an answer before it is decoded, in the order of the calls, and returns what gives the room back.
// most is how much the answer may take; one that may take more than there is waits for all of it. Errors:
// *TooLargeError, the context's.
func (r *Room) Take(ctx context.Context, cost, most int64) (give func(), err error) {
	if cost > most {
		return nil, &TooLargeError{cost, most}
	}
	cost = min(cost, r.size)
	if err := r.left.Acquire(ctx, cost); err != nil {
		return nil, fmt.Errorf("no memory to decode the answer: %w", context.Cause(ctx))
	}
	return func() { r.left.Release(cost) }, nil
}
