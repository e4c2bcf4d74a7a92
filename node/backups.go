package node

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/quorate/quorate/apiserver/access/auth"
	"github.com/quorate/quorate/consistency"
	"github.com/quorate/quorate/membership"
	"github.com/quorate/quorate/proto"
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

// serveBackup serves a backup to who is still allowed it. It holds all Secrets, and a node that is cut off would give it to
// whom the right was taken away: there only members of system:masters get one, who may need it to recover the cluster.
func (n *Node) serveBackup(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithTimeout(r.Context(), decideWithin)
	_, err := decideAgain(ctx)
	cancel()
	user := auth.UserFrom(r.Context())
	switch master := user != nil && user.InGroup(auth.Masters) && auth.ImpersonatorFrom(r.Context()) == nil; {
	case errors.Is(err, membership.ErrForbidden):
		http.Error(w, err.Error(), http.StatusForbidden)
	case err != nil && !master:
		w.Header().Set("Retry-After", "1")
		http.Error(w, fmt.Sprintf("%s reaches no majority, and cannot know whether %s is still allowed a backup: without a majority only members of %s get one",
			n.cfg.Name, userName(r.Context()), auth.Masters), http.StatusServiceUnavailable)
	default:
		n.saveSnapshot(w, r)
	}
}

// saveSnapshot streams a backup of this node's state. A break in the stream
// shows: the file then has no valid end.
func (n *Node) saveSnapshot(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodGet {
		http.Error(w, "the server does not allow this method", http.StatusMethodNotAllowed)
		return
	}
	about := n.describeBackup(r.Context())
	if !about.Confirmed && r.URL.Query().Get("confirmed") == "true" {
		http.Error(w, fmt.Sprintf("%s reaches no majority: %s", about.NodeName, about.NotConfirmed), http.StatusServiceUnavailable)
		return
	}
	n.log.Info("a backup is sent: it holds everything, Secrets in clear included", "user", userName(r.Context()), "from", r.RemoteAddr, "confirmed", about.Confirmed)
	// It takes as long as it takes, if its client goes on reading.
	w.Header().Set("Content-Type", "application/octet-stream")
	if _, err := n.store.SaveSnapshot(movingAnswer(w, backupStall), about); err != nil {
		n.log.Error("a backup was not sent whole", "err", err)
		panic(http.ErrAbortHandler) // ends the stream visibly broken
	}
}

// describeBackup says what a backup that is taken now is, after it has waited until
// this node has all that was acknowledged, if a majority can say what that is.
func (n *Node) describeBackup(ctx context.Context) *proto.Backup {
	_, err := n.reader.Await(ctx, consistency.Plan{Mode: consistency.MostRecent})
	st := n.manager.LocalStatus(ctx)
	b := &proto.Backup{
		TakenUnixMs: time.Now().UnixMilli(), NodeId: string(n.identity.ID()), NodeName: n.identity.Name(), Version: n.cfg.Version,
		Role: st.Role, LastContactMs: st.LastContactMs, Confirmed: err == nil,
	}
	if err != nil {
		for next := err; next != nil; next = errors.Unwrap(next) {
			b.NotConfirmed = next.Error() // the innermost: what is around it speaks of a request
		}
	}
	return b
}
