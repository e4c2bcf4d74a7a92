package consistency

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/quorate/quorate/proto"
)

// Source is what the waiting half needs of the store. All methods are safe for
// concurrent use.
type Source interface {
	// ReadIndex returns an index such that a state that has applied it includes
	// every write that was acknowledged before the call. It needs a quorum. It may
	// keep trying until ctx ends.
	ReadIndex(ctx context.Context) (proto.Revision, error)
	// WaitApplied returns when Applied has reached r.
	WaitApplied(ctx context.Context, r proto.Revision) error
	// Applied is the newest index that local readers can see. It never goes back.
	Applied() proto.Revision
	// Staleness is how long ago this node last knew that it was current.
	Staleness() time.Duration
}

// Options of a Reader. Zero values stand for the defaults.
type Options struct {
	// MostRecentTimeout bounds the wait of a Most Recent read for its index, each
	// shared round, and how long a node that catches up to the index may stand
	// still: a node that is behind is waited for, one that is cut off is not.
	// Default 1.6 s.
	MostRecentTimeout time.Duration
	// UnconfirmedTimeout bounds the wait for a revision that no quorum has
	// confirmed to exist. Default 3 s, as upstream.
	UnconfirmedTimeout time.Duration
	// Grace is how long a revision above the local state is waited for before a
	// quorum is asked whether it exists. Nearly always it is only a few
	// milliseconds away. Default 20 ms; negative means none.
	Grace time.Duration
	// Observe is told of each Most Recent read that succeeds how long it waited for
	// its index, and then for the local state to reach that. It must be fast and
	// safe for concurrent use. Default: nobody is told.
	Observe func(index, log time.Duration)
}

func (o *Options) defaults() {
	if o.MostRecentTimeout == 0 {
		o.MostRecentTimeout = 1600 * time.Millisecond
	}
	if o.UnconfirmedTimeout == 0 {
		o.UnconfirmedTimeout = 3 * time.Second
	}
	if o.Grace == 0 {
		o.Grace = 20 * time.Millisecond
	}
}

// fewCallers is how many Most Recent reads may wait for an index before the next
// ones share one. On a follower a read then costs one round trip unless there are
// many; with 4, a saturated node asked twice as often as it had to.
const fewCallers = 2

// errNoAnswer is the cause when one of the Reader's own bounds ended a wait.
var errNoAnswer = errors.New("no answer in time")

// Reader carries out plans against one node's store. All methods are safe for
// concurrent use.
type Reader struct {
	src    Source
	opt    Options
	rounds *Rounds[proto.Revision]
}

// NewReader returns a Reader on src. Close it before src.
func NewReader(src Source, o Options) *Reader {
	o.defaults()
	return &Reader{src: src, opt: o, rounds: NewRounds(o.MostRecentTimeout, fewCallers, src.ReadIndex)}
}

// Close fails the waits for a linearizable index and returns when no round is
// running any more.
func (r *Reader) Close() { r.rounds.Close() }

// Await returns the revision to read as of, once the local state has it. What
// has fallen below the history floor is not its business: the read itself tells.
//
// Errors: *UnavailableError, *TooLargeError, *TooStaleError, and the context's.
func (r *Reader) Await(ctx context.Context, p Plan) (proto.Revision, error) {
	switch p.Mode {
	case MostRecent:
		return r.mostRecent(ctx)
	case Any:
		return r.any(p)
	case NotOlderThan:
		if err := r.reach(ctx, p); err != nil {
			return 0, err
		}
		return r.src.Applied(), nil
	case Exact:
		if err := r.reach(ctx, p); err != nil {
			return 0, err
		}
		return p.Revision, nil
	default:
		return 0, fmt.Errorf("await a plan of mode %v", p.Mode)
	}
}

func (r *Reader) any(p Plan) (proto.Revision, error) {
	if p.MaxStaleness > 0 {
		// First the staleness, then the state: the state can only be fresher.
		if s := r.src.Staleness(); s > p.MaxStaleness {
			return 0, &TooStaleError{Staleness: s, Max: p.MaxStaleness, RetryAfter: retryAfter}
		}
	}
	at := r.src.Applied()
	if at == 0 {
		// A node that has just been started, and has nothing on disk yet, would answer
		// with an empty list of resourceVersion 0, which means something else.
		return 0, &UnavailableError{Cause: errNoState, RetryAfter: retryAfter}
	}
	return at, nil
}

