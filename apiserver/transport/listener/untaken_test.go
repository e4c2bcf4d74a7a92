package listener

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/quorate/quorate/internal/must"
	"golang.org/x/net/http2"
)

// TestUntakenAnswersAreBounded: above the bound, the connections go of the user who leaves the
// most answers untaken, until half of the bound is left. A user who has a watch and much to ask
// on one connection keeps it, and so do those who leave few.
func TestUntakenAnswersAreBounded(t *testing.T) {
	door := greeter{Authenticator: byHeader{}}
	news := make(chan string)
	var l *Listener
	l, s := serveConnections(t, 100, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		l.bounded(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			_, _ = door.Authenticate(r)
			if r.URL.Path != "/watch" {
				_, _ = io.WriteString(w, "here")
				return
			}
			for {
				w.(http.Flusher).Flush()
				select {
				case <-r.Context().Done():
					return
				case line := <-news:
					_, _ = io.WriteString(w, line+"\n")
				}
			}
		})).ServeHTTP(w, r)
	}))
	alice := userOf(t, s.URL, "alice")
	watch := bufio.NewReader(alice.get(t, "/watch"))
	many := func() {
		for range 200 {
			if body, err := io.ReadAll(alice.get(t, "/")); err != nil || string(body) != "here" {
				t.Fatalf("a user's request: %q, %v", body, err)
			}
		}
	}
	many()
	holds := func(user string, n int) *frames {
		f := dialFrames(t, s)
		for range n {
			f.ask(user)
		}
		if answered, _ := f.outcome(n); answered != n {
			t.Fatalf("%q: %d of %d answers begin", user, answered, n)
		}
		return f
	}
	crowd := []*frames{holds("mallory", 20), holds("mallory", 20), holds("mallory", 20)}
	few := map[string]*frames{"another user": holds("bob", 2), "a guest": holds("", 10)}

	var log bytes.Buffer
	closed := 0
	u := newUntaken(l, func(n int) { closed += n }, slog.New(slog.NewTextHandler(&log, nil)))
	for _, x := range []struct{ bound, closed int }{{1 << 20, 0}, {72, 0}, {71, 2}} {
		u.bound = x.bound
		u.then, u.counted = 0, time.Time{}
		must.OK(t, u.closeExcess(time.Now()))
		if closed != x.closed {
			t.Fatalf("a bound of %d answers: %d connections closed, want %d", x.bound, closed, x.closed)
		}
	}
	open := 0
	for _, f := range crowd {
		if f.alive() {
			open++
		}
	}
	if open != 1 {
		t.Errorf("%d connections of who leaves the most are open, want 1", open)
	}
	for who, f := range few {
		if !f.alive() {
			t.Errorf("%s, who leaves few: the connection is closed", who)
		}
	}
	if line := log.String(); !strings.Contains(line, "user=mallory connections=2 untaken_answers=72") {
		t.Errorf("the log has %q", line)
	}
	many()
	news <- "still here"
	if line, err := watch.ReadString('\n'); line != "still here\n" {
		t.Errorf("the watch: %q, %v", line, err)
	}
	if alice.dials != 1 {
		t.Errorf("a user who takes answers opened %d connections, want 1", alice.dials)
	}
}

// alive reports whether the connection is open: a ping is answered.
func (f *frames) alive() bool {
	if f.WritePing(false, [8]byte{1}) != nil {
		return false
	}
	for {
		frame, err := f.ReadFrame()
		if err != nil {
			return false
		}
		if ping, ok := frame.(*http2.PingFrame); ok && ping.IsAck() {
			return true
		}
	}
}

// client is a user with one connection of HTTP/2 for all requests.
type client struct {
	http.Client
	url, user string
	dials     int
}

func userOf(t *testing.T, url, user string) *client {
	c := &client{url: url, user: user}
	transport := &http.Transport{
		TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, ForceAttemptHTTP2: true,
		DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			c.dials++
			return new(net.Dialer).DialContext(ctx, network, address)
		},
	}
	c.Transport = transport
	t.Cleanup(transport.CloseIdleConnections)
	return c
}

// get begins an answer, which ends with the test.
func (c *client) get(t *testing.T, path string) io.Reader {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, c.url+path, nil)
	must.OK(t, err)
	r.Header.Set("User", c.user)
	resp, err := c.Do(r)
	must.OK(t, err)
	t.Cleanup(func() { resp.Body.Close() })
	return resp.Body
}

