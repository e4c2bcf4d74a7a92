package hostile

import (
	"bufio"
	"bytes"
	"context"
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

	"github.com/quorate/quorate/test/harness/cluster"
)

const listPath = "/api/v1/namespaces/default/configmaps?resourceVersion=0"

// rawConn is a connection on which anything can be sent.
type rawConn struct {
	*http2.Framer
	out  *bufio.Writer
	tls  *tls.Conn
	raw  net.Conn
	host string
}

// connect opens a connection of the administrator; receive is the size of its
// buffer, 0 the system's.
func (h *hostility) connect(n *cluster.Node, protocol string, receive int) (*rawConn, error) {
	config, err := n.TLS()
	if err != nil {
		return nil, err
	}
	config = withHost(config)
	config.NextProtos = []string{protocol}
	address := strings.TrimPrefix(n.API, "https://")
	dialer := net.Dialer{Timeout: 5 * time.Second}
	raw, err := dialer.Dial("tcp", address)
	if err != nil {
		return nil, err
	}
	if receive > 0 {
		_ = raw.(*net.TCPConn).SetReadBuffer(receive)
	}
	_ = raw.SetDeadline(time.Now().Add(h.lasts + 20*time.Second))
	c := &rawConn{tls: tls.Client(raw, config), raw: raw, host: address}
	if err := c.tls.Handshake(); err != nil {
		raw.Close()
		return nil, err
	}
	c.out = bufio.NewWriterSize(c.tls, 32<<10)
	c.Framer = http2.NewFramer(c.out, c.tls)
	c.AllowIllegalWrites = true
	return c, nil
}

// begin opens an HTTP/2 connection; streams have a window of that many bytes.
func (h *hostility) begin(n *cluster.Node, window uint32) (*rawConn, error) {
	c, err := h.connect(n, "h2", 0)
	if err != nil {
		return nil, err
	}
	_, _ = c.out.WriteString(http2.ClientPreface)
	_ = c.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: window})
	_ = c.WriteSettingsAck()
	if err := c.out.Flush(); err != nil {
		c.tls.Close()
		return nil, err
	}
	return c, nil
}

// request is a header block of the hostile user.
func (c *rawConn) request(method, path string) []byte {
	var block bytes.Buffer
	encoder := hpack.NewEncoder(&block)
	encoder.SetMaxDynamicTableSizeLimit(0)
	for _, f := range []hpack.HeaderField{
		{Name: ":method", Value: method}, {Name: ":scheme", Value: "https"}, {Name: ":authority", Value: c.host},
		{Name: ":path", Value: path}, {Name: "impersonate-user", Value: "mallory"}, {Name: "content-type", Value: "application/json"},
	} {
		_ = encoder.WriteField(f) // into memory
	}
	return block.Bytes()
}

// overAndOver opens connections, a few at once, and again when the node ends them.
// flood writes until it cannot any more or ctx has ended.
func (h *hostility) overAndOver(ctx context.Context, n *cluster.Node, at int, read bool, flood func(*rawConn, *atomic.Int64) error) int64 {
	var done atomic.Int64
	var wg sync.WaitGroup
	for range at {
		wg.Go(func() {
			for ctx.Err() == nil {
				c, err := h.begin(n, 1<<20)
				if err != nil {
					continue
				}
				stop := context.AfterFunc(ctx, func() { c.raw.Close() })
				var drained <-chan struct{}
				if read {
					drained = discard(c.tls)
				}
				_ = flood(c, &done) // the node has ended it
				stop()
				c.raw.Close()
				if drained != nil {
					<-drained
				}
			}
		})
	}
	wg.Wait()
	return done.Load()
}

// breathe sends what was written, fifty times a second or so: the test and three
// nodes share a machine, and who floods as fast as it can starves itself first. done is
// how much was done so far.
func (c *rawConn) breathe(done int64) error {
	if done%20 != 0 {
		return nil
	}
	err := c.out.Flush()
	//sleep: the client sends slowly, by design
	time.Sleep(20 * time.Millisecond)
	return err
}

func rapidReset(_ *testing.T, h *hostility, ctx context.Context, n *cluster.Node) int64 {
	return h.overAndOver(ctx, n, 4, true, func(c *rawConn, done *atomic.Int64) error {
		block := c.request("GET", listPath)
		for stream := uint32(1); ctx.Err() == nil; stream += 2 {
			_ = c.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, BlockFragment: block, EndStream: true, EndHeaders: true})
			_ = c.WriteRSTStream(stream, http2.ErrCodeCancel)
			if err := c.breathe(done.Add(1)); err != nil {
				return err
			}
		}
		return nil
	})
}

