package apiserver

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/quorate/quorate/apiserver/objects"
	"github.com/quorate/quorate/apiserver/objects/patch"
	"github.com/quorate/quorate/apiserver/types/kinds"
	"github.com/quorate/quorate/apiserver/wire/codec"
	"github.com/quorate/quorate/apiserver/wire/request"
	"github.com/quorate/quorate/apiserver/wire/status"
	"github.com/quorate/quorate/internal/slots"
)

const (
	// decodingShare is the part of the room for decoded bodies that one user may have.
	decodingShare = 8
	// readingShare is the same of the room for bodies as they come, beyond the first 64 KiB of each.
	readingShare = 4
	// longestDecodingWait bounds how long a request waits for room. A write has 34 s: what waits in vain leaves time for the
	// client to try again.
	longestDecodingWait = 15 * time.Second
	// maxDecodingWaits is how many requests of one user may wait. Each holds its body, which is counted, and perhaps its
	// seat. A burst is to wait rather than to be refused: refused clients come back a second later, all of them, and
	// their next bodies are read for nothing.
	maxDecodingWaits = 512
)

// freeCost is what urgent requests need not ask for: a lease, and the options of a delete.
const freeCost = 64 << 10

const (
	// decodingReserve is the part of the room that is only for small requests.
	decodingReserve = 8
	// smallDecoding is the part of the room up to which a request is small: 1 MiB by default.
	smallDecoding = 256
)

// decoding bounds what the requests whose bodies are decoded hold of memory, all together and
// each user's. Three megabytes of a body may become thirty. A request takes all that it
// needs at once, when its body is there, and gives it back when its answer begins: nobody holds
// a part and waits for more, and no client can hold room by not reading. Who finds no room waits
// behind what the same user waits for, and behind nobody else: if the first that waits kept the
// others from going, one user with a large object would make everybody wait. The price is that
// many smaller requests may leave no room for a large one until its wait is over. Small requests
// have a queue of their own, and a reserve that large ones leave free. Safe for concurrent use.
type decoding struct {
	room, share    int64
	reserve, small int64
	refused        func()

	mu      sync.Mutex
	held    int64
	large   int64 // held by requests that are not small
	users   map[string]*decodingUser
	waiting []*decodingWait // in the order in which they came
}

// The queues of a user.
const (
	smallQueue = iota
	largeQueue
	decodingQueues
)

// decodingUser is what one user holds. It is forgotten when that is nothing.
type decodingUser struct {
	held  int64
	small int64 // held by small requests
	raw   int64 // bytes of bodies that come, or wait for their turn here
	waits [decodingQueues]int
}

type decodingWait struct {
	user  *decodingUser
	cost  int64
	ready chan struct{} // closed when it has what it waited for
}

func (d *decoding) init(room int64, refused func()) {
	d.room, d.share, d.refused, d.users = room, room/decodingShare, refused, map[string]*decodingUser{}
	d.reserve, d.small = room/decodingReserve, room/smallDecoding
}

func (d *decoding) queueOf(cost int64) int {
	if cost <= d.small {
		return smallQueue
	}
	return largeQueue
}

// take waits for room and reports whether there is some. What is larger than a share waits until
// its user has nothing else. Whatever is taken is given back with give.
func (d *decoding) take(ctx context.Context, user string, cost int64) bool {
	queue := d.queueOf(cost)
	d.mu.Lock()
	u := d.userLocked(user)
	if u.waits[queue] == 0 && d.fitsLocked(u, cost) {
		d.takeLocked(u, cost)
		d.mu.Unlock()
		return true
	}
	if u.waits[queue] >= maxDecodingWaits {
		d.mu.Unlock()
		d.refused()
		return false
	}
	w := &decodingWait{user: u, cost: cost, ready: make(chan struct{})}
	u.waits[queue]++
	d.waiting = append(d.waiting, w)
	d.mu.Unlock()

	defer slots.Waiting(ctx)()
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
	u.waits[queue]--
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
	d.countLocked(u, cost, -cost)
	d.wakeLocked()
	d.forgetLocked(user, u)
}

// fitsLocked reports whether there is room for one more request of a user. What is larger than
// all that there may be for large ones goes when no other large one is there.
func (d *decoding) fitsLocked(u *decodingUser, cost int64) bool {
	if u.held > 0 && u.held+cost > d.share {
		return false
	}
	unreserved := d.room - d.reserve
	if d.queueOf(cost) == largeQueue {
		return d.large == 0 || d.large+cost <= unreserved && d.held+cost <= d.room
	}
	if d.held+cost <= unreserved {
		return true
	}
	// Of the reserve, too, each user has a part.
	return d.held+cost <= d.room && (u.small == 0 || u.small+cost <= d.reserve/decodingShare)
}

