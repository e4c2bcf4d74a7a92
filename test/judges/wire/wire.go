// Package wire is what the clients of all runs have in common, whether their
// cluster is simulated or made of processes. A Client makes operations and records
// them, a Watcher keeps what its watches saw and where the next one resumes; how
// nodes are reached, and what is done to them, is for the run's World.
package wire

import (
	"math/rand/v2"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/quorate/quorate/test/judges/history"
)

// Colors are what values end in. A value's color is also a label, so that a label
// selector is a filter by value.
var Colors = []string{"red", "green", "blue"}

// Color is the part of a value that selectors select.
func Color(value string) string { return value[strings.LastIndexByte(value, '-')+1:] }

// Object is what a client reads of an object, a Status, a list, or the object of an
// event.
type Object struct {
	Kind     string `json:"kind"`
	Code     int    `json:"code"`
	Reason   string `json:"reason"`
	Message  string `json:"message"`
	Metadata struct {
		Name            string            `json:"name"`
		Namespace       string            `json:"namespace"`
		ResourceVersion string            `json:"resourceVersion"`
		Continue        string            `json:"continue"`
		Annotations     map[string]string `json:"annotations"`
	} `json:"metadata"`
	Data  map[string]string `json:"data"`
	Items []Object          `json:"items"`
}

// Revision is the resourceVersion, or 0.
func (o *Object) Revision() uint64 {
	n, err := strconv.ParseUint(o.Metadata.ResourceVersion, 10, 64)
	if err != nil {
		return 0
	}
	return n
}

// InitialEventsEnd reports whether a bookmark is the one behind the initial events
// (KEP-3157).
func (o *Object) InitialEventsEnd() bool {
	return o.Metadata.Annotations["k8s.io/initial-events-end"] == "true"
}

// Staleness is what an answer to an Any read claims; nil if nothing is known.
func Staleness(h http.Header) *time.Duration {
	ms, err := strconv.ParseInt(h.Get("X-Quorate-Staleness"), 10, 64)
	if err != nil {
		return nil
	}
	d := time.Duration(ms) * time.Millisecond
	return &d
}

// Query is how a get or a list asks for op's mode and revision.
func Query(op *history.Op) url.Values {
	q := url.Values{}
	switch op.Mode {
	case history.Any:
		q.Set("resourceVersion", "0")
	case history.NotOlderThan, history.Exact:
		q.Set("resourceVersion", strconv.FormatUint(op.Asked, 10))
		if op.Mode == history.Exact || op.Kind == history.List {
			q.Set("resourceVersionMatch", string(op.Mode))
		}
	}
	return q
}

// Judge enters in op what the answer to a write says. One that says that it did
// not happen, as a ServerTimeout and a 503 do, is a refusal; behind a 504 and any
// other 500 it may yet happen.
func Judge(op *history.Op, code int, header http.Header, o *Object) {
	op.Role = header.Get("X-Quorate-Role")
	switch {
	case code < 300:
		op.Outcome, op.Revision = history.OK, o.Revision()
	case code == http.StatusGatewayTimeout, code == http.StatusInternalServerError && o.Reason != "ServerTimeout":
		op.Outcome, op.Code, op.Reason = history.Unknown, code, o.Message
	default:
		op.Outcome, op.Code, op.Reason = history.Refused, code, o.Reason
	}
}

// Seen is what all clients of a run have seen: they choose revisions from it. All
// may use it at once.
type Seen struct {
	mu     sync.Mutex
	newest uint64
	keys   map[string]uint64
}

// Note remembers revisions, and those of keys where there is one.
func (s *Seen) Note(items ...history.Item) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.keys == nil {
		s.keys = map[string]uint64{}
	}
	for _, it := range items {
		s.newest = max(s.newest, it.Revision)
		if it.Key != "" {
			s.keys[it.Key] = max(s.keys[it.Key], it.Revision)
		}
	}
}

// Newest is the highest revision noted.
func (s *Seen) Newest() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.newest
}

// Of is the highest revision noted of a key, at least 1.
func (s *Seen) Of(key string) uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return max(s.keys[key], 1)
}

// Around is a revision near the newest: up to back before it, up to ahead after it,
// and at least 1.
func (s *Seen) Around(rng *rand.Rand, back, ahead int) uint64 {
	n := int64(s.Newest()) - int64(rng.IntN(back+1)) + int64(rng.IntN(ahead+1))
	return uint64(max(n, 1))
}
