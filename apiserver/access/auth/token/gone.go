package token

import (
	"time"

	"github.com/quorate/quorate/apiserver/access/auth"
)

const (
	// rememberGone is for how long an object is known to be gone. It does not come back: its uid
	// is its own, and was there before the token. Only a cluster that is restored from a backup has
	// it again.
	rememberGone = time.Second
	maxGone      = 4096 // objects
)

// isGone reports whether an object was looked for a moment ago, in a state that had everything.
// Otherwise anyone who holds a token of a deleted account would cost a round of a quorum with each
// request, before his turn is asked for.
func (a *Accounts) isGone(o auth.Object) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	at, ok := a.gone[o]
	return ok && a.cfg.Now().Sub(at) < rememberGone
}

// markGone notes that an object was not in a state that had everything acknowledged by then.
func (a *Accounts) markGone(o auth.Object, at time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.gone == nil || len(a.gone) >= maxGone {
		a.gone = make(map[auth.Object]time.Time)
	}
	a.gone[o] = at
}
