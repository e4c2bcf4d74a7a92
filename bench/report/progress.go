package report

import (
	"fmt"
	"io"
	"sync"
	"time"
)

// Progress is told what a measurement does.
type Progress struct {
	// Lines get a line for each thing that has happened.
	Lines io.Writer
	// Status, if it is not nil, is told how things stand, a few times a second.
	Status func(text string)
}

// Say writes a line.
func (p Progress) Say(format string, args ...any) {
	if p.Status != nil {
		p.Status("")
	}
	fmt.Fprintf(p.Lines, format+"\n", args...)
}

const statusEvery = 250 * time.Millisecond

// Tell tells how things stand until the returned function is called. text is asked with the time since it was asked last.
func (p Progress) Tell(text func(since time.Duration) string) (stop func()) {
	if p.Status == nil {
		return func() {}
	}
	done := make(chan struct{})
	var told sync.WaitGroup
	told.Go(func() {
		defer p.Status("")
		tick := time.NewTicker(statusEvery)
		defer tick.Stop()
		for {
			select {
			case <-done:
				return
			case <-tick.C:
				p.Status(text(statusEvery))
			}
		}
	})
	return func() {
		close(done)
		told.Wait()
	}
}
