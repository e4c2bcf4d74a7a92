package cluster

import (
	"bytes"
	"crypto/tls"
	"fmt"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// ManyWatches are watches on a few HTTP/2 connections, as cheap for the client as
// can be: one goroutine per connection that counts lines.
type ManyWatches struct {
	conns []*watchConn

	Opened atomic.Int64 // streams with an answer 200
	Ended  atomic.Int64 // streams that the server has ended
	Events atomic.Int64
	wg     sync.WaitGroup
}

type watchConn struct {
	all    *ManyWatches
	tcp    *net.TCPConn
	tls    *tls.Conn
	framer *http2.Framer
	writes sync.Mutex            // of frames
	err    atomic.Pointer[error] // why reading has ended
}

// WatchesPerConn is below the server's limit of streams.
const WatchesPerConn = 200

// WatchMany opens n watches on a node; path gives the i-th one's.
func WatchMany(t testing.TB, node *Node, n int, path func(i int) string) *ManyWatches {
	t.Helper()
	config, err := node.TLS()
	if err != nil {
		t.Fatal(err)
	}
	config = config.Clone()
	config.NextProtos, config.ServerName = []string{"h2"}, "127.0.0.1"
	m := &ManyWatches{}
	t.Cleanup(m.Close)
	address := strings.TrimPrefix(node.API, "https://")
	for first := 0; first < n; first += WatchesPerConn {
		c, err := m.dial(address, config)
		if err != nil {
			t.Fatalf("%s: %v", node.Name, err)
		}
		for i := first; i < min(first+WatchesPerConn, n); i++ {
			if err := c.open(uint32(i-first)*2+1, address, path(i)); err != nil {
				t.Fatalf("%s: watch %d: %v", node.Name, i, err)
			}
		}
		Await(t, time.Minute, "the watches are open", func() string {
			if got := m.Opened.Load(); got < int64(min(first+WatchesPerConn, n)) {
				if err := c.err.Load(); err != nil {
					t.Fatalf("%s: %d of %d watches are open: %v", node.Name, got, n, *err)
				}
				return fmt.Sprintf("%d of %d", got, n)
			}
			return ""
		})
	}
	return m
}

func (m *ManyWatches) dial(address string, config *tls.Config) (*watchConn, error) {
	raw, err := net.DialTimeout("tcp", address, 10*time.Second)
	if err != nil {
		return nil, err
	}
	c := &watchConn{all: m, tcp: raw.(*net.TCPConn), tls: tls.Client(raw, config)}
	m.conns = append(m.conns, c)
	if _, err := c.tls.Write([]byte(http2.ClientPreface)); err != nil {
		return nil, err
	}
	c.framer = http2.NewFramer(c.tls, c.tls)
	c.framer.SetReuseFrames()
	c.framer.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	// The windows are refilled by what was read.
	if err := c.framer.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1 << 20}); err != nil {
		return nil, err
	}
	if err := c.framer.WriteWindowUpdate(0, 1<<24); err != nil {
		return nil, err
	}
	m.wg.Go(c.read)
	return c, nil
}

func (c *watchConn) open(stream uint32, host, path string) error {
	var block bytes.Buffer
	encoder := hpack.NewEncoder(&block)
	encoder.SetMaxDynamicTableSizeLimit(0)
	for _, f := range []hpack.HeaderField{
		{Name: ":method", Value: "GET"}, {Name: ":scheme", Value: "https"}, {Name: ":authority", Value: host},
		{Name: ":path", Value: path}, {Name: "user-agent", Value: "watches"},
	} {
		if err := encoder.WriteField(f); err != nil {
			return err
		}
	}
	c.writes.Lock()
	defer c.writes.Unlock()
	return c.framer.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, BlockFragment: block.Bytes(), EndStream: true, EndHeaders: true})
}

func (c *watchConn) read() {
	for {
		frame, err := c.framer.ReadFrame()
		if err == nil {
			err = c.handle(frame)
		}
		if err != nil {
			c.err.Store(&err)
			return
		}
	}
}

func (c *watchConn) handle(frame http2.Frame) error {
	c.writes.Lock()
	defer c.writes.Unlock()
	switch f := frame.(type) {
	case *http2.SettingsFrame:
		if !f.IsAck() {
			return c.framer.WriteSettingsAck()
		}
	case *http2.PingFrame:
		if !f.IsAck() {
			return c.framer.WritePing(true, f.Data)
		}
	case *http2.MetaHeadersFrame:
		if status := f.PseudoValue("status"); status != "200" {
			return fmt.Errorf("stream %d: status %s", f.StreamID, status)
		}
		c.all.Opened.Add(1)
	case *http2.RSTStreamFrame:
		c.all.Ended.Add(1)
	case *http2.DataFrame:
		c.all.Events.Add(int64(bytes.Count(f.Data(), []byte{'\n'})))
		if f.StreamEnded() {
			c.all.Ended.Add(1)
		}
		if n := uint32(f.Header().Length); n > 0 {
			if err := c.framer.WriteWindowUpdate(0, n); err != nil {
				return err
			}
			return c.framer.WriteWindowUpdate(f.StreamID, n)
		}
	}
	return nil
}

// reset cuts connections in the way of a process that was killed with data unread.
func (c *watchConn) reset() {
	_ = c.tcp.SetLinger(0)
	_ = c.tcp.Close()
}

// Close cuts all connections and returns when nothing reads them any more.
func (m *ManyWatches) Close() {
	for _, c := range m.conns {
		c.reset()
	}
	m.wg.Wait()
}
