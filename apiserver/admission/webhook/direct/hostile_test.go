package direct_test

import (
	"context"
	"crypto/tls"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/quorate/quorate/apiserver/admission/answers"
	"github.com/quorate/quorate/apiserver/admission/webhook/direct"
	"github.com/quorate/quorate/internal/must"
	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"k8s.io/client-go/rest"
)

// frameHook is a webhook that speaks HTTP/2 and nothing else, and asks for frames of a size.
type frameHook struct {
	frameSize uint32
	frames    atomic.Int64 // of headers, that it was sent
	wg        sync.WaitGroup
	ended     context.Context // connections end with it
}

// enough frames are sent by a client that goes on for ever.
const enough = 10_000

func (h *frameHook) accept(l net.Listener) {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		h.wg.Go(func() {
			stop := context.AfterFunc(h.ended, func() { c.Close() })
			defer stop()
			defer c.Close()
			_ = h.serve(c) // the client or the test has ended it, or too many frames have come
		})
	}
}

// serve answers every request with an empty 200.
func (h *frameHook) serve(c net.Conn) error {
	_ = c.SetDeadline(time.Now().Add(20 * time.Second))
	if _, err := io.ReadFull(c, make([]byte, len(http2.ClientPreface))); err != nil {
		return err
	}
	f := http2.NewFramer(c, c)
	f.AllowIllegalReads = true // it only counts
	if err := f.WriteSettings(http2.Setting{ID: http2.SettingMaxFrameSize, Val: h.frameSize}); err != nil {
		return err
	}
	var block strings.Builder
	_ = hpack.NewEncoder(&block).WriteField(hpack.HeaderField{Name: ":status", Value: "200"})
	for {
		frame, err := f.ReadFrame()
		if err != nil {
			return err
		}
		ended := false
		switch frame := frame.(type) {
		case *http2.SettingsFrame:
			if !frame.IsAck() {
				err = f.WriteSettingsAck()
			}
		case *http2.HeadersFrame:
			h.frames.Add(1)
			ended = frame.HeadersEnded()
		case *http2.ContinuationFrame:
			if h.frames.Add(1) >= enough {
				return errors.New("it goes on for ever")
			}
			ended = frame.HeadersEnded()
		}
		if ended {
			err = f.WriteHeaders(http2.HeadersFrameParam{StreamID: frame.Header().StreamID, BlockFragment: []byte(block.String()), EndStream: true, EndHeaders: true})
		}
		if err != nil {
			return err
		}
	}
}

// TestFrameSizeOfWebhooks: a webhook that speaks only HTTP/2, which upstream's client does with a transport of golang.org/x/net,
// cannot ask for frames of no size, and have the node write such frames until it ends (CVE-2026-33814).
func TestFrameSizeOfWebhooks(t *testing.T) {
	for _, q := range []struct {
		size  uint32
		works bool
	}{
		{0, false}, {1, false}, {1<<14 - 1, false}, {1 << 14, true}, {1<<24 - 1, true}, {1 << 24, false},
	} {
		t.Run(fmt.Sprint(q.size), func(t *testing.T) {
			certs := httptest.NewUnstartedServer(nil) // for its certificate
			certs.StartTLS()
			defer certs.Close()
			l, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: certs.TLS.Certificates, NextProtos: []string{"h2"}})
			must.OK(t, err)
			ended, end := context.WithCancel(t.Context())
			h := &frameHook{frameSize: q.size, ended: ended}
			h.wg.Go(func() { h.accept(l) })
			defer h.wg.Wait()
			defer end()
			defer l.Close()
			base, err := rest.TransportFor(&rest.Config{Host: "https://" + l.Addr().String(), TLSClientConfig: rest.TLSClientConfig{
				CAData: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: certs.Certificate().Raw}),
			}})
			must.OK(t, err)
			client := http.Client{Transport: direct.Transport(base, new(answers.Limits))}
			review := func() error {
				ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
				defer cancel()
				r, err := http.NewRequestWithContext(ctx, http.MethodPost, "https://"+l.Addr().String()+"/", strings.NewReader("{}"))
				if err != nil {
					return err
				}
				w, err := client.Do(r)
				if err == nil {
					_ = w.Body.Close()
				}
				return err
			}
			// The first one may be sent before the settings have come. They come before its answer.
			if err = review(); err == nil {
				err = review()
			}
			if works := err == nil; works != q.works {
				t.Errorf("%v", err)
			}
			if n := h.frames.Load(); n > 10 {
				t.Errorf("%d frames of headers were sent", n)
			}
		})
	}
}

// TestHeads: the head of an answer is bounded, with its interim answers, whether it is read here or by upstream's client, in
// HTTP/1.1 and 2. It is not read on when it is longer.
func TestHeads(t *testing.T) {
	line := func(n int) string { return "X: " + strings.Repeat("a", n) + "\r\n" }
	usual := strings.TrimSuffix(text("{}"), "\r\n{}")
	for name, q := range map[string]struct {
		answer string
		works  bool
	}{
		"usual":   {text("{}"), true},
		"long":    {usual + line(answers.MaxHead/2) + "\r\n{}", true},
		"longer":  {usual + line(answers.MaxHead) + "\r\n{}", false},
		"no end":  {"HTTP/1.1 200 OK\r\nX: " + strings.Repeat("a", answers.MaxHead+1), false}, // and then nothing more comes
		"lines":   {usual + strings.Repeat(line(1000), answers.MaxHead/1000+1), false},
		"interim": {"HTTP/1.1 103 Early Hints\r\n" + line(answers.MaxHead) + "\r\n" + text("{}"), false},
	} {
		t.Run(name, func(t *testing.T) {
			answer := atomic.Pointer[string]{}
			good := text("{}")
			answer.Store(&good)
			s := newScript(t, func() []string { return []string{*answer.Load()} })
			s.ask(t)
			answer.Store(&q.answer)
			judge := func(by, got string) {
				t.Helper()
				if q.works != (got == "{}") || !q.works && !strings.Contains(got, "server response headers exceeded 65536 bytes") {
					t.Errorf("%s: %.200s", by, got)
				}
			}
			got, ok := s.send(t, s.client.Connect)
			if !ok {
				t.Fatal("it was not sent")
			}
			judge("direct", got)
			judge("upstream's", byUpstream(t, s.chain, s.url))
		})
	}
	h := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for i := range 20 {
			w.Header().Set(fmt.Sprint("X", i), strings.Repeat("a", answers.MaxHead/10))
		}
	}))
	h.EnableHTTP2 = true
	h.StartTLS()
	defer h.Close()
	c := &rest.Config{Host: h.URL, TLSClientConfig: rest.TLSClientConfig{
		CAData: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: h.Certificate().Raw}),
	}}
	answers.OwnTransport(c)
	base, err := rest.TransportFor(c)
	must.OK(t, err)
	if got := byUpstream(t, direct.Transport(base, new(answers.Limits)), h.URL); !strings.Contains(got, "PROTOCOL_ERROR") {
		t.Errorf("HTTP/2: %.200s", got)
	}
}

// byUpstream is the answer that upstream's client reads, or the error.
func byUpstream(t *testing.T, chain http.RoundTripper, url string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, url, strings.NewReader("{}"))
	must.OK(t, err)
	w, err := chain.RoundTrip(r)
	if err != nil {
		return err.Error()
	}
	defer w.Body.Close()
	raw, err := io.ReadAll(w.Body)
	if err != nil {
		return err.Error()
	}
	return string(raw)
}
