package standins

import (
	"errors"
	"sync/atomic"
)

// enough is where an Endless body fails: above all bounds that are tested, and below what a
// machine cannot hold.
const enough = 64 << 20

// Endless is a body without an end: text without a line break. A reader without a bound gets
// an error after 64 MiB instead of filling the memory. The caller's error may be the same in
// both cases, so tests compare Taken with the bound.
type Endless struct{ taken atomic.Int64 }

// Read implements io.Reader.
func (e *Endless) Read(p []byte) (int, error) {
	if e.taken.Add(int64(len(p))) > enough {
		return 0, errors.New("an endless body was read without a bound")
	}
	for i := range p {
		p[i] = 'x'
	}
	return len(p), nil
}

// Close implements io.Closer.
func (e *Endless) Close() error { return nil }

// Taken returns how many bytes were read. If the body is sent over a connection, the buffers
// of the system take a few megabytes more than its reader.
func (e *Endless) Taken() int64 { return e.taken.Load() }
