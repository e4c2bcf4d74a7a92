package apiserver_test

import (
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/quorate/quorate/apiserver"
	"github.com/quorate/quorate/apiserver/request"
	"golang.org/x/net/websocket"
)

// watchBytes is an Observer that counts what watches send.
type watchBytes struct{ events, bytes atomic.Int64 }

func (o *watchBytes) WatchEvents(_ *request.Kind, events int, bytes int64) {
	o.events.Add(int64(events))
	o.bytes.Add(bytes)
}

func (*watchBytes) RequestStarted(*request.Kind)                      {}
func (*watchBytes) RequestDone(*request.Kind, request.End)            {}
func (*watchBytes) RequestRefused(mutating bool, reason string)       {}
func (*watchBytes) InFlight(mutating bool, requests int, bytes int64) {}
func (*watchBytes) WriteRetried(*request.Kind)                        {}
func (*watchBytes) Deprecated(*request.Kind, string)                  {}
func (*watchBytes) Panicked(*request.Kind)                            {}
func (*watchBytes) Converted(*request.Conversion)                     {}

// TestWatchBytes: the observer is told of all bytes of a watch: those that filled a
// buffer before the flush, and those that a WebSocket took at once.
func TestWatchBytes(t *testing.T) {
	const size = 256 << 10
	for _, over := range []string{"http", "WebSocket"} {
		t.Run(over, func(t *testing.T) {
			o := &watchBytes{}
			e := newEnv(t, func(c *apiserver.Config) { c.Observer = o })
			if w, answer := e.do(http.MethodPost, maps, nil, `{"metadata":{"name":"a"},"data":{"k":"`+strings.Repeat("x", size)+`"}}`); w.StatusCode != 201 {
				t.Fatal(clip(answer))
			}
			if over == "http" {
				e.next(e.watch(maps + "?watch=1"))
			} else {
				e.message(e.mustSocket(maps+"?watch=1"), websocket.TextFrame)
			}
			for deadline := time.Now().Add(patience); o.events.Load() == 0; time.Sleep(time.Millisecond) {
				if time.Now().After(deadline) {
					t.Fatal("the observer was told of no event")
				}
			}
			if events, bytes := o.events.Load(), o.bytes.Load(); events != 1 || bytes < size || bytes > size+4<<10 {
				t.Errorf("%d events of %d bytes, want one of a little more than %d", events, bytes, size)
			}
		})
	}
}
