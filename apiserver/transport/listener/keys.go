package listener

import (
	"context"
	"slices"
)

// maxConnectionKeys bounds for how many keys it is known that requests on a connection had a
// token of them. A connection with more has all of them, as far as ExpelKeys is concerned.
const maxConnectionKeys = 8

// NoteKey notes which key the token of a request was signed with. It is true the first
// time on the request's connection: from then on, ExpelKeys finds it.
func NoteKey(ctx context.Context, key string) (first bool) {
	c, ok := ctx.Value(connectionKey{}).(*connection)
	if !ok {
		return false
	}
	if last := c.lastKey.Load(); last != nil && *last == key {
		return false
	}
	c.in.mu.Lock()
	defer c.in.mu.Unlock()
	c.lastKey.Store(&key)
	if slices.Contains(c.keys, key) {
		return false
	}
	if len(c.keys) <= maxConnectionKeys { // one more says that there are too many
		c.keys = append(c.keys, key)
	}
	return true
}

// ExpelKeys closes the connections on which a request had a token of a key that is not in
// force any more: watches that were authenticated by it may be under way.
func (l *Listener) ExpelKeys(inForce func(key string) bool) {
	var gone []*connection
	l.mu.Lock()
	for _, s := range []*shares{l.guests, l.users} {
		for _, h := range s.holders {
			for e := h.conns.Front(); e != nil; e = e.Next() {
				c := e.Value.(*connection)
				ended := func(key string) bool { return !inForce(key) }
				if len(c.keys) > maxConnectionKeys || slices.ContainsFunc(c.keys, ended) {
					gone = append(gone, c)
				}
			}
		}
	}
	l.mu.Unlock()
	for _, c := range gone {
		_ = c.Close()
	}
}