func continuationFlood(_ *testing.T, h *hostility, ctx context.Context, n *cluster.Node) int64 {
	// A literal that is never indexed: name "x", a value of 8,000 bytes.
	field := append([]byte{0x10, 1, 'x', 0x7f, 0xc1, 0x3d}, bytes.Repeat([]byte{'a'}, 8000)...)
	return h.overAndOver(ctx, n, 4, true, func(c *rawConn, done *atomic.Int64) error {
		if err := c.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: c.request("GET", listPath)}); err != nil {
			return err
		}
		for ctx.Err() == nil {
			if err := c.WriteContinuation(1, false, field); err != nil {
				return err
			}
			done.Add(1)
		}
		return nil
	})
}

func headerBomb(_ *testing.T, h *hostility, ctx context.Context, n *cluster.Node) int64 {
	// One field of 4,000 bytes into the dynamic table, then 16,000 times its index.
	bomb := append([]byte{0x40, 1, 'x', 0x7f, 0xa1, 0x1e}, bytes.Repeat([]byte{'a'}, 4000)...)
	bomb = append(bomb, bytes.Repeat([]byte{0xbe}, 12_000)...)
	return h.overAndOver(ctx, n, 4, true, func(c *rawConn, done *atomic.Int64) error {
		for stream := uint32(1); ctx.Err() == nil; stream += 2 {
			_ = c.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, BlockFragment: c.request("GET", listPath), EndStream: true})
			_ = c.WriteContinuation(stream, true, bomb)
			if err := c.out.Flush(); err != nil {
				return err
			}
			done.Add(1)
		}
		return nil
	})
}

func controlFlood(_ *testing.T, h *hostility, ctx context.Context, n *cluster.Node) int64 {
	return h.overAndOver(ctx, n, 4, false, func(c *rawConn, done *atomic.Int64) error {
		for ctx.Err() == nil {
			_ = c.WritePing(false, [8]byte{1})
			_ = c.WriteSettings(http2.Setting{ID: http2.SettingMaxFrameSize, Val: 1 << 14})
			if err := c.breathe(done.Add(1)); err != nil {
				return err
			}
		}
		return nil
	})
}

func windowZero(t *testing.T, h *hostility, ctx context.Context, n *cluster.Node) int64 {
	return h.openLists(t, ctx, n, 0)
}

// openLists opens 200 lists whose windows grow by a few bytes a second.
func (h *hostility) openLists(t *testing.T, ctx context.Context, n *cluster.Node, bytes uint32) int64 {
	c, err := h.begin(n, 0)
	if err != nil {
		t.Errorf("%s: %v", n.Name, err)
		return 0
	}
	const streams = 200
	for i := range uint32(streams) {
		_ = c.WriteHeaders(http2.HeadersFrameParam{StreamID: 2*i + 1, BlockFragment: c.request("GET", listPath), EndStream: true, EndHeaders: true})
	}
	drained := discard(c.tls)
	err = c.out.Flush()
	everySecond(ctx, func() {
		for i := range uint32(streams) {
			if bytes > 0 {
				_ = c.WriteWindowUpdate(2*i+1, bytes)
			}
		}
		_ = c.out.Flush()
	})
	c.raw.Close()
	<-drained
	if err != nil {
		t.Errorf("%s: %v", n.Name, err)
	}
	return streams
}

func slowReaders2(t *testing.T, h *hostility, ctx context.Context, n *cluster.Node) int64 {
	return h.openLists(t, ctx, n, 1)
}

func slowBodies2(t *testing.T, h *hostility, ctx context.Context, n *cluster.Node) int64 {
	c, err := h.begin(n, 1<<20)
	if err != nil {
		t.Errorf("%s: %v", n.Name, err)
		return 0
	}
	drained := discard(c.tls)
	const streams = 200
	for i := range uint32(streams) {
		_ = c.WriteHeaders(http2.HeadersFrameParam{StreamID: 2*i + 1, BlockFragment: c.request("POST", "/api/v1/namespaces/default/configmaps"), EndHeaders: true})
	}
	everySecond(ctx, func() {
		for i := range uint32(streams) {
			_ = c.WriteData(2*i+1, false, []byte("{"))
		}
		_ = c.out.Flush()
	})
	c.raw.Close()
	<-drained
	return streams
}

// everySecond calls f at once and every second until ctx ends.
func everySecond(ctx context.Context, f func()) {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		f()
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

func vanishingWatches(t *testing.T, h *hostility, ctx context.Context, n *cluster.Node) (opened int64) {
	for ctx.Err() == nil && !t.Failed() {
		m := cluster.WatchMany(t, n, 1000, func(i int) string {
			return fmt.Sprintf("/api/v1/namespaces/default/configmaps?watch=1&resourceVersion=0&fieldSelector=metadata.name%%3Dc-%05d", i)
		})
		opened += m.Opened.Load()
		m.Close()
	}
	return opened
}
