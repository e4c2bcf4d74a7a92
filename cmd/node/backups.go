package main

import (
	"fmt"
	"io"
	"net/http"
	"time"
)

// A backup reads within one transaction, and as long as that is open state.db keeps all
// that is deleted meanwhile: it grows. So a client that stops reading ends its backup, and
// few run at once.
const (
	backupsAtOnce = 2
	// backupStall is how long a client may take for backupPiece bytes of a backup.
	backupStall = time.Minute
	backupPiece = 64 << 10
)

// serveAtMost serves n requests at once and refuses more.
func serveAtMost(n int, what string, h http.HandlerFunc) http.HandlerFunc {
	places := make(chan struct{}, n)
	return func(w http.ResponseWriter, r *http.Request) {
		select {
		case places <- struct{}{}:
			defer func() { <-places }()
			h(w, r)
		default:
			w.Header().Set("Retry-After", "10")
			http.Error(w, fmt.Sprintf("this node serves %d %s already: ask another node, or again when one has ended", n, what), http.StatusTooManyRequests)
		}
	}
}

// moving is an answer of any length whose client must go on reading: each piece has stall
// to be taken.
type moving struct {
	w        io.Writer
	deadline func(time.Time) error // moves the answer's
	stall    time.Duration
}

func movingAnswer(w http.ResponseWriter, stall time.Duration) *moving {
	return &moving{w: w, deadline: http.NewResponseController(w).SetWriteDeadline, stall: stall}
}

// Write implements io.Writer.
func (m *moving) Write(b []byte) (written int, err error) {
	for len(b) > 0 {
		if err := m.deadline(time.Now().Add(m.stall)); err != nil {
			return written, err
		}
		n, err := m.w.Write(b[:min(len(b), backupPiece)])
		written += n
		if err != nil {
			return written, err
		}
		b = b[n:]
	}
	return written, nil
}
