package hostile

import (
	"context"
	"io"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/quorate/quorate/test/harness/cluster"
)

// dribblers are how many slow clients of HTTP/1.1 there are at each node.
const dribblers = 40

func endlessHeader(_ *testing.T, h *hostility, ctx context.Context, n *cluster.Node) int64 {
	var done atomic.Int64
	var wg sync.WaitGroup
	for i := range 4 {
		line := strings.Repeat("x", 4000)
		if i%2 == 0 {
			line = "X-Y: z\r\n"
		}
		wg.Go(func() {
			for ctx.Err() == nil {
				c, err := h.connect(n, "http/1.1", 0)
				if err != nil {
					continue
				}
				stop := context.AfterFunc(ctx, func() { c.raw.Close() })
				_, err = io.WriteString(c.out, "GET / HTTP/1.1\r\nHost: x\r\nX: ")
				for err == nil {
					_, err = io.WriteString(c.out, line)
				}
				stop()
				c.raw.Close()
				done.Add(1)
			}
		})
	}
	wg.Wait()
	return done.Load()
}

// dribble opens connections that send head and then what f does each second. Those that
// the node ends are opened again.
func (h *hostility) dribble(ctx context.Context, n *cluster.Node, receive int, head string, f func(*rawConn) error) int64 {
	var done atomic.Int64
	var wg sync.WaitGroup
	for i := range dribblers {
		wg.Go(func() {
			//sleep: clients come one after the other, by design
			time.Sleep(time.Duration(i) * time.Second / dribblers) // handshakes are work, for both
			for ctx.Err() == nil {
				c, err := h.connect(n, "http/1.1", receive)
				if err != nil {
					return
				}
				if _, err = io.WriteString(c.tls, head); err == nil {
					done.Add(1)
				}
				for err == nil && ctx.Err() == nil {
					err = f(c)
					select {
					case <-ctx.Done():
					case <-time.After(time.Second):
					}
				}
				c.raw.Close()
			}
		})
	}
	wg.Wait()
	return done.Load()
}

func slowReaders1(_ *testing.T, h *hostility, ctx context.Context, n *cluster.Node) int64 {
	head := "GET " + listPath + " HTTP/1.1\r\nHost: x\r\nImpersonate-User: mallory\r\n\r\n"
	return h.dribble(ctx, n, 4096, head, func(c *rawConn) error {
		_, err := c.raw.Read(make([]byte, 1))
		return err
	})
}

func slowBodies1(_ *testing.T, h *hostility, ctx context.Context, n *cluster.Node) int64 {
	head := "POST /api/v1/namespaces/default/configmaps HTTP/1.1\r\nHost: x\r\nImpersonate-User: mallory\r\nContent-Type: application/json\r\nContent-Length: 3000000\r\n\r\n"
	return h.dribble(ctx, n, 0, head, func(c *rawConn) error {
		_, err := io.WriteString(c.tls, "{")
		return err
	})
}

func slowHeaders(_ *testing.T, h *hostility, ctx context.Context, n *cluster.Node) int64 {
	return h.dribble(ctx, n, 0, "GET / HTTP/1.1\r\nX: ", func(c *rawConn) error {
		_, err := io.WriteString(c.tls, "x")
		return err
	})
}

func halfHandshakes(t *testing.T, h *hostility, ctx context.Context, n *cluster.Node) int64 {
	return h.hold(t, ctx, func() (net.Conn, error) {
		conn, err := net.DialTimeout("tcp", strings.TrimPrefix(n.API, "https://"), 5*time.Second)
		if err == nil {
			_, err = io.WriteString(conn, "\x16\x03\x01\x00\xff\x01\x00")
		}
		return conn, err
	})
}

func idleConnections(t *testing.T, h *hostility, ctx context.Context, n *cluster.Node) int64 {
	var i atomic.Int64
	return h.hold(t, ctx, func() (net.Conn, error) {
		if i.Add(1)%2 == 0 {
			c, err := h.connect(n, "http/1.1", 0)
			if err != nil {
				return nil, err
			}
			return c.raw, nil
		}
		c, err := h.begin(n, 1<<16)
		if err != nil {
			return nil, err
		}
		return c.raw, nil
	})
}

// hold opens connections until there are enough or ctx ends, and then holds them.
func (h *hostility) hold(t *testing.T, ctx context.Context, open func() (net.Conn, error)) int64 {
	var mu sync.Mutex
	var held []net.Conn
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for range h.conns / 4 {
				conn, err := open()
				if ctx.Err() != nil {
					if err == nil {
						conn.Close()
					}
					return
				}
				if err != nil {
					t.Errorf("open a connection: %v", err)
					return
				}
				mu.Lock()
				held = append(held, conn)
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	<-ctx.Done()
	for _, conn := range held {
		conn.Close()
	}
	return int64(len(held))
}
