package kubelet

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"k8s.io/apimachinery/pkg/util/proxy"
	"k8s.io/streaming/pkg/httpstream"
	"k8s.io/streaming/pkg/httpstream/spdy"
)

// command is an exec in a WebSocket, over connections that hold nothing: what a kubelet has sent and the client has
// not read is here.
type command struct {
	client net.Conn
	in     *bufio.Reader // of client
	read   atomic.Int64  // bytes of the kubelet's connection
	ended  chan struct{}
}

// runCommand runs a command with one stream of output (goroutines of two would wait for a mutex, and synctest for them) at a kubelet that sends what serve sends, once the client's streams are there.
func runCommand(t *testing.T, serve func(conn net.Conn, streams map[string]httpstream.Stream)) *command {
	t.Helper()
	client, ours := net.Pipe()
	theirs, toKubelet := net.Pipe()
	c := &command{client: client, in: bufio.NewReaderSize(client, 16), ended: make(chan struct{})}
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(func() {
		cancel()
		_, _ = client.Close(), theirs.Close()
		<-c.ended
		synctest.Wait()
	})
	go func() {
		in := bufio.NewReader(theirs)
		if _, err := http.ReadRequest(in); err != nil {
			return
		}
		_, _ = io.WriteString(theirs, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\nX-Stream-Protocol-Version: v4.channel.k8s.io\r\n\r\n")
		streams, all := map[string]httpstream.Stream{}, make(chan struct{})
		var mu sync.Mutex // of streams
		conn, err := spdy.NewServerConnection(theirs, func(s httpstream.Stream, replied <-chan struct{}) error {
			mu.Lock()
			defer mu.Unlock()
			if streams[s.Headers().Get("streamType")] = s; len(streams) == 2 {
				go func() { <-replied; close(all) }()
			}
			return nil
		})
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		select {
		case <-all:
			serve(theirs, streams)
		case <-conn.CloseChan():
		}
	}()
	dial := func(context.Context, string, string) (net.Conn, error) { return &countedReads{toKubelet, &c.read}, nil }
	l := Location{way: way{kept: &http.Transport{DialContext: dial}}, URL: &url.URL{Scheme: "http", Host: "kubelet"}}
	r := httptest.NewRequestWithContext(ctx, "GET", "/exec", nil)
	for name, value := range map[string]string{
		"Connection": "Upgrade", "Upgrade": "websocket", "Sec-WebSocket-Version": "13", "Sec-WebSocket-Key": "AAAAAAAAAAAAAAAAAAAAAA==", "Sec-WebSocket-Protocol": "v5.channel.k8s.io", "Origin": "http://x",
	} {
		r.Header.Set(name, value)
	}
	go func() {
		defer close(c.ended)
		var of Client
		of.Exec(l, Streams{Stdout: true}, proxy.NewErrorResponder(refusing{t})).ServeHTTP(&pipeWriter{httptest.NewRecorder(), ours}, r)
		_ = ours.Close()
	}()
	return c
}

type refusing struct{ t *testing.T }

// Error implements proxy.SimpleErrorResponder.
func (r refusing) Error(err error) { r.t.Error(err) }

type countedReads struct {
	net.Conn
	read *atomic.Int64
}

// Read implements io.Reader.
func (c *countedReads) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.read.Add(int64(n))
	return n, err
}

type pipeWriter struct {
	*httptest.ResponseRecorder
	conn net.Conn
}

// Hijack implements http.Hijacker.
func (w *pipeWriter) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	return w.conn, bufio.NewReadWriter(bufio.NewReader(w.conn), bufio.NewWriter(w.conn)), nil
}

// begin reads the answer to the upgrade, and the message that says that the command runs.
func (c *command) begin(t *testing.T) {
	t.Helper()
	if res, err := http.ReadResponse(c.in, nil); err != nil || res.StatusCode != http.StatusSwitchingProtocols {
		t.Fatal(res, err)
	}
	if stream, text := c.message(t); stream != 1 || len(text) != 0 {
		t.Fatalf("%d %q", stream, text)
	}
}

// message reads one.
func (c *command) message(t *testing.T) (stream byte, text []byte) {
	t.Helper()
	read := func(n int) []byte {
		b := make([]byte, n)
		if _, err := io.ReadFull(c.in, b); err != nil {
			t.Fatal(err)
		}
		return b
	}
	size := int(read(2)[1])
	if size == 126 {
		size = int(binary.BigEndian.Uint16(read(2)))
	}
	b := read(size)
	return b[0], b[1:]
}

// TestUnreadOutput: of a command whose client reads nothing little is here, whatever the frames of its kubelet are
// like, and the client that reads gets all of it.
func TestUnreadOutput(t *testing.T) {
	pattern := func(n int) []byte {
		b := make([]byte, n)
		for i := range b {
			b[i] = byte(i * 7 >> 3)
		}
		return b
	}
	for _, x := range []struct {
		name          string
		frame, frames int
	}{
		{"frames of a byte", 1, 3000},
		{"frames of 4 KiB", 4 << 10, 500},
		{"frames of 32 KiB", 32 << 10, 100},
		{"a frame of 16 MiB", 16<<20 - 1, 1},
	} {
		t.Run(x.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				body := pattern(x.frame * x.frames)
				c := runCommand(t, func(_ net.Conn, streams map[string]httpstream.Stream) {
					for rest := body; len(rest) > 0; rest = rest[x.frame:] {
						if _, err := streams["stdout"].Write(rest[:x.frame]); err != nil {
							t.Error(err)
							return
						}
					}
				})
				c.begin(t)
				synctest.Wait()
				if read := c.read.Load(); read > 2*maxUnsent {
					t.Errorf("%d bytes were read from the kubelet for a client that reads nothing", read)
				}
				var got []byte
				for len(got) < len(body) {
					_, text := c.message(t)
					got = append(got, text...)
				}
				if !bytes.Equal(got, body) {
					t.Errorf("the client got %d bytes of %d, or others", len(got), len(body))
				}
			})
		})
	}
}

// TestHostileFrames: a kubelet that sends what it has no reason to send loses its connection, and is told so to the
// client by the end of the command.
func TestHostileFrames(t *testing.T) {
	frame := func(first uint32, size int) []byte {
		b := binary.BigEndian.AppendUint32(nil, first)
		return append(binary.BigEndian.AppendUint32(b, uint32(size)), make([]byte, size)...)
	}
	for _, x := range []struct {
		name string
		sent []byte
		end  bool
	}{
		{"a stream of its own", frame(0x80030001, 10), true},
		{"headers", frame(0x80030008, 10), true},
		{"a long control frame", frame(0x80030004, maxControl+1), true},
		{"an answer for each of many streams", bytes.Repeat(frame(0x80030002, 10), maxReplies), true},
		{"an error stream without end", bytes.Repeat(frame(1, 32<<10), 3), true},
		{"an error stream", frame(1, 32<<10), false},
		{"a window that nobody looks at", frame(0x80030009, 8), false},
	} {
		t.Run(x.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				sent := make(chan struct{})
				c := runCommand(t, func(conn net.Conn, _ map[string]httpstream.Stream) {
					_, _ = conn.Write(x.sent)
					close(sent)
					<-t.Context().Done()
				})
				c.begin(t)
				go func() { _, _ = io.Copy(io.Discard, c.client) }()
				<-sent
				synctest.Wait()
				select {
				case <-c.ended:
					if !x.end {
						t.Error("the command has ended")
					}
				default:
					if x.end {
						t.Error("the command goes on")
					}
				}
			})
		})
	}
}