func (d *decoding) takeLocked(u *decodingUser, cost int64) { d.countLocked(u, cost, cost) }

// countLocked adds to what a request of that cost holds.
func (d *decoding) countLocked(u *decodingUser, cost, more int64) {
	d.held += more
	u.held += more
	if d.queueOf(cost) == largeQueue {
		d.large += more
	} else {
		u.small += more
	}
}

// wakeLocked lets those go who fit and are the first of their user's queue.
func (d *decoding) wakeLocked() {
	type queue struct {
		user *decodingUser
		of   int
	}
	blocked := map[queue]bool{}
	d.waiting = slices.DeleteFunc(d.waiting, func(w *decodingWait) bool {
		q := queue{w.user, d.queueOf(w.cost)}
		if blocked[q] {
			return false
		}
		if !d.fitsLocked(w.user, w.cost) {
			blocked[q] = true
			return false
		}
		d.takeLocked(w.user, w.cost)
		w.user.waits[q.of]--
		close(w.ready)
		return true
	})
}

func (d *decoding) forgetLocked(name string, u *decodingUser) {
	if u.held == 0 && u.raw == 0 && u.waits == [decodingQueues]int{} {
		delete(d.users, name)
	}
}

// bodyRoom is the room that the body of one request takes: of the bytes of all bodies while it
// comes, and of the memory for what it is decoded to. For the request's goroutine. Its zero
// value, that of a request that is not in flight, holds nothing.
type bodyRoom struct {
	s       *Server
	user    string
	urgent  bool
	held    int64 // bytes that the body is charged with
	counted int64 // those of them that its user is charged with
	decoded int64 // what it is charged with for the decoded body
}

// charge makes the request hold that many bytes for its body.
func (b *bodyRoom) charge(bytes int64) bool {
	more := bytes - b.held
	if more <= 0 {
		return true
	}
	if !b.s.decoding.read(b.user, more, b.s.cfg.Limits.WriteBytes/readingShare) {
		b.s.cfg.Observer.RequestRefused(true, "bytes")
		return false
	}
	if !b.s.writes.grow(more, b.urgent) {
		b.s.decoding.readDone(b.user, more)
		return false
	}
	b.held += more
	b.counted += more
	return true
}

// takeDecoding takes room for all that the body will be made of. Errors: 429, 504.
func (b *bodyRoom) takeDecoding(ctx context.Context, cost int64) error {
	if cost <= freeCost && b.urgent {
		return nil
	}
	if !b.s.decoding.take(ctx, b.user, cost) {
		if errors.Is(ctx.Err(), context.DeadlineExceeded) {
			return status.Timeout()
		}
		return status.TooMany(retryRefused)
	}
	b.decoded = cost
	return nil
}

// giveBack ends what charge and takeDecoding have taken: when the answer begins, which is encoded
// by then, because how long a client takes to read it is up to the client. What is left to hold is
// the text of the answer, and what is kept for the audit log: pace counts them once the client is
// slow.
func (b *bodyRoom) giveBack() {
	if b.counted > 0 {
		b.s.decoding.readDone(b.user, b.counted)
		b.s.writes.shrink(b.counted)
		b.held -= b.counted
		b.counted = 0
	}
	if b.decoded > 0 {
		b.s.decoding.give(b.user, b.decoded)
		b.decoded = 0
	}
}

// decodingCost is what a body will be made of: its tree, and that of the object that it
// changes, of which share is counted at most. Errors: 413 for a body that is too expensive
// whatever is free.
func decodingCost(o *objects.Op, contentType string, body []byte, res *kinds.Resource, share int64) (int64, error) {
	way := codec.Whole
	switch {
	case o.Info.Verb == "patch" && patch.IsApply(contentType):
		way = codec.Applied
	case o.Info.Verb == "patch":
		way = codec.Merged
	}
	cost, err := codec.Cost(way, contentType, body, res)
	if err != nil {
		return 0, err
	}
	return cost + currentCost(o, way, share), nil
}

// smallObject is the size from which on an object counts that is there already.
const smallObject = 4 << 10

// currentCost is what the object that is changed takes, which is decoded too.
func currentCost(o *objects.Op, way codec.Way, share int64) int64 {
	if o.Info.Name == "" || !request.ChangesObject(o.Info.Verb) || o.Resource.Virtual {
		return 0
	}
	v, err := o.Store.Current(o.Resource.Table(), o.Key())
	if err != nil || v == nil || v.ValueSize() < smallObject {
		return 0
	}
	// It is there, no matter who made it that large: it must not keep its own users from changing it, nor
	// ask for more than a user may have.
	return min(codec.StoredCost(way, v.Value(), o.Resource), share)
}