// errNoState is why a node that has applied nothing yet answers no Any read.
var errNoState = errors.New("this node has no state of its cluster yet")

func (r *Reader) mostRecent(ctx context.Context) (proto.Revision, error) {
	wait, cancel := context.WithTimeoutCause(ctx, r.opt.MostRecentTimeout, errNoAnswer)
	defer cancel()
	began := time.Now()
	index, err := r.rounds.Do(wait)
	indexed := time.Now()
	if err == nil && index > r.src.Applied() {
		err = r.catchUp(ctx, wait, index)
	}
	if err != nil {
		return 0, unavailable(ctx, "linearizable read", err)
	}
	if r.opt.Observe != nil {
		r.opt.Observe(indexed.Sub(began), time.Since(indexed))
	}
	return r.src.Applied(), nil
}

// catchUp waits for an index that exists: within first, and then for as long as
// the node makes progress and the client waits.
func (r *Reader) catchUp(ctx, first context.Context, index proto.Revision) error {
	before := r.src.Applied()
	err := r.src.WaitApplied(first, index)
	for errors.Is(err, errNoAnswer) && ctx.Err() == nil {
		now := r.src.Applied()
		if now == before {
			return err
		}
		before = now
		wait, cancel := context.WithTimeoutCause(ctx, r.opt.MostRecentTimeout, errNoAnswer)
		err = r.src.WaitApplied(wait, index)
		cancel()
	}
	return err
}

// reach waits until the local state has the plan's revision, or it is clear that
// the cluster does not. A streaming list waits for a revision that does not exist
// yet, because the API Concepts page promises its bookmark for when the state has
// reached it. Other reads fail at once, which the page allows too.
func (r *Reader) reach(ctx context.Context, p Plan) error {
	n := p.Revision
	if r.src.Applied() >= n {
		return nil
	}
	bound, cancel := context.WithTimeoutCause(ctx, r.opt.UnconfirmedTimeout, errNoAnswer)
	defer cancel()
	if r.opt.Grace > 0 {
		grace, cancel := context.WithTimeoutCause(bound, r.opt.Grace, errNoAnswer)
		err := r.src.WaitApplied(grace, n)
		cancel()
		if err == nil {
			return nil
		}
	}
	index, err := r.rounds.Do(bound)
	switch {
	case r.src.Applied() >= n:
		return nil
	case err == nil && index >= n:
		// It exists. This node is behind and catches up, however long the client
		// is willing to wait.
		if err := r.src.WaitApplied(ctx, n); err != nil {
			return unavailable(ctx, fmt.Sprintf("wait for revision %d", n), err)
		}
		return nil
	case err == nil && !p.InitialEvents:
		return r.tooLarge(n, index)
	case ctx.Err() != nil:
		return fmt.Errorf("wait for revision %d: %w", n, context.Cause(ctx))
	}
	// It may still arrive: it does not exist yet, or no quorum says whether it does.
	if r.src.WaitApplied(bound, n) == nil {
		return nil
	}
	if ctx.Err() != nil {
		return fmt.Errorf("wait for revision %d: %w", n, context.Cause(ctx))
	}
	e := r.tooLarge(n, index)
	e.Unconfirmed = err != nil
	return e
}

func (r *Reader) tooLarge(asked, current proto.Revision) *TooLargeError {
	return &TooLargeError{Asked: asked, Current: max(current, r.src.Applied()), RetryAfter: retryAfter}
}

// unavailable tells the end of the client's own context from the failure of
// the wait.
func unavailable(ctx context.Context, op string, err error) error {
	if ctx.Err() != nil {
		return fmt.Errorf("%s: %w", op, context.Cause(ctx))
	}
	return &UnavailableError{Cause: fmt.Errorf("%s: %w", op, err), RetryAfter: retryAfter}
}
