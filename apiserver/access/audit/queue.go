package audit

import (
	"io"
	"log/slog"
	"sync"
	"time"
)

const (
	// queueBytes is the default bound of what waits to be written.
	queueBytes = 16 << 20
	// maxWait is how long a request is held up when there is no room.
	maxWait = time.Second
)

// queue carries lines to the goroutine that writes them. Its close must be called.
type queue struct {
	out     io.WriteCloser
	limit   int64
	observe Observer
	log     *slog.Logger

	mu     sync.Mutex
	lines  [][]byte
	size   int64
	room   chan struct{} // closed and replaced when lines were taken
	closed bool

	work chan struct{} // has a token when there are lines
	done chan struct{}
	err  error // of closing the file; read after done
}

func newQueue(out io.WriteCloser, limit int64, o Observer, log *slog.Logger) *queue {
	if limit <= 0 {
		limit = queueBytes
	}
	q := &queue{out: out, limit: limit, observe: o, log: log, room: make(chan struct{}), work: make(chan struct{}, 1), done: make(chan struct{})}
	go q.run()
	return q
}

// add hands a line over. It waits for room for at most maxWait.
func (q *queue) add(line []byte) {
	var timeout <-chan time.Time
	for {
		q.mu.Lock()
		switch {
		case q.closed:
			q.mu.Unlock()
			q.observe.AuditLost("closed")
			return
		case q.size == 0 || q.size+int64(len(line)) <= q.limit:
			q.lines, q.size = append(q.lines, line), q.size+int64(len(line))
			q.mu.Unlock()
			select {
			case q.work <- struct{}{}:
			default:
			}
			return
		}
		room := q.room
		q.mu.Unlock()
		if timeout == nil {
			timer := time.NewTimer(maxWait)
			defer timer.Stop()
			timeout = timer.C
		}
		select {
		case <-room:
		case <-timeout:
			q.observe.AuditLost("full")
			return
		}
	}
}

// take removes all lines. The bytes count until they are written.
func (q *queue) take() (lines [][]byte, closed bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	lines, q.lines = q.lines, nil
	return lines, q.closed
}

func (q *queue) written(n int64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.size -= n
	close(q.room)
	q.room = make(chan struct{})
}

func (q *queue) run() {
	defer close(q.done)
	failing := false
	for {
		lines, closed := q.take()
		for _, line := range lines {
			if _, err := q.out.Write(line); err != nil {
				q.observe.AuditLost("write")
				if !failing {
					q.log.Error("the audit log cannot be written", "err", err)
				}
				failing = true
			} else {
				failing = false
			}
			q.written(int64(len(line)))
		}
		if len(lines) > 0 {
			continue
		}
		if closed {
			q.err = q.out.Close()
			return
		}
		<-q.work
	}
}

// close ends the goroutine after it has written what waits.
func (q *queue) close() error {
	q.mu.Lock()
	q.closed = true
	q.mu.Unlock()
	select {
	case q.work <- struct{}{}:
	default:
	}
	<-q.done
	return q.err
}
