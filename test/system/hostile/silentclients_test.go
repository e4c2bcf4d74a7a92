package hostile

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/quorate/quorate/internal/must"
	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// silentVariable makes the test binary a hostile client: see silence. One process has
// not enough descriptors for all sockets of the attack.
const silentVariable = "QUORATE_TEST_SILENT"

// silence says what a hostile process does until its standard input ends: it holds
// connections on which it sends little or nothing, without credentials, and opens one
// again when the node has ended it.
type silence struct {
	Address   string   // of the node
	From      []string // the addresses that it has
	Sockets   int
	PerSecond int // connections that it opens in a second
}

// silentCount is what such a process prints, every second, a line of JSON each.
type silentCount struct {
	Open    int64 // now
	Opened  int64 // so far
	Refused int64 // of those that were opened: not even accepted
}

// silent is how a connection begins that then says nothing more. What is sent depends
// on how far the connection has to come: TCP alone, TLS, HTTP/1.1 or HTTP/2.
type silent struct {
	name     string
	protocol string // "": no TLS
	send     func(io.Writer) error
}

var silents = []silent{
	{"TCP and nothing", "", nil},
	{"half a ClientHello", "", text("\x16\x03\x01\x00\xff\x01\x00")},
	{"TLS and nothing", "http/1.1", nil},
	{"half a header", "http/1.1", text("GET / HTTP/1.1\r\nX: ")},
	{"the body of a GET", "http/1.1", text("GET /livez HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\n")},
	{"half the body of a create", "http/1.1", text("POST /api/v1/namespaces HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 1000\r\n\r\n{")},
	{"a chunked body", "http/1.1", text("POST /apis/apps/v1/deployments HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n")},
	{"the body of a join", "http/1.1", text("POST /quorate/join HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{")},
	{"HTTP/2 and nothing", "h2", nil},
	{"SETTINGS alone", "h2", func(w io.Writer) error { return settings(w) }},
	{"a stream without its body", "h2", stream("/api/v1/namespaces")},
	{"a join without its body", "h2", stream("/quorate/join")},
}

// silentOf is the kind of a socket: every other one awaits a body's end, which keeps a
// server busy that has no deadline for it; the others take turns.
func silentOf(i int) silent {
	if i%2 == 0 {
		return silents[4+i/2%3]
	}
	return silents[i/2%len(silents)]
}

func text(s string) func(io.Writer) error {
	return func(w io.Writer) error {
		_, err := io.WriteString(w, s)
		return err
	}
}

func settings(w io.Writer) error {
	if _, err := io.WriteString(w, http2.ClientPreface); err != nil {
		return err
	}
	return http2.NewFramer(w, nil).WriteSettings()
}

func stream(path string) func(io.Writer) error {
	return func(w io.Writer) error {
		var block bytes.Buffer
		encoder := hpack.NewEncoder(&block)
		for _, f := range []hpack.HeaderField{
			{Name: ":method", Value: "POST"}, {Name: ":scheme", Value: "https"}, {Name: ":authority", Value: "x"}, {Name: ":path", Value: path},
		} {
			_ = encoder.WriteField(f) // into memory
		}
		if err := settings(w); err != nil {
			return err
		}
		return http2.NewFramer(w, nil).WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: block.Bytes(), EndHeaders: true})
	}
}

// beSilent is the hostile process.
func beSilent(what string) int {
	var s silence
	if err := json.Unmarshal([]byte(what), &s); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	ctx, stop := context.WithCancel(context.Background())
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		stop()
	}()
	var count silentCount
	turn := make(chan struct{})
	var wg sync.WaitGroup
	for i := range s.Sockets {
		wg.Go(func() {
			for {
				select {
				case <-ctx.Done():
					return
				case <-turn:
					s.hold(ctx, i, &count)
				}
			}
		})
	}
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	began, told := time.Now(), time.Now()
	for given := 0; ctx.Err() == nil; <-tick.C {
		due := int(time.Since(began).Seconds() * float64(s.PerSecond))
		for ; given < due; given++ {
			select {
			case turn <- struct{}{}:
				continue
			default: // all are open
			}
			given = due
		}
		//wall: how often it reports, not a bound
		if time.Since(told) >= time.Second {
			told = time.Now()
			line, _ := json.Marshal(silentCount{atomic.LoadInt64(&count.Open), atomic.LoadInt64(&count.Opened), atomic.LoadInt64(&count.Refused)})
			fmt.Println(string(line))
		}
	}
	wg.Wait()
	return 0
}

// hold opens a connection and waits until it ends.
func (s *silence) hold(ctx context.Context, i int, count *silentCount) {
	dialer := net.Dialer{Timeout: 10 * time.Second, LocalAddr: &net.TCPAddr{IP: net.ParseIP(s.From[i%len(s.From)])}}
	raw, err := dialer.DialContext(ctx, "tcp", s.Address)
	if err != nil {
		atomic.AddInt64(&count.Refused, 1)
		return
	}
	defer raw.Close()
	defer context.AfterFunc(ctx, func() { raw.Close() })()
	atomic.AddInt64(&count.Opened, 1)
	atomic.AddInt64(&count.Open, 1)
	defer atomic.AddInt64(&count.Open, -1)
	kind := silentOf(i / len(s.From))
	var out io.Writer = raw
	if kind.protocol != "" {
		// Attackers do not look at certificates, and take the cheapest key exchange.
		c := tls.Client(raw, &tls.Config{InsecureSkipVerify: true, NextProtos: []string{kind.protocol}, CurvePreferences: []tls.CurveID{tls.X25519}})
		if c.HandshakeContext(ctx) != nil {
			return
		}
		out = c
	}
	if kind.send != nil && kind.send(out) != nil {
		return
	}
	// Whatever the node says is not looked at, and not answered.
	_, _ = io.Copy(io.Discard, raw)
}

// silentCrowd are the hostile processes of one test.
type silentCrowd struct {
	counts []atomic.Pointer[silentCount]
}

// crowd starts hostile processes with at most 5,000 sockets each. They end with the test.
func crowd(t *testing.T, all silence) *silentCrowd {
	t.Helper()
	processes := (all.Sockets + 4999) / 5000
	c := &silentCrowd{counts: make([]atomic.Pointer[silentCount], processes)}
	self, err := os.Executable()
	must.OK(t, err)
	for i := range processes {
		one := all
		one.Sockets, one.PerSecond = all.Sockets/processes, all.PerSecond/processes
		what, err := json.Marshal(one)
		must.OK(t, err)
		cmd := exec.Command(self)
		cmd.Env = append(os.Environ(), silentVariable+"="+string(what))
		in, err := cmd.StdinPipe()
		must.OK(t, err)
		out, err := cmd.StdoutPipe()
		must.OK(t, err)
		must.OK(t, cmd.Start())
		done := make(chan struct{})
		go func() {
			defer close(done)
			for lines := json.NewDecoder(out); ; {
				var now silentCount
				if lines.Decode(&now) != nil {
					return
				}
				c.counts[i].Store(&now)
			}
		}()
		t.Cleanup(func() {
			in.Close()
			<-done
			_ = cmd.Wait() // what it says at its end is nothing
		})
	}
	return c
}

// now is what all of them have.
func (c *silentCrowd) now() (sum silentCount) {
	for i := range c.counts {
		if one := c.counts[i].Load(); one != nil {
			sum.Open, sum.Opened, sum.Refused = sum.Open+one.Open, sum.Opened+one.Opened, sum.Refused+one.Refused
		}
	}
	return sum
}
