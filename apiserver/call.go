package apiserver

import (
	"context"
	"errors"
	"net/http"
	"strconv"
	"time"

	"github.com/quorate/quorate/apiserver/access/fairness"
	"github.com/quorate/quorate/apiserver/access/rbac"
	"github.com/quorate/quorate/apiserver/backends/aggregator"
	"github.com/quorate/quorate/apiserver/objects"
	"github.com/quorate/quorate/apiserver/wire/codec"
	"github.com/quorate/quorate/apiserver/wire/status"
	"github.com/quorate/quorate/proto"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Names of our own response headers.
const (
	HeaderNode      = "X-Quorate-Node"
	HeaderRole      = "X-Quorate-Role"
	HeaderIndex     = "X-Quorate-Index"
	HeaderStaleness = "X-Quorate-Staleness" // milliseconds
)

// call is one request on its way through the door to a verb. It is its own
// ResponseWriter, so that a request costs one allocation here.
type call struct {
	http.ResponseWriter
	objects.Op // what it does with objects; not a pointer, which would be a second allocation
	s          *Server
	cfg        *Config // of the server
	r          *http.Request
	// allowedBy is what the request was allowed by, until the state that it reads is there.
	allowedBy rbac.Mark
	masked    *masked // nil: user has sent the request
	grounds

	code      int
	written   int64
	bodySize  int64
	ticket    fairness.Ticket
	computing computing
	pace      *slowRequest     // of the answer; nil until it is long
	limiter   *inflightLimiter // nil: not among those in flight
	within    timeLimit        // Context, of a request that has one
	room      bodyRoom
	bodyRead  bool         // nothing of the body is left on the connection
	proxied   *proxiedBody // the body, if another server gets it
	audit     auditing
	remote    *aggregator.Remote // the server that answers; nil: this one
	following bool               // a watch that has begun: watchset.go looks after it

	values headerValues
}

// verbs is a call for objects, and what each verb does with them.
type verbs struct{ *call }

// headerValues are those of headers that each answer has of its own, in memory that the request has anyway.
type headerValues [3]string

const (
	valueAudit = iota
	valueIndex
	valueStaleness
)

func (v *headerValues) set(of int, text string) []string {
	v[of] = text
	return v[of : of+1 : of+1]
}

// begun notes the code of the answer when it begins.
func (c *call) begun(code int) {
	if c.code != 0 {
		return
	}
	c.code = code
	c.computing.answers()
	c.setWarnings()
	c.room.giveBack()
	c.leaveBody()
	if c.Kind.LongRunning {
		c.audit.Started(code)
	}
}

// setWarnings tells the client what is to be told besides the answer.
func (c *call) setWarnings() {
	if lines := c.Warnings(); lines != nil {
		c.Header()["Warning"] = lines
	}
}

// WriteHeader notes the code.
func (c *call) WriteHeader(code int) {
	c.begun(code)
	c.ResponseWriter.WriteHeader(code)
}

// Write counts.
func (c *call) Write(b []byte) (int, error) {
	c.begun(http.StatusOK)
	c.audit.answer(b)
	write := c.ResponseWriter.Write
	if c.written+int64(len(b)) > promptBytes && !c.following {
		write = c.pacedWrite
	}
	c.computing.piece()
	n, err := write(b)
	c.written += int64(n)
	return n, err
}

// Flush implements http.Flusher.
func (c *call) Flush() {
	c.begun(http.StatusOK)
	if f, ok := c.ResponseWriter.(http.Flusher); ok {
		f.Flush()
	}
}

// Unwrap lets http.ResponseController find the connection.
func (c *call) Unwrap() http.ResponseWriter { return c.ResponseWriter }

// fail answers with an error's Status.
func (c *call) fail(err error) {
	var answer *metav1.Status
	if c.Resource != nil {
		answer = status.ForRequest(err, c.Info.Verb, c.Resource.GroupResource())
	} else {
		answer = status.From(err)
	}
	if answer.Reason == metav1.StatusReasonInternalError && errors.Is(c.Context.Err(), context.DeadlineExceeded) {
		// It may have failed because the time is over, as a webhook does that had none to answer in.
		// Upstream's timeout filter answers so whatever has failed, and says the rest to the log only.
		c.cfg.Log.Debug("a request failed after its deadline", "err", err, "verb", c.Info.Verb, "path", c.r.URL.Path)
		answer = status.From(status.Timeout())
	}
	if found, unknown := status.FoundNoLeader(err); found && c.cfg.NoQuorum != nil {
		// A write that may have happened has waited for as long as a leader keeps its lease: that is enough.
		if missing := c.cfg.NoQuorum(c.Context, !unknown); missing != "" {
			status.NoQuorum(answer, missing)
		}
	}
	c.audit.Refused(answer)
	codec.WriteStatus(c, c.r, answer)
}

// setIndexHeader says which state an answer comes from.
func (c *call) setIndexHeader(at proto.Revision) {
	c.Header()[HeaderIndex] = c.values.set(valueIndex, strconv.FormatUint(uint64(at), 10))
}

// maxStaleness is beyond any bound that a node knows: it was not found current
// since it was started.
const maxStaleness = 100 * 365 * 24 * time.Hour

// setStalenessHeader says how old an Any answer may be, in milliseconds rounded up, since it is
// a bound, or that nothing is known about it.
func (c *call) setStalenessHeader() {
	text := "unknown"
	if d := c.cfg.Store.Staleness(); d < maxStaleness {
		text = strconv.FormatInt((d + time.Millisecond - 1).Milliseconds(), 10)
	}
	c.Header()[HeaderStaleness] = c.values.set(valueStaleness, text)
}
