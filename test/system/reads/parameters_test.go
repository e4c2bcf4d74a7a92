package reads

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/quorate/quorate/internal/must"
	"github.com/quorate/quorate/test/harness/cluster"
)

// matrixDelay is how far the node that is behind hears the leader late.
const matrixDelay = 300 * time.Millisecond

// matrixWorkers is how many requests are under way at a time, behindWorkers on
// the node where many wait.
const (
	matrixWorkers = 16
	behindWorkers = 64
)

// TestMatrix sends every combination of the parameters of reads to a leader, a
// follower, a non-voter and a node that is behind, while others write, and holds
// the answers against matrix.txt and against what was there at every revision.
func TestMatrix(t *testing.T) {
	outcomes := readMatrix(t)
	r := cluster.SharedReaders(t)
	for i, x := range []struct {
		name  string
		node  *cluster.Node
		delay time.Duration
	}{
		{"leader", r.Leader, 0}, {"follower", r.Follower, 0}, {"nonvoter", r.Nonvoter, 0}, {"behind", r.Nonvoter, matrixDelay},
	} {
		t.Run(x.name, func(t *testing.T) {
			began := time.Now()
			m := &matrix{t: t, r: r, node: x.node, delay: x.delay, outcomes: outcomes}
			m.prepare("matrix-" + x.name)
			r.Link.Delayed(t, x.delay)
			stop := m.ledger.churn([]string{"m-a", "m-b", "m-c", "m-d", "m-e", "m-f"}, 5*time.Millisecond)
			m.requests(m.share(i))
			streams := m.openStreams()
			stop()
			m.ledger.mustPut("m-a")
			m.ledger.mustDelete("m-b")
			m.ledger.close()
			streams.wait()
			m.verify()
			//wall: the history is kept for a time; a slower run has proved nothing
			if took := time.Since(began); took > cluster.HistoryRetention-2*time.Second {
				t.Errorf("this took %s; with a history of %s the old revision may be gone", took, cluster.HistoryRetention)
			}
		})
	}
}

// matrix is the run of the cells against one node.
type matrix struct {
	t        *testing.T
	r        *cluster.Readers
	node     *cluster.Node
	delay    time.Duration
	outcomes map[cell]string
	ledger   *ledger

	old, future uint64
	// valid is a token, start the name that it goes on behind, from its revision.
	valid, expired, latest string
	start                  string
	from                   uint64

	mu      sync.Mutex
	replies []*reply
}

// reply is the answer to one cell's request.
type reply struct {
	cell  cell
	asked string // the number in the request
	acked uint64 // what others had been told when the request was sent
	sent  time.Time
	took  time.Duration

	code   int
	header http.Header
	body   []byte
	events []streamEvent // of a watch
}

// prepare writes what the cells read, through other nodes.
func (m *matrix) prepare(namespace string) {
	others := m.r.Cluster.Others(m.node, m.r.Nonvoter)
	m.ledger = newLedger(m.t, m.r, namespace, others[0], others...)
	for _, name := range []string{"come-1", "d-0", "m-a", "m-b", "m-c", "m-d", "m-e", "m-f", "u-0", "v-0"} {
		m.ledger.mustPut(name)
	}
	m.ledger.mustDelete("v-0")
	page := getList(m.t, others[0], m.path("")+"?limit=2")
	m.valid, m.from, m.start = page.Metadata.Continue, page.revision(m.t), page.Items[1].Metadata.Name
	m.expired = encodeToken(int64(m.r.Below), namespace+"/"+m.start+"\x00")
	_, refused := m.refused(others[0], m.path("")+"?continue="+m.expired)
	m.latest = refused.ListMeta.Continue
	m.ledger.mustPut("m-a")
	m.ledger.mustDelete("come-1")
	m.old = m.ledger.mustPut("m-b")
	m.ledger.mustPut("m-c")
	m.future = m.ledger.mustPut("m-d") + 1_000_000
}

func (m *matrix) path(name string) string {
	p := "/api/v1/namespaces/" + m.ledger.namespace + "/configmaps"
	if name != "" {
		p += "/" + name
	}
	return p
}

func (m *matrix) refused(n *cluster.Node, path string) ([]byte, refusal) {
	m.t.Helper()
	body, resp, err := n.Get(m.t, path)
	must.OK(m.t, err)
	refused, err := parseRefusal(resp, body)
	if err != nil {
		m.t.Fatalf("%s: %s: %v", n.Name, path, err)
	}
	return body, refused
}

// share returns the cells that are one request and one answer. Writes go to one
// of the first three nodes: what they ignore, no node looks at.
func (m *matrix) share(node int) (cells []cell) {
	for _, verb := range matrixVerbs {
		read := slices.Contains([]string{"get", "list", "watch"}, verb)
		for i, c := range cellsOf(verb) {
			if m.streams(c) || !read && i%3 != node {
				continue
			}
			cells = append(cells, c)
		}
	}
	return cells
}

// streams reports whether a cell's answer is a stream.
func (m *matrix) streams(c cell) bool {
	code, _ := refusalOf(m.outcomes[c])
	return c.verb == "watch" && (code == 0 || strings.HasPrefix(m.outcomes[c], "stream "))
}