// TestWhoLosesConnections: whose connections are closed for untaken answers.
func TestWhoLosesConnections(t *testing.T) {
	for _, x := range []struct {
		name   string
		owed   string // "who answers answers …", a number for each connection
		keep   int
		losers string // "who connections", who loses the most first
	}{
		{"nobody, when it is not too many", "alice 5 5; bob 1", 11, ""},
		{"who has the most, with the most first", "alice 5 40 20; bob 30", 60, "alice 40"},
		{"until another one has the most", "alice 50 50; bob 60; carol 1", 120, "alice 50"},
		{"by turns", "alice 50 50; bob 60; carol 1", 70, "alice 50; bob 60"},
		{"all but who has few", "alice 50 50; bob 60; carol 1", 50, "alice 50 50; bob 60"},
		{"all, one by one, when many have one", "a 1; b 1; c 1", 0, "a 1; b 1; c 1"},
		{"more cannot go than there are", "a 1", -1, "a 1"},
	} {
		t.Run(x.name, func(t *testing.T) {
			var debtors []*debtor
			total := 0
			answers := map[*connection]int{}
			for who := range strings.SplitSeq(x.owed, "; ") {
				name, owed, _ := strings.Cut(who, " ")
				d := &debtor{name: name}
				for word := range strings.FieldsSeq(owed) {
					c := &connection{number: uint64(len(answers))}
					n, err := strconv.Atoi(word)
					must.OK(t, err)
					answers[c] = n
					d.answers += n
					total += n
					d.conns = append(d.conns, debt{c, n})
				}
				debtors = append(debtors, d)
			}
			var losers []string
			for _, d := range excess(debtors, total, x.keep) {
				line := d.name
				for _, c := range d.gone {
					line += fmt.Sprint(" ", answers[c])
				}
				losers = append(losers, line)
			}
			if got := strings.Join(losers, "; "); got != x.losers {
				t.Errorf("%q lose, want %q", got, x.losers)
			}
		})
	}
}

// TestWhenUntakenAnswersAreCounted: at once when there may be too many or when they grow, and
// seldom while something else explains the goroutines.
func TestWhenUntakenAnswersAreCounted(t *testing.T) {
	const bound = 100
	for _, x := range []struct {
		name        string
		unexplained []int // a second apart
		counts      []int // the seconds in which they are counted
	}{
		{"few", []int{0, 50, 100, 100}, nil},
		{"too many", []int{0, 101}, []int{1}},
		{"they grow by a quarter of the bound", []int{101, 126, 127, 150, 153}, []int{0, 2, 4}},
		{"others have gone", []int{300, 150, 50, 150}, []int{0, 3}},
		{"they stay", slices.Repeat([]int{200}, 32), []int{0, 15, 30}},
	} {
		t.Run(x.name, func(t *testing.T) {
			u := &untaken{bound: bound}
			start := time.Now()
			var counts []int
			for i, n := range x.unexplained {
				if u.due(n, start.Add(time.Duration(i)*time.Second)) {
					counts = append(counts, i)
				}
			}
			if !slices.Equal(counts, x.counts) {
				t.Errorf("counted in the seconds %v, want %v", counts, x.counts)
			}
		})
	}
}

// TestTally: a profile may come in pieces of any size; what is another listener's is not counted.
func TestTally(t *testing.T) {
	const profile = "goroutine profile: total 12\n" +
		"4 @ 0x1 0x2\n# labels: {\"" + untakenLabel + "\":\"[::]:1 12\"}\n#\t0x1\tmain.f+0x1\tf.go:1\n\n" +
		"2 @ 0x1 0x3\n# labels: {\"" + untakenLabel + "\":\"[::]:1 12\"}\n#\t0x1\tmain.f+0x1\tf.go:1\n\n" +
		"1 @ 0x1 0x2\n# labels: {\"" + untakenLabel + "\":\"[::]:1 7\"}\n#\t0x1\tmain.f+0x1\tf.go:1\n\n" +
		"3 @ 0x1 0x2\n# labels: {\"" + untakenLabel + "\":\"[::]:12 12\"}\n#\t0x1\tmain.f+0x1\tf.go:1\n\n" +
		"1 @ 0x1 0x2\n# labels: {\"other\":\"7\"}\n#\t0x1\tmain.f+0x1\tf.go:1\n\n" +
		"1 @ 0x5\n#\t0x1\tmain.f+0x1\tf.go:1\n\n"
	for size := 1; size <= len(profile); size++ {
		tally := tally{at: "[::]:1", answers: map[uint64]int{}}
		for piece := range slices.Chunk([]byte(profile), size) {
			if n, err := tally.Write(piece); n != len(piece) || err != nil {
				t.Fatal(n, err)
			}
		}
		if len(tally.answers) != 2 || tally.answers[12] != 6 || tally.answers[7] != 1 {
			t.Fatalf("in pieces of %d: %v", size, tally.answers)
		}
	}
}
