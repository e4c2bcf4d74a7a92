package disk

import (
	"sync"
	"time"

	"github.com/hashicorp/raft"
)

// lateness is how long the planted bug keeps entries from the disk.
const lateness = 30 * time.Millisecond

// lateStore says that entries are stored before they are: the bug that is
// planted as planted.AckBeforeSync.
type lateStore struct {
	backend logBackend

	once  sync.Once
	mu    chan struct{} // a lock that virtual time can pass under
	logs  []*raft.Log
	timer *time.Timer
}

func (s *lateStore) store(logs []*raft.Log) error {
	s.lock()
	defer s.unlock()
	s.logs = append(s.logs, logs...)
	if s.timer == nil {
		s.timer = time.AfterFunc(lateness, s.flush)
	}
	return nil
}

func (s *lateStore) flush() {
	s.lock()
	defer s.unlock()
	if s.timer != nil {
		s.timer.Stop()
		s.timer = nil
	}
	if len(s.logs) > 0 {
		_ = s.backend.StoreLogs(s.logs) // it is a bug
		s.logs = nil
	}
}

func (s *lateStore) lock() {
	s.once.Do(func() { s.mu = make(chan struct{}, 1) })
	s.mu <- struct{}{}
}

func (s *lateStore) unlock() { <-s.mu }

// holdBack keeps the newest version of a flush for the next one, while the mark that is
// written covers it: the bug that is planted as planted.MarkAhead.
func (db *DB) holdBack(p *pending) {
	n := len(p.added)
	if n == 0 || p.added[n-1].Version.Revision <= db.Durable() {
		return
	}
	db.mu.Lock()
	db.pending.added = append([]Added{p.added[n-1]}, db.pending.added...)
	if db.pending.state == nil {
		db.pending.state = p.state
	}
	db.mu.Unlock()
	p.added = p.added[:n-1]
}
