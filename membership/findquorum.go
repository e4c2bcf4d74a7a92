package membership

import (
	"context"
	"sync"
	"time"
)

const (
	// findQuorumAfter is how long a change may take before the client looks which servers
	// have a quorum.
	findQuorumAfter = 200 * time.Millisecond
	// findQuorumWithin bounds that: a little longer than a server waits for members that do
	// not answer.
	findQuorumWithin = 2300 * time.Millisecond
)

// quorumSearch looks for a server that has a quorum while another one is asked for a
// change, so that its answer is there when that one says that it has none.
type quorumSearch struct {
	cancel context.CancelFunc
	found  chan string // one value, or none when it is closed
	once   sync.Once
	which  string
}

// findQuorum begins the search. end ends it.
func (c *AdminClient) findQuorum(ctx context.Context) *quorumSearch {
	s := &quorumSearch{found: make(chan string, len(c.servers))}
	ctx, s.cancel = context.WithCancel(ctx)
	go func() { // ends with ctx, or soon after it has begun
		defer close(s.found)
		if sleep(ctx, findQuorumAfter, nil) != nil {
			return
		}
		ctx, cancel := context.WithTimeout(ctx, findQuorumWithin)
		defer cancel()
		var asked sync.WaitGroup
		for _, server := range c.servers {
			asked.Go(func() {
				if st, err := c.only(server).Status(ctx); err == nil && st.Quorum {
					s.found <- server
				}
			})
		}
		asked.Wait()
	}()
	return s
}

// server waits for the end of the search and returns a server with a quorum, or "". It is
// not for concurrent use.
func (s *quorumSearch) server() string {
	s.once.Do(func() { s.which = <-s.found })
	return s.which
}

func (s *quorumSearch) end() { s.cancel() }
