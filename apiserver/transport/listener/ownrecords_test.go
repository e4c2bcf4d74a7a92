package listener

import (
	"bytes"
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/sha256"
	"crypto/tls"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/quorate/quorate/internal/must"
	"golang.org/x/net/http2"
)

// rekeying is a TLS 1.3 client that asks for new keys again and again, and does not read: crypto/tls answers
// each within Read, where no deadline but that of writing ends it.
type rekeying struct {
	conn   *net.TCPConn
	secret []byte // from which its keys follow
	sealer cipher.AEAD
	iv     []byte
	number uint64 // of the next record with these keys
}

func dialRekeying(t *testing.T, s *httptest.Server, proto string) *rekeying {
	t.Helper()
	raw, err := net.Dial("tcp", s.Listener.Addr().String())
	must.OK(t, err)
	t.Cleanup(func() { raw.Close() })
	_ = raw.(*net.TCPConn).SetReadBuffer(4 << 10)
	var keys bytes.Buffer
	c := tls.Client(raw, &tls.Config{InsecureSkipVerify: true, MinVersion: tls.VersionTLS13, KeyLogWriter: &keys, NextProtos: []string{proto}})
	must.OK(t, c.Handshake())
	if suite := c.ConnectionState().CipherSuite; suite != tls.TLS_AES_128_GCM_SHA256 {
		t.Skipf("%s: this client knows AES only, which crypto/tls chooses where the processor has it", tls.CipherSuiteName(suite))
	}
	r := &rekeying{conn: raw.(*net.TCPConn)}
	for line := range strings.Lines(keys.String()) {
		if f := strings.Fields(line); f[0] == "CLIENT_TRAFFIC_SECRET_0" {
			r.secret, _ = hex.DecodeString(f[2])
		}
	}
	r.derive(t)
	return r
}

// derive makes the keys of the secret (RFC 8446, 7.3).
func (r *rekeying) derive(t *testing.T) {
	t.Helper()
	block, err := aes.NewCipher(r.expand(t, "key", 16))
	must.OK(t, err)
	if r.sealer, err = cipher.NewGCM(block); err != nil {
		t.Fatal(err)
	}
	r.iv, r.number = r.expand(t, "iv", r.sealer.NonceSize()), 0
}

func (r *rekeying) expand(t *testing.T, label string, size int) []byte {
	t.Helper()
	label = "tls13 " + label
	info := append([]byte{0, byte(size), byte(len(label))}, label...)
	out, err := hkdf.Expand(sha256.New, r.secret, string(append(info, 0)), size)
	must.OK(t, err)
	return out
}

// record appends one.
func (r *rekeying) record(b []byte, kind byte, data []byte) []byte {
	nonce := bytes.Clone(r.iv)
	binary.BigEndian.PutUint64(nonce[4:], binary.BigEndian.Uint64(nonce[4:])^r.number)
	r.number++
	plain := append(bytes.Clone(data), kind)
	head := binary.BigEndian.AppendUint16([]byte{23, 3, 3}, uint16(len(plain)+r.sealer.Overhead()))
	return r.sealer.Seal(append(b, head...), nonce, plain, head)
}

// update appends a KeyUpdate that asks for one of the server.
func (r *rekeying) update(t *testing.T, b []byte) []byte {
	t.Helper()
	b = r.record(b, 22, []byte{24, 0, 0, 1, 1})
	r.secret = r.expand(t, "traffic upd", len(r.secret))
	r.derive(t)
	return b
}

// fill opens a connection of such a client, and has the server wait for it. err is how that ends.
func (l *Listener) fill(t *testing.T, s *httptest.Server, proto string) (server *connection, err error) {
	t.Helper()
	c := dialRekeying(t, s, proto)
	all := l.all()
	server = all[0]
	for _, a := range all {
		if a.number > server.number {
			server = a
		}
	}
	tcp := server.Conn.(*net.TCPConn)
	_, _, _ = tcp.SetWriteBuffer(4<<10), tcp.SetReadBuffer(4<<10), c.conn.SetWriteBuffer(4<<10)
	return server, c.fill(t, proto)
}

// fill asks for new keys until the server reads no more: it waits for this client. What it sends between is the
// beginning of a request or of a frame.
func (r *rekeying) fill(t *testing.T, proto string) error {
	t.Helper()
	begin := "GET / HTTP/1.1\r\nX: "
	if proto == "h2" {
		begin = http2.ClientPreface + "\x00\x00\x00\x04\x00\x00\x00\x00\x00" + "\x00\x40\x00\xf0\x00\x00\x00\x00\x00"
	}
	b := r.record(nil, 23, []byte(begin))
	for round := range 10_000 {
		for range 16 { // more of them in a row would end the connection
			b = r.update(t, b)
		}
		b = r.record(b, 23, []byte("x"))
		_ = r.conn.SetWriteDeadline(time.Now().Add(time.Second))
		if _, err := r.conn.Write(b); err != nil {
			if round < 20 {
				t.Fatalf("the server does not take it: %v", err)
			}
			return err
		}
		b = b[:0]
	}
	t.Fatal("all is answered, and nobody reads it")
	return nil
}

// serveGuarded is serveConnections with all that a node's server has.
func serveGuarded(t *testing.T, h http.Handler) (*Listener, *httptest.Server) {
	t.Helper()
	s := httptest.NewUnstartedServer(h)
	l := New(s.Listener, 100)
	s.Listener, s.TLS = l, &tls.Config{}
	s.Config.TLSConfig = s.TLS
	l.Guard(s.Config, false)
	s.StartTLS()
	t.Cleanup(s.Close)
	return l, s
}

// TestUnreadKeyUpdates: a client that asks for new keys and does not read the answers keeps its connection for a
// bounded time.
func TestUnreadKeyUpdates(t *testing.T) {
	for _, proto := range []string{"http/1.1", "h2"} {
		t.Run(proto, func(t *testing.T) {
			l, s := serveGuarded(t, http.NotFoundHandler())
			l.ownTime = 200 * time.Millisecond
			server, _ := l.fill(t, s, proto)
			for began := time.Now(); len(l.all()) > 0 || server.writes.Load() > 0; runtime.Gosched() {
				//wall: patience for the connection to end
				if time.Since(began) > 10*time.Second {
					t.Fatal("the connection has no end")
				}
			}
			server.in.turns.mu.Lock()
			defer server.in.turns.mu.Unlock()
			if server.turn.held {
				t.Error("it has a turn")
			}
		})
	}
}

// TestAbandonUnreadKeyUpdates: such a client keeps no server from ending.
func TestAbandonUnreadKeyUpdates(t *testing.T) {
	for _, proto := range []string{"http/1.1", "h2"} {
		t.Run(proto, func(t *testing.T) {
			l, s := serveGuarded(t, http.NotFoundHandler())
			if _, err := l.fill(t, s, proto); !errors.Is(err, os.ErrDeadlineExceeded) {
				t.Fatalf("the server does not wait for its client: %v", err)
			}
			ended := make(chan struct{})
			go func() {
				_ = s.Config.Close()
				close(ended)
			}()
			l.Abandon()
			select {
			case <-ended:
			case <-time.After(10 * time.Second):
				t.Error("the server does not end")
			}
		})
	}
}
