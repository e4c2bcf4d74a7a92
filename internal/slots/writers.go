package slots

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"
)

// Writers has those who change an object take turns, from before they look at it until it is written. A patch that is
// computed while another one is on its way to the log is computed again: with three hundred clients that change the same
// objects, most of the work was for nothing. What goes through other nodes may still come first, and is found out by the
// log. So a turn is no lock: beside one that lasts for longer than turnLasts, others change the object as well. Its zero
// value is ready. Safe for concurrent use.
type Writers struct {
	mu      sync.Mutex
	objects map[string]*object // by key; those that somebody has or waits for
}

// turnLasts is how long a turn may last. Without a quorum each write waits for more than a second until it is told that
// nobody leads. Those that wait for the same object must be told as soon, and not one after another.
const turnLasts = 250 * time.Millisecond

// object is one that somebody has, or waits for.
type object struct {
	has     *Writer
	since   time.Time // when it was taken, or somebody was told that it is free
	waiting []*Writer // in the order in which they came
	told    int       // those that were told that the object is free, and have not looked yet
}

// left is for how long those who wait still leave the object to somebody: who has it, or was told that it is free.
func (x *object) left() time.Duration { return turnLasts - time.Since(x.since) }

// Writer is a request that changes an object. Its zero value changes none. It must not be copied.
type Writer struct {
	of        *Writers
	key, user string

	ready chan struct{} // guarded by of.mu; closed when the object is free
}

// ErrNoTurn is returned by Enter when the request has waited for as long as it may.
var ErrNoTurn = errors.New("too many requests change the object")

// Enter waits until it is a user's turn to change an object, or somebody else's lasts too long, until a time. The turn ends
// with Done. Around each wait it calls wait, and then what that has returned. Errors: ErrNoTurn, the context's.
//
// Who waits does not get the object, but is told that it is free, and looks again when over returns: that may wait for a slot,
// and meanwhile others that have one may have the object. If it waits for too long, all the others look, too.
func (w *Writers) Enter(ctx context.Context, t *Writer, key, user string, until time.Time, wait func() (over func())) error {
	t.of, t.key, t.user = w, key, user
	for told := false; ; {
		ready := w.try(t, told)
		if ready == nil {
			return nil
		}
		over := wait()
		var err error
		told, err = w.await(ctx, t, ready, until)
		over()
		switch {
		case err != nil:
		case ctx.Err() != nil:
			err = context.Cause(ctx)
		case time.Until(until) <= 0:
			err = ErrNoTurn
		}
		if err != nil && told {
			w.mu.Lock()
			w.looked(w.objects[key], key)
			w.mu.Unlock()
		}
		if err != nil || !told {
			return err
		}
	}
}

// try takes the object if it is free, or queues, before the others if the request was told that the object is free. It does
// neither if somebody has had the object for too long.
func (w *Writers) try(t *Writer, told bool) (ready <-chan struct{}) {
	w.mu.Lock()
	defer w.mu.Unlock()
	x := w.objects[t.key]
	if x == nil {
		if w.objects == nil {
			w.objects = map[string]*object{}
		}
		x = &object{}
		w.objects[t.key] = x
	}
	if told {
		x.told--
	}
	if x.has == nil {
		x.has, x.since = t, time.Now()
		return nil
	}
	if x.left() <= 0 {
		return nil
	}
	t.ready = make(chan struct{})
	at := len(x.waiting)
	if told {
		at = 0
	}
	x.waiting = slices.Insert(x.waiting, at, t)
	return t.ready
}

// await waits until the request is told that the object is free, or somebody has had it for too long. Who waits for too long while
// another one was told counts as told, too. It may be told in the last moment before an error.
func (w *Writers) await(ctx context.Context, t *Writer, ready <-chan struct{}, until time.Time) (told bool, err error) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		w.mu.Lock()
		x := w.objects[t.key]
		i := slices.Index(x.waiting, t)
		left, patience := x.left(), time.Until(until)
		if err == nil && patience <= 0 {
			err = ErrNoTurn
		}
		switch {
		case i < 0:
			w.mu.Unlock()
			return true, err
		case err != nil, left <= 0:
			x.waiting = slices.Delete(x.waiting, i, i+1)
			if told = err == nil && x.has == nil; told {
				x.told++
			}
			w.forget(x, t.key)
			w.mu.Unlock()
			return told, err
		}
		w.mu.Unlock()
		timer.Reset(min(left, patience))
		select {
		case <-ready:
			return true, nil
		case <-timer.C:
		case <-ctx.Done():
			err = context.Cause(ctx)
		}
	}
}

// looked is called for a request that was told that the object is free, and does not want it any more.
func (w *Writers) looked(x *object, key string) {
	x.told--
	w.tell(x, "")
	w.forget(x, key)
}

// tell tells the next one that the object is free, if it is and nobody knows: of those who wait, the first of another user than
// the one who had it, so that nobody keeps an object by asking again and again.
func (w *Writers) tell(x *object, had string) {
	if x.has != nil || x.told > 0 || len(x.waiting) == 0 {
		return
	}
	i := max(0, slices.IndexFunc(x.waiting, func(t *Writer) bool { return t.user != had }))
	next := x.waiting[i]
	x.waiting = slices.Delete(x.waiting, i, i+1)
	x.told++
	x.since = time.Now()
	close(next.ready)
}

// forget drops an object that nobody has, waits for or looks at.
func (w *Writers) forget(x *object, key string) {
	if x.has == nil && x.told == 0 && len(x.waiting) == 0 {
		delete(w.objects, key)
	}
}

// Done gives the object back. It may be called again.
func (t *Writer) Done() {
	w := t.of
	if w == nil {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	x := w.objects[t.key]
	if x == nil || x.has != t {
		return
	}
	x.has = nil
	w.tell(x, t.user)
	w.forget(x, t.key)
}