func (m *matrix) requests(cells []cell) {
	next := make(chan cell)
	var wg sync.WaitGroup
	workers := matrixWorkers
	if m.delay > 0 {
		workers = behindWorkers
	}
	for range workers {
		wg.Go(func() {
			for c := range next {
				rep, resp, cancel := m.send(c)
				if resp == nil {
					continue
				}
				var err error
				if rep.body, err = io.ReadAll(resp.Body); err != nil {
					m.t.Errorf("%s: %s: %v", m.node.Name, c, err)
				}
				resp.Body.Close()
				cancel()
				rep.took = time.Since(rep.sent)
			}
		})
	}
	for _, c := range cells {
		next <- c
	}
	close(next)
	wg.Wait()
}

// request makes a cell's request.
func (m *matrix) request(ctx context.Context, c cell, rep *reply) (*http.Request, error) {
	q := url.Values{}
	set := func(name, value string) {
		if value != "-" {
			q.Set(name, value)
		}
	}
	switch c.rv {
	case "0":
		rep.asked = "0"
	case "old":
		rep.asked = fmt.Sprint(m.old)
	case "current":
		rep.asked = fmt.Sprint(rep.acked)
	case "future":
		rep.asked = fmt.Sprint(m.future)
	case "below":
		rep.asked = fmt.Sprint(m.r.Below)
	}
	if c.rv != "-" {
		q.Set("resourceVersion", rep.asked)
	}
	set("resourceVersionMatch", c.match)
	set("limit", c.limit)
	set("continue", map[string]string{"-": "-", "valid": m.valid, "latest": m.latest, "expired": m.expired, "garbage": "!!"}[c.token])
	set("sendInitialEvents", c.sie)
	set("allowWatchBookmarks", c.bookmarks)
	method, path, body, kind := http.MethodGet, m.path(""), "", "application/json"
	switch c.verb {
	case "get":
		path = m.path("m-a")
	case "watch":
		q.Set("watch", "1")
	case "create":
		method, body = http.MethodPost, `{"metadata":{"name":"created"}}`
	case "update":
		method, path, body = http.MethodPut, m.path("u-0"), `{"metadata":{"name":"u-0"}}`
	case "patch":
		method, path, body, kind = http.MethodPatch, m.path("u-0"), `{"data":{"a":"b"}}`, "application/merge-patch+json"
	case "delete":
		method, path = http.MethodDelete, m.path("d-0")
	case "delete-body":
		method, path, body = http.MethodDelete, m.path("d-0"), `{"kind":"DeleteOptions","apiVersion":"v1","dryRun":["All"]}`
	case "collection":
		method, body = http.MethodDelete, `{"kind":"DeleteOptions","apiVersion":"v1","dryRun":["All"]}`
	}
	if method != http.MethodGet {
		q.Set("dryRun", "All")
	}
	req, err := http.NewRequestWithContext(ctx, method, m.node.API+path+"?"+q.Encode(), strings.NewReader(body))
	if err == nil && body != "" {
		req.Header.Set("Content-Type", kind)
	}
	return req, err
}

// send sends a cell's request and notes the reply. The caller reads the body and
// then calls cancel; without an answer resp is nil.
func (m *matrix) send(c cell) (*reply, *http.Response, context.CancelFunc) {
	ctx, cancel := context.WithTimeout(m.t.Context(), 25*time.Second)
	rep := &reply{cell: c, acked: m.ledger.acked(), sent: time.Now()}
	req, err := m.request(ctx, c, rep)
	if err == nil {
		var resp *http.Response
		if resp, err = m.node.HTTP(m.t).Do(req); err == nil {
			rep.code, rep.header, rep.took = resp.StatusCode, resp.Header, time.Since(rep.sent)
			m.mu.Lock()
			defer m.mu.Unlock()
			m.replies = append(m.replies, rep)
			return rep, resp, cancel
		}
	}
	cancel()
	m.t.Errorf("%s: %s: %v", m.node.Name, c, err)
	return rep, nil, nil
}

// streamEvent is one event of a watch as it came.
type streamEvent struct {
	Type   string
	Object json.RawMessage
}

// openedStreams are watches of which each reads on until it has seen the ledger's
// last write.
type openedStreams struct{ wg sync.WaitGroup }

func (s *openedStreams) wait() { s.wg.Wait() }

// openStreams opens the watch of every cell that is a stream and returns when the
// server has answered all of them.
func (m *matrix) openStreams() *openedStreams {
	s := &openedStreams{}
	var opened sync.WaitGroup
	for _, c := range cellsOf("watch") {
		if !m.streams(c) {
			continue
		}
		opened.Add(1)
		s.wg.Go(func() {
			rep, resp, cancel := m.send(c)
			opened.Done()
			if resp == nil {
				return
			}
			defer cancel()
			defer resp.Body.Close()
			if err := rep.readEvents(resp.Body); err != nil {
				m.t.Errorf("%s: %s: after %d events: %v", m.node.Name, c, len(rep.events), err)
			}
		})
	}
	opened.Wait()
	return s
}

// readEvents reads until the ledger's last write, an error event, or the end.
func (rep *reply) readEvents(body io.Reader) error {
	if rep.code != http.StatusOK {
		var err error
		rep.body, err = io.ReadAll(body)
		return err
	}
	for d := json.NewDecoder(body); ; {
		var e streamEvent
		if err := d.Decode(&e); err != nil {
			return err
		}
		rep.events = append(rep.events, e)
		if e.Type == "ERROR" || bytes.Contains(e.Object, []byte(`"name":"zz-last"`)) {
			return nil
		}
	}
}

// refusalOf splits an outcome that is a refusal; the code is 0 for others.
func refusalOf(outcome string) (code int, text string) {
	head, text, _ := strings.Cut(strings.TrimPrefix(outcome, "stream "), " ")
	code, _ = strconv.Atoi(head)
	return code, text
}
