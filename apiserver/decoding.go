package apiserver

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/quorate/quorate/apiserver/codec"
	"github.com/quorate/quorate/apiserver/kinds"
	"github.com/quorate/quorate/apiserver/status"
)

const (
	// decodingShare is the part of the room for decoded bodies that one user may have.
	decodingShare = 8
	// readingShare is the same of the room for bodies as they come, beyond the first 64 KiB of each.
	readingShare = 4
	// longestDecodingWait bounds how long a request waits for room.
	longestDecodingWait = 5 * time.Second
	// maxDecodingWaits is how many requests of one user may wait: each holds its body, and its seat.
	maxDecodingWaits = 16
)

// freeCost is what urgent requests need not ask for: a lease, and the options of a delete.
const freeCost = 64 << 10

// decoding bounds what the requests whose bodies are decoded hold of memory, all together and
// each user's. Three megabytes of a body may become thirty. A request takes all that it
// needs at once, when its body is there, and gives it back when it ends: nobody holds a part and
// waits for more. Who finds no room waits, in the order of arrival; a user whose share is
// used up does not keep others from going first. Safe for concurrent use.
type decoding struct {
	room, share int64
	refused     func()

	mu      sync.Mutex
	held    int64
	users   map[string]*decodingUser
	waiting []*decodingWait
}

// decodingUser is what one user holds. It is forgotten when that is nothing.
type decodingUser struct {
	held  int64
	raw   int64 // bytes of bodies that come, or wait for their turn here
	waits int
}

type decodingWait struct {
	user  *decodingUser
	cost  int64
	ready chan struct{} // closed when it has what it waited for
}

func (d *decoding) init(room int64, refused func()) {
	d.room, d.share, d.refused, d.users = room, room/decodingShare, refused, map[string]*decodingUser{}
}

// take waits for room and reports whether there is some. What is larger than a share waits until
// its user has nothing else. Whatever is taken is given back with give.
func (d *decoding) take(ctx context.Context, user string, cost int64) bool {
	d.mu.Lock()
	u := d.userLocked(user)
	if d.fitsLocked(u, cost) && !d.queuedLocked(u, cost) {
		d.takeLocked(u, cost)
		d.mu.Unlock()
		return true
	}
	if u.waits >= maxDecodingWaits {
		d.mu.Unlock()
		d.refused()
		return false
	}
	w := &decodingWait{user: u, cost: cost, ready: make(chan struct{})}
	u.waits++
	d.waiting = append(d.waiting, w)
	d.mu.Unlock()

	timer := time.NewTimer(longestDecodingWait)
	defer timer.Stop()
	select {
	case <-w.ready:
		return true
	case <-ctx.Done():
	case <-timer.C:
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	select {
	case <-w.ready: // in the same moment
		return true
	default:
	}
	d.waiting = slices.DeleteFunc(d.waiting, func(x *decodingWait) bool { return x == w })
	u.waits--
	d.forgetLocked(user, u)
	d.wakeLocked() // those behind it may fit
	d.refused()
	return false
}

// read counts more bytes of bodies that come, and reports whether the user may have them: it is
// false if he would have more than the limit.
func (d *decoding) read(user string, more, limit int64) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	u := d.userLocked(user)
	if u.raw+more > limit {
		d.forgetLocked(user, u)
		return false
	}
	u.raw += more
	return true
}

// readDone takes back what read has counted.
func (d *decoding) readDone(user string, bytes int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	u := d.users[user]
	u.raw -= bytes
	d.forgetLocked(user, u)
}

func (d *decoding) userLocked(name string) *decodingUser {
	u := d.users[name]
	if u == nil {
		u = new(decodingUser)
		d.users[name] = u
	}
	return u
}

// give gives back what a user has taken.
func (d *decoding) give(user string, cost int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	u := d.users[user]
	d.held -= cost
	u.held -= cost
	d.wakeLocked()
	d.forgetLocked(user, u)
}

