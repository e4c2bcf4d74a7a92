package conversion

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/quorate/quorate/internal/decoded"
	"github.com/quorate/quorate/internal/slots"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/uuid"
)

// Call is how a call of a conversion webhook ended.
type Call struct {
	Definition, From, To string // names; From is the version of the first object
	// Failure is empty for success, else upstream's word for what went wrong.
	Failure  string
	Duration time.Duration
}

// Config of a Caller. Zero values stand for the defaults.
type Config struct {
	// Resolve returns the address, host:port, of a Service of the cluster. Required for
	// webhooks that name one.
	Resolve func(ctx context.Context, namespace, name string, port int32) (string, error)
	// Dial connects to Services, and DialURL to what a URL names. Default: the network of this host.
	Dial, DialURL func(ctx context.Context, network, address string) (net.Conn, error)
	// Timeout of one call. Default 30 s.
	Timeout time.Duration
	// Calls to one webhook at a time; others wait. Default 8.
	Calls int
	// Answer is how many bytes one answer may have. Default 8 MiB.
	Answer int64
	// Answers is how many bytes of answers may be read at a time, of all webhooks.
	// Default 128 MiB.
	Answers int64
	// Observe, if set, is told of each call.
	Observe func(Call)
}

// Caller asks webhooks. Safe for concurrent use.
type Caller struct {
	cfg Config

	mu      sync.Mutex
	clients map[string]*client // by Webhook.ID
	recent  []string           // of clients, the one used last at the end

	answers budget
	room    *decoded.Room
}

// maxDecoded is the room for the answers that are decoded at a time, by decoded.Cost.
const maxDecoded = 256 << 20

// maxClients is how many webhooks' connections are kept.
const maxClients = 64

// NewCaller returns a Caller. Close ends its idle connections.
func NewCaller(cfg Config) *Caller {
	if cfg.Dial == nil {
		cfg.Dial = new(net.Dialer).DialContext
	}
	if cfg.Timeout == 0 {
		cfg.Timeout = 30 * time.Second
	}
	if cfg.Calls == 0 {
		cfg.Calls = 8
	}
	if cfg.Answer == 0 {
		cfg.Answer = 8 << 20
	}
	if cfg.Answers == 0 {
		cfg.Answers = 128 << 20
	}
	c := &Caller{cfg: cfg, clients: map[string]*client{}, room: decoded.NewRoom(maxDecoded)}
	c.answers.max = cfg.Answers
	return c
}

// Close ends idle connections. Calls that are under way end by themselves.
func (c *Caller) Close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, x := range c.clients {
		x.http.CloseIdleConnections()
	}
	c.clients, c.recent = map[string]*client{}, nil
}

// Timeout is how long one call may take.
func (c *Caller) Timeout() time.Duration { return c.cfg.Timeout }

// Convert returns objects of a definition in another version, in their order. None of
// them may have that version already; they are not changed. It waits for a free call
// and for the webhook as long as ctx and the timeout allow. Errors are Status errors
// (500, with upstream's words), or the context's.
func (c *Caller) Convert(ctx context.Context, w *Webhook, objects []map[string]any, to schema.GroupVersion) ([]map[string]any, error) {
	if len(objects) == 0 {
		return nil, nil
	}
	kind := (&unstructured.Unstructured{Object: objects[0]}).GroupVersionKind()
	x, err := c.client(w)
	if err != nil {
		return nil, failed(kind, err)
	}
	// To the end: who has one of these must not wait for a slot, because others wait for it.
	defer slots.Waiting(ctx)()
	select {
	case x.slots <- struct{}{}:
		defer func() { <-x.slots }()
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	began := time.Now()
	out, why, err := c.ask(ctx, x, w, objects, to, kind)
	if c.cfg.Observe != nil {
		c.cfg.Observe(Call{Definition: w.Definition, From: kind.Version, To: to.Version, Failure: string(why), Duration: time.Since(began)})
	}
	if err != nil && ctx.Err() != nil {
		// The client's time was up, not the webhook's.
		return nil, context.Cause(ctx)
	}
	return out, err
}

func (c *Caller) ask(ctx context.Context, x *client, w *Webhook, objects []map[string]any, to schema.GroupVersion, kind schema.GroupVersionKind) ([]map[string]any, failure, error) {
	uid := uuid.NewUUID()
	body, version, err := reviewOf(w.ReviewVersions, objects, to.String(), uid)
	if err != nil {
		return nil, callFailed, Internal(err)
	}
	raw, err := x.post(ctx, body)
	if err != nil {
		return nil, callFailed, failed(kind, err)
	}
	defer c.answers.release(int64(len(raw)))
	// What an answer may take follows from what it is the answer to: a page of objects may be large.
	give, err := c.room.Take(ctx, decoded.Cost(raw), decoded.Most+4*decoded.Cost(body))
	if err != nil {
		return nil, callFailed, failed(kind, err)
	}
	defer give()
	read, err := read(version, raw)
	if err != nil {
		return nil, callFailed, failed(kind, err)
	}
	converted, err := read.converted(version, uid)
	if err != nil {
		return nil, malformed, failed(kind, err)
	}
	if len(converted) != len(objects) {
		return nil, partial, Internal(fmt.Errorf("conversion webhook for %v returned %d objects, expected %d", kind, len(converted), len(objects)))
	}
	out := make([]map[string]any, len(objects))
	for i, in := range objects {
		index, place := i, fmt.Sprintf("converted object at index %d", i)
		if len(objects) == 1 {
			index, place = alone, "object"
		}
		if out[i], err = check(in, converted[i].Raw, to, kind, place, index); err != nil {
			return nil, invalidObject, Internal(err)
		}
	}
	return out, noFailure, nil
}

// failed is a call without a usable answer.
func failed(kind schema.GroupVersionKind, err error) error {
	return Internal(fmt.Errorf("conversion webhook for %v failed: %w", kind, err))
}

// Internal is what upstream makes of an error that is no Status: 500 without a reason.
func Internal(err error) error {
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure, Code: http.StatusInternalServerError, Message: err.Error(),
	}}
}

// errAnswers refuses an answer for which there is no room.
var errAnswers = errors.New("too many bytes of answers of conversion webhooks at a time")

// budget counts bytes that are held.
type budget struct {
	mu        sync.Mutex
	held, max int64
}

func (b *budget) take(n int64) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.held+n > b.max {
		return false
	}
	b.held += n
	return true
}

func (b *budget) release(n int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.held -= n
}
