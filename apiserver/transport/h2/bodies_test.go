package h2

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"testing"

	"github.com/quorate/quorate/internal/must"
	"golang.org/x/net/http2"
)

// TestWindows: no byte is sent that the client has not granted, and all are when it has.
func TestWindows(t *testing.T) {
	s := serve(t, true, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write(bytes.Repeat([]byte("x"), 100_000))
	}), nil)
	c := dial(t, s, 10)
	c.get(1, "/")
	granted, got := 10, 0
	for {
		f, err := c.next()
		must.OK(t, err)
		d, ok := f.(*http2.DataFrame)
		if !ok {
			continue
		}
		if got += len(d.Data()); got > granted {
			t.Fatalf("%d bytes, %d were granted", got, granted)
		}
		if d.StreamEnded() {
			break
		}
		if got < granted {
			continue
		}
		switch {
		case granted == 10: // less than nothing, and then more
			_ = c.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 5})
			_ = c.WriteWindowUpdate(1, 4)
			_ = c.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1000})
			granted = 1004 - 5 + 5
		case granted < 40_000:
			_ = c.WriteWindowUpdate(1, 50_000)
			granted += 50_000
		default:
			_ = c.WriteWindowUpdate(0, 200_000)
			_ = c.WriteWindowUpdate(1, 200_000)
			granted += 200_000
		}
	}
	if got != 100_000 {
		t.Errorf("%d bytes", got)
	}
}

// TestBodyIsBounded: what a handler does not read is not taken, and no other stream's bytes are in its way for good.
func TestBodyIsBounded(t *testing.T) {
	read := make(chan struct{})
	s := serve(t, true, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		<-read
		n, err := io.Copy(io.Discard, r.Body)
		_, _ = fmt.Fprint(w, n, err)
	}), nil)
	c := dial(t, s, 1<<20)
	_ = c.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: block("POST", "/"), EndHeaders: true})
	chunk := make([]byte, 16<<10)
	for range receiveWindow / len(chunk) {
		_ = c.WriteData(1, false, chunk)
	}
	close(read)
	sent, window := receiveWindow, 0
	for sent < 4<<20 { // more comes only when the window was given again
		f, err := c.ReadFrame()
		must.OK(t, err)
		if u, ok := f.(*http2.WindowUpdateFrame); ok && u.StreamID == 1 {
			for window += int(u.Increment); window >= len(chunk); window -= len(chunk) {
				sent += len(chunk)
				_ = c.WriteData(1, false, chunk)
			}
		}
	}
	_ = c.WriteData(1, true, nil)
	for {
		f, err := c.next()
		must.OK(t, err)
		if d, ok := f.(*http2.DataFrame); ok {
			if got, want := string(d.Data()), fmt.Sprint(sent, nil); got != want {
				t.Errorf("got %q, want %q", got, want)
			}
			return
		}
	}
}

// TestBodyBeyondTheWindow: who sends more than was granted is cut off.
func TestBodyBeyondTheWindow(t *testing.T) {
	s := serve(t, true, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }), nil)
	c := dial(t, s, 1<<20)
	_ = c.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: block("POST", "/"), EndHeaders: true})
	go func() {
		out := c.beside()
		for range receiveWindow>>14 + 1 {
			_ = out.WriteData(1, false, make([]byte, 16<<10))
		}
	}()
	f, err := c.next()
	if g, ok := f.(*http2.GoAwayFrame); !ok || g.ErrCode != http2.ErrCodeFlowControl {
		t.Errorf("%v, %v", f, err)
	}
}

// TestFramesFillRecords: a DATA frame and its header are one TLS record.
func TestFramesFillRecords(t *testing.T) {
	const size, record = 1 << 18, 16 << 10
	s := serve(t, true, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(make([]byte, size)) }), nil)
	c := dial(t, s, size)
	_ = c.WriteWindowUpdate(0, size)
	c.get(1, "/")
	full := 0
	for got := 0; got < size; {
		f, err := c.next()
		must.OK(t, err)
		d, ok := f.(*http2.DataFrame)
		if !ok {
			continue
		}
		n := len(d.Data())
		if got += n; n+frameHeader > record {
			t.Fatalf("a frame of %d bytes", n)
		}
		if n+frameHeader == record {
			full++
		}
	}
	if full < size/record-2 {
		t.Errorf("%d full records of %d bytes", full, size)
	}
}