func (d *decoding) fitsLocked(u *decodingUser, cost int64) bool {
	return (d.held == 0 || d.held+cost <= d.room) && (u.held == 0 || u.held+cost <= d.share)
}

// queuedLocked reports whether somebody waits who is to go before: for the room that is left, or
// of the same user.
func (d *decoding) queuedLocked(u *decodingUser, cost int64) bool {
	if u.waits > 0 {
		return true
	}
	for _, w := range d.waiting {
		if w.user.held == 0 || w.user.held+w.cost <= d.share {
			return true // it waits for room: whoever is small would always go before it
		}
	}
	return false
}

func (d *decoding) takeLocked(u *decodingUser, cost int64) {
	d.held += cost
	u.held += cost
}

// wakeLocked lets those go who fit, in their order.
func (d *decoding) wakeLocked() {
	full := false
	d.waiting = slices.DeleteFunc(d.waiting, func(w *decodingWait) bool {
		switch {
		case full:
			return false
		case d.fitsLocked(w.user, w.cost):
			d.takeLocked(w.user, w.cost)
			w.user.waits--
			close(w.ready)
			return true
		}
		// Behind who waits for room nobody goes; behind who waits for his share all may.
		full = w.user.held == 0 || w.user.held+w.cost <= d.share
		return false
	})
}

func (d *decoding) forgetLocked(name string, u *decodingUser) {
	if u.held == 0 && u.raw == 0 && u.waits == 0 {
		delete(d.users, name)
	}
}

// admitDecoding takes room for all that a body will be made of: its tree, and that of the object
// that it changes. Errors: 413 for a body that is too dear whatever is free, 429.
func (c *call) admitDecoding(body []byte, res *kinds.Resource) error {
	way := codec.Whole
	switch {
	case c.info.Verb == "patch" && c.isApply():
		way = codec.Applied
	case c.info.Verb == "patch":
		way = codec.Merged
	}
	cost, err := codec.Cost(way, c.r.Header.Get("Content-Type"), body, res)
	if err != nil {
		return err
	}
	cost += c.currentCost(way)
	if cost <= freeCost && c.urgent() {
		return nil
	}
	if !c.s.decoding.take(c.ctx, c.user.Name, cost) {
		if errors.Is(c.ctx.Err(), context.DeadlineExceeded) {
			return status.Timeout()
		}
		return status.TooMany(retryRefused)
	}
	c.decoded = cost
	return nil
}

// smallObject is the size from which on an object counts that is there already.
const smallObject = 4 << 10

// currentCost is what the object that is changed takes, which is decoded too.
func (c *call) currentCost(way codec.Way) int64 {
	if c.info.Name == "" || c.info.Verb != "update" && c.info.Verb != "patch" || c.res.Virtual {
		return 0
	}
	v, err := c.s.current(c.res.Table(), c.key())
	if err != nil || v == nil || len(v.Value) < smallObject {
		return 0
	}
	return codec.StoredCost(way, v.Value, c.res)
}

// charge makes the request hold that many bytes for its body.
func (c *call) charge(bytes int64) bool {
	more := bytes - c.held
	if more <= 0 {
		return true
	}
	if !c.s.decoding.read(c.user.Name, more, c.s.cfg.Limits.WriteBytes/readingShare) {
		c.s.cfg.Observer.RequestRefused(true, "bytes")
		return false
	}
	if !c.s.writes.grow(more, c.urgent()) {
		c.s.decoding.readDone(c.user.Name, more)
		return false
	}
	c.held += more
	c.counted += more
	return true
}

// giveBack ends what charge and admitDecoding have taken.
func (c *call) giveBack() {
	if c.counted > 0 {
		c.s.decoding.readDone(c.user.Name, c.counted)
	}
	if c.decoded > 0 {
		c.s.decoding.give(c.user.Name, c.decoded)
	}
}
