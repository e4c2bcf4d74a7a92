// Package answers bounds what the HTTP servers answer that plugins ask. Upstream has no such
// bounds: one answer can take all memory, and none of the work on it can be interrupted.
//
// The types to know:
//
//   - Limits bound all answers that are read at a time.
//   - A decision, which WithDecision begins, bounds those to one request.
package answers

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"sync/atomic"

	"github.com/quorate/quorate/internal/decoded"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/rest"
	kjson "sigs.k8s.io/json"
)

// Bounds in bytes: of one answer, of all that are read at a time, of those to one decision, and
// of what patches may add to an object in one decision: each next webhook is sent what the one
// before it has made.
const (
	maxAnswer   = 8 << 20
	maxAnswers  = 128 << 20
	maxDecision = 32 << 20
	maxGrowth   = 8 << 20
	// maxDecoded is the room for all that is decoded at a time, by decoded.Cost.
	maxDecoded = 256 << 20
)

// maxWork bounds the operations of a patch times the bytes of object and patch, as the patches of
// clients are bounded: an operation on an array can cost as much as the array is long.
const maxWork = 4 << 30

// smallAnswer is up to how many bytes of an answer its patch is decoded without a look at what it would take. In a review it
// is text, whose parts decoded.Cost does not see.
const smallAnswer = 64 << 10

// minOperation is how many bytes of an answer an operation of a patch has at least.
const minOperation = 30

// MaxHead is how many bytes the head of an answer may have.
const MaxHead = 64 << 10

// Limits bound the answers that are read and decoded at a time. Safe for concurrent use.
type Limits struct {
	held atomic.Int64
	room *decoded.Room
}

// NewLimits returns limits that nothing counts in.
func NewLimits() *Limits { return &Limits{room: decoded.NewRoom(maxDecoded)} }

// Transport is a transport whose answers are bounded, and which follows no redirects: a server is
// where its configuration says, and what it is sent may be secret. Errors are told by what reads
// the answer. The heads are bounded by the http.Transport that next leads to, which must be nobody else's: see OwnTransport.
func (l *Limits) Transport(next http.RoundTripper) http.RoundTripper {
	boundHeads(next)
	return transport{next, l}
}

// OwnTransport has client-go make a transport for a client alone. It keeps those of clients which differ by nothing that it
// can compare, and functions it cannot.
func OwnTransport(c *rest.Config) {
	if c.Proxy == nil {
		c.Proxy = http.ProxyFromEnvironment // as it has it without one
	}
}

// boundHeads bounds the heads of what the http.Transport in a chain reads.
func boundHeads(t http.RoundTripper) {
	for {
		switch of := t.(type) {
		case *http.Transport:
			of.MaxResponseHeaderBytes = MaxHead
			return
		case utilnet.RoundTripperWrapper:
			t = of.WrappedRoundTripper()
		default:
			return
		}
	}
}

// MaySend reports whether a request of a size may be sent in a decision, as Transport has it.
func (l *Limits) MaySend(ctx context.Context, size int64) bool {
	return decisionOf(ctx).grows(size) == nil
}

// Hold counts an answer that was read without Transport, until Release. False: it is too large, or
// with it all are, and nothing is counted.
func (l *Limits) Hold(ctx context.Context, size int64) bool {
	d := decisionOf(ctx)
	held, read := l.held.Add(size), d.read.Add(size)
	if size <= maxAnswer && read <= maxDecision && held <= maxAnswers {
		return true
	}
	l.held.Add(-size)
	d.read.Add(-size)
	return false
}

// Release ends what Hold has begun. An answer that is handed on by Transport after all is counted
// there.
func (l *Limits) Release(ctx context.Context, size int64, again bool) {
	l.held.Add(-size)
	if again {
		decisionOf(ctx).read.Add(-size)
	}
}

// Small reports whether whatever patch is in an answer to a request of so many bytes, it can be
// applied within the bound of work, and decoded.
func Small(answer, sent int64) bool {
	return answer <= smallAnswer && answer/minOperation*(sent+answer) <= maxWork
}

// decision is what servers have answered to one request so far.
type decision struct {
	sent atomic.Int64 // the bytes of the first request to a server; zero: there was none
	read atomic.Int64
}

type decisionKey struct{}

// WithDecision is the context in which servers are asked for one decision.
func WithDecision(ctx context.Context) context.Context {
	return context.WithValue(ctx, decisionKey{}, &decision{})
}

// decisionOf is that of a context, or one of its own.
func decisionOf(ctx context.Context) *decision {
	if d, ok := ctx.Value(decisionKey{}).(*decision); ok {
		return d
	}
	return &decision{}
}

// grows refuses to send on what patches have made too large.
func (d *decision) grows(size int64) error {
	d.sent.CompareAndSwap(0, size)
	if size > d.sent.Load()+maxGrowth {
		return fmt.Errorf("patches have made the object more than %d bytes larger", maxGrowth)
	}
	return nil
}

type transport struct {
	next   http.RoundTripper
	limits *Limits
}

// WrappedRoundTripper implements upstream's RoundTripperWrapper.
func (t transport) WrappedRoundTripper() http.RoundTripper { return t.next }

