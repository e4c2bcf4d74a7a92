package clients

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// verb says how a collection was read.
type verb string

const (
	list      verb = "LIST"
	watch     verb = "WATCH"
	watchList verb = "WATCH with initial events"
)

// read is one read of a collection as the client's transport saw it.
type read struct {
	verb            verb
	resource        string // the last segment of the path
	resourceVersion string
	at              time.Time
	code            int   // 0 if there was no answer
	err             error // then
	// Of a stream:
	events   int
	failures []metav1.Status // ERROR events
	end      error           // io.EOF is a clean one
	ended    time.Time
}

func (r *read) String() string {
	s := fmt.Sprintf("%s %s %s at resourceVersion %q: %d", r.at.Format("05.000"), r.verb, r.resource, r.resourceVersion, r.code)
	if r.err != nil {
		s += fmt.Sprintf(" %v", r.err)
	}
	if r.end != nil {
		s += fmt.Sprintf(", %d events, ended after %s: %v", r.events, r.ended.Sub(r.at).Round(time.Millisecond), r.end)
	}
	for _, f := range r.failures {
		s += fmt.Sprintf(" ERROR %d %s", f.Code, f.Message)
	}
	return s
}

// wire notes every read of a collection that one client makes. It sits below
// everything that a client does by itself, such as trying again.
type wire struct {
	mu    sync.Mutex
	reads []*read
}

// wrap is a transport wrapper for client-go.
func (w *wire) wrap(next http.RoundTripper) http.RoundTripper {
	return roundTripper(func(req *http.Request) (*http.Response, error) {
		r := readOf(req)
		resp, err := next.RoundTrip(req)
		if r == nil {
			return resp, err
		}
		w.mu.Lock()
		defer w.mu.Unlock()
		w.reads = append(w.reads, r)
		if r.err = err; err != nil {
			return resp, err
		}
		r.code = resp.StatusCode
		if r.verb != list && r.code == http.StatusOK {
			resp.Body = &stream{ReadCloser: resp.Body, wire: w, read: r, split: splitterFor(resp.Header.Get("Content-Type"))}
		}
		return resp, err
	})
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// readOf tells reads of collections from all other requests, which are nil. The
// clients of these tests read single objects by path, never by selector.
func readOf(req *http.Request) *read {
	path := strings.Split(req.URL.Path, "/")
	last := path[len(path)-1]
	if req.Method != http.MethodGet || last != "configmaps" && last != "pods" && last != "secrets" {
		return nil
	}
	q := req.URL.Query()
	r := &read{verb: list, resource: last, resourceVersion: q.Get("resourceVersion"), at: time.Now()}
	switch {
	case q.Get("sendInitialEvents") == "true":
		r.verb = watchList
	case q.Get("watch") == "true":
		r.verb = watch
	}
	return r
}

// all returns copies of the reads so far.
func (w *wire) all() []read {
	w.mu.Lock()
	defer w.mu.Unlock()
	out := make([]read, len(w.reads))
	for i, r := range w.reads {
		out[i] = *r
	}
	return out
}

// stream listens in on a watch.
type stream struct {
	io.ReadCloser
	wire  *wire
	read  *read
	split func(buf []byte) (event []byte, rest []byte, ok bool)
	buf   []byte
}

func (s *stream) Read(p []byte) (int, error) {
	n, err := s.ReadCloser.Read(p)
	s.buf = append(s.buf, p[:n]...)
	for {
		event, rest, ok := s.split(s.buf)
		if !ok {
			break
		}
		s.note(event)
		s.buf = rest
	}
	if err != nil {
		s.wire.mu.Lock()
		if s.read.end == nil {
			s.read.end, s.read.ended = err, time.Now()
		}
		s.wire.mu.Unlock()
	}
	return n, err
}

// note counts one event and keeps errors.
func (s *stream) note(frame []byte) {
	event, object := decode(frame)
	s.wire.mu.Lock()
	defer s.wire.mu.Unlock()
	s.read.events++
	if event != "ERROR" {
		return
	}
	var status metav1.Status
	if json.Unmarshal(object, &status) != nil || status.Code == 0 {
		var unknown runtime.Unknown
		if raw, ok := bytes.CutPrefix(object, []byte("k8s\x00")); !ok || unknown.Unmarshal(raw) != nil || status.Unmarshal(unknown.Raw) != nil {
			status.Message = fmt.Sprintf("an ERROR event that is no Status: %q", object)
		}
	}
	s.read.failures = append(s.read.failures, status)
}

// decode finds the type and the object of an event in either format.
func decode(frame []byte) (event string, object []byte) {
	var e metav1.WatchEvent
	if bytes.HasPrefix(frame, []byte("{")) {
		if json.Unmarshal(frame, &e) != nil {
			return "ERROR", frame
		}
	} else if e.Unmarshal(frame) != nil {
		return "ERROR", frame
	}
	return e.Type, e.Object.Raw
}

// splitterFor returns what cuts a stream of a type into its events.
func splitterFor(contentType string) func([]byte) (event, rest []byte, ok bool) {
	if strings.Contains(contentType, "protobuf") {
		return func(b []byte) (event, rest []byte, ok bool) {
			if len(b) < 4 {
				return nil, b, false
			}
			n := int(binary.BigEndian.Uint32(b))
			if len(b)-4 < n {
				return nil, b, false
			}
			return b[4 : 4+n], b[4+n:], true
		}
	}
	return func(b []byte) (event, rest []byte, ok bool) {
		return bytes.Cut(b, []byte("\n"))
	}
}