// RoundTrip implements http.RoundTripper.
func (t transport) RoundTrip(r *http.Request) (*http.Response, error) {
	d := decisionOf(r.Context())
	if err := d.grows(r.ContentLength); err != nil {
		if r.Body != nil {
			_ = r.Body.Close() // a RoundTripper closes it, also when it fails
		}
		return nil, err
	}
	if r.Context().Value(aloneKey{}) != nil {
		alone := *r // a RoundTripper does not change what it is given
		alone.Close = true
		r = &alone
	}
	w, err := t.next.RoundTrip(r)
	if err != nil {
		return w, err
	}
	w.Header.Del("Location") // without it http.Client takes a redirect for the answer
	w.Body = &body{ctx: r.Context(), from: w.Body, limits: t.limits, decision: d, sent: r.ContentLength}
	return w, nil
}

// body is an answer that is read as a whole, and looked at, before any of it is handed on. For one
// goroutine.
type body struct {
	ctx      context.Context // of the request
	from     io.ReadCloser
	limits   *Limits
	decision *decision
	sent     int64

	all  *bytes.Reader // nil: it is not read yet
	err  error
	held int64
	give func() // the room for what is decoded; nil: it has none
}

// Read implements io.Reader. Errors: the answer is too long, or all answers are, or a patch in it
// is too much work, or the time of the request is over.
func (b *body) Read(p []byte) (int, error) {
	if b.all == nil {
		raw, err := io.ReadAll(counted{b})
		// A server that sees the connection end may end its answer, and net/http still read that.
		if err == nil && b.ctx.Err() != nil {
			err = context.Cause(b.ctx)
		}
		if err == nil {
			err = b.take(raw, b.sent)
		}
		b.all, b.err = bytes.NewReader(raw), err
	}
	if b.err != nil {
		return 0, b.err
	}
	return b.all.Read(p)
}

// take takes room for what an answer is decoded to, and checks its patch.
func (b *body) take(raw []byte, sent int64) (err error) {
	c, charged := b.ctx.Value(chargeKey{}).(*charge)
	if charged {
		c.end() // the answer before this one was in vain: who waits here holds nothing
	}
	if b.give, err = b.limits.room.Take(b.ctx, decoded.Cost(raw), decoded.Most); err != nil {
		return err
	}
	if charged {
		c.give, b.give = b.give, nil
	}
	return checkPatch(raw, sent)
}

// Close implements io.Closer.
func (b *body) Close() error {
	b.limits.held.Add(-b.held)
	b.held = 0
	if b.give != nil {
		b.give()
		b.give = nil
	}
	return b.from.Close()
}

type aloneKey struct{}

// Alone returns a context whose requests have connections of their own. It is for answers that do not name what they are the
// answer to: on a connection that is used again, what a server sends behind an answer is the next one.
func Alone(ctx context.Context) context.Context { return context.WithValue(ctx, aloneKey{}, true) }

// charge is the room that the last answer within a context takes. It is for one goroutine at a time.
type charge struct{ give func() }

func (c *charge) end() {
	if c.give != nil {
		c.give()
		c.give = nil
	}
}

type chargeKey struct{}

// Charged returns a context in which the room for what answers are decoded to is held until done is called, and not only
// until they are read.
func Charged(ctx context.Context) (_ context.Context, done func()) {
	c := &charge{}
	return context.WithValue(ctx, chargeKey{}, c), c.end
}

// counted reads what a body is from, and counts it.
type counted struct{ body *body }

func (c counted) Read(p []byte) (int, error) {
	b := c.body
	n, err := b.from.Read(p)
	b.held += int64(n)
	held, read := b.limits.held.Add(int64(n)), b.decision.read.Add(int64(n))
	switch {
	case b.held > maxAnswer:
		return 0, fmt.Errorf("the answer has more than %d bytes", maxAnswer)
	case read > maxDecision:
		return 0, fmt.Errorf("the answers to one request have more than %d bytes", maxDecision)
	case held > maxAnswers:
		return 0, fmt.Errorf("the answers of all webhooks have more than %d bytes at a time", maxAnswers)
	}
	return n, err
}

// checkPatch refuses an AdmissionReview whose patch would take too long to apply. sent are the
// bytes of the request, of which the object is a part. What is no review is not its business, but
// if it is large it must be JSON.
func checkPatch(raw []byte, sent int64) error {
	size := int64(len(raw))
	if Small(size, sent) {
		return nil // whatever is in it: nearly all answers
	}
	var review struct {
		Response struct {
			Patch []byte `json:"patch"`
		} `json:"response"`
	}
	var operations []json.RawMessage
	// The library is upstream's: of fields of nearly the same name it takes the same one.
	if err := kjson.UnmarshalCaseSensitivePreserveInts(raw, &review); err != nil {
		return fmt.Errorf("an answer of this size must be a review in JSON: %w", err) // upstream also reads YAML and protobuf
	}
	if cost := decoded.Cost(review.Response.Patch); cost > decoded.Most {
		return fmt.Errorf("the patch: %w", &decoded.TooLargeError{Cost: cost, Most: decoded.Most})
	}
	if json.Unmarshal(review.Response.Patch, &operations) != nil {
		return nil // no patch
	}
	if n := int64(len(operations)); n*(sent+int64(len(review.Response.Patch))) > maxWork {
		return fmt.Errorf("%d operations on an object of this size are too much for one JSON patch", n)
	}
	return nil
}
