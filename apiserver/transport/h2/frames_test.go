package h2

import (
	"bytes"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// TestFramesAsNetHTTP: what breaks the protocol, or is unusual, is answered as net/http does.
func TestFramesAsNetHTTP(t *testing.T) {
	few := func(s *http.Server) { s.HTTP2 = &http.HTTP2Config{MaxConcurrentStreams: 4} }
	hold := make(chan struct{})
	defer close(hold)
	h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/hold" {
			select {
			case <-hold:
			case <-r.Context().Done():
			}
			return
		}
		ask(w, r)
	})
	servers := [2]*httptest.Server{serve(t, true, h, few), serve(t, false, h, few)}
	headers := func(c *raw, id uint32, end bool, b []byte) {
		_ = c.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: b, EndStream: end, EndHeaders: true})
	}
	for _, q := range []struct {
		name string
		send func(*raw)
	}{
		{"a request", func(c *raw) { c.get(1, "/small") }},
		{"an even stream", func(c *raw) { c.get(2, "/small") }},
		{"a stream that went down", func(c *raw) { headers(c, 5, true, block("GET", "/hold")); c.get(3, "/small") }},
		{"DATA on an idle stream", func(c *raw) { _ = c.WriteData(1, true, []byte("x")) }},
		{"DATA behind the end", func(c *raw) { headers(c, 1, true, block("GET", "/hold")); _ = c.WriteData(1, true, []byte("x")) }},
		{"HEADERS behind the end", func(c *raw) {
			headers(c, 1, true, block("GET", "/hold"))
			headers(c, 1, true, block("GET", "/hold"))
		}},
		{"trailers", func(c *raw) {
			headers(c, 1, false, block("POST", "/echo"))
			var b bytes.Buffer
			_ = hpack.NewEncoder(&b).WriteField(hpack.HeaderField{Name: "x", Value: "y"})
			_ = c.WriteData(1, false, []byte("abc"))
			headers(c, 1, true, b.Bytes())
		}},
		{"trailers that do not end", func(c *raw) {
			headers(c, 1, false, block("POST", "/echo"))
			var b bytes.Buffer
			_ = hpack.NewEncoder(&b).WriteField(hpack.HeaderField{Name: "x", Value: "y"})
			headers(c, 1, false, b.Bytes())
		}},
		{"RST_STREAM of an idle stream", func(c *raw) { _ = c.WriteRSTStream(7, http2.ErrCodeCancel) }},
		{"WINDOW_UPDATE of an idle stream", func(c *raw) { _ = c.WriteWindowUpdate(7, 1) }},
		{"a window too large, of a stream", func(c *raw) { headers(c, 1, true, block("GET", "/hold")); _ = c.WriteWindowUpdate(1, 1<<31-1) }},
		{"a window too large, of the connection", func(c *raw) { _ = c.WriteWindowUpdate(0, 1<<31-1) }},
		{"a window of nothing", func(c *raw) { _ = c.WriteRawFrame(http2.FrameWindowUpdate, 0, 0, []byte{0, 0, 0, 0}) }},
		{"acknowledgements of settings that were not sent", func(c *raw) { _ = c.WriteSettingsAck(); _ = c.WriteSettingsAck(); _ = c.WriteSettingsAck() }},
		{"settings twice in a frame", func(c *raw) {
			_ = c.WriteSettings(http2.Setting{ID: http2.SettingMaxFrameSize, Val: 1 << 15}, http2.Setting{ID: http2.SettingMaxFrameSize, Val: 1 << 15})
		}},
		{"a setting out of its range", func(c *raw) { _ = c.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1 << 31}) }},
		{"an unknown frame", func(c *raw) { _ = c.WriteRawFrame(0x55, 0, 0, []byte("?")); c.get(1, "/small") }},
		{"a promise", func(c *raw) {
			_ = c.WritePushPromise(http2.PushPromiseParam{StreamID: 1, PromiseID: 2, EndHeaders: true})
		}},
		{"a stream that depends on itself", func(c *raw) {
			_ = c.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: block("GET", "/hold"), EndStream: true, EndHeaders: true, Priority: http2.PriorityParam{StreamDep: 1}})
		}},
		{"CONTINUATION of nothing", func(c *raw) { _ = c.WriteContinuation(1, true, nil) }},
		{"a frame that is too long", func(c *raw) { _ = c.WriteRawFrame(http2.FrameData, 0, 1, make([]byte, 1<<20+1)) }},
		{"no path", func(c *raw) { headers(c, 1, true, block("GET", "")) }},
		{"a path that is none", func(c *raw) { headers(c, 1, true, block("GET", "small")) }},
		{"another scheme", func(c *raw) { headers(c, 1, true, block("GET", "/small", ":scheme", "ftp")) }},
		{"a name in capitals", func(c *raw) { headers(c, 1, true, block("GET", "/small", "Accept", "x")) }},
		{"a header of connections", func(c *raw) { headers(c, 1, true, block("GET", "/small", "connection", "close")) }},
		{"te", func(c *raw) { headers(c, 1, true, block("GET", "/small", "te", "gzip")) }},
		{"CONNECT", func(c *raw) { headers(c, 1, true, fields(":method", "CONNECT", ":authority", "host:1")) }},
		{"CONNECT to nowhere", func(c *raw) { headers(c, 1, true, fields(":method", "CONNECT")) }},
		{"a user in the authority", func(c *raw) {
			headers(c, 1, true, fields(":method", "GET", ":scheme", "https", ":path", "/about", ":authority", "me@host"))
		}},
		{"a user in the host", func(c *raw) {
			headers(c, 1, true, fields(":method", "GET", ":scheme", "https", ":path", "/about", "host", "me@host"))
		}},
		{"a host beside the authority", func(c *raw) { headers(c, 1, true, block("GET", "/about", "host", "other")) }},
		{"a host and no authority", func(c *raw) {
			headers(c, 1, true, fields(":method", "GET", ":scheme", "https", ":path", "/about", "host", "other"))
		}},
		{"two paths", func(c *raw) {
			headers(c, 1, true, fields(":method", "GET", ":scheme", "https", ":path", "/about", ":path", "/small"))
		}},
		{"a pseudo header behind others", func(c *raw) {
			headers(c, 1, true, fields(":method", "GET", ":scheme", "https", "a", "b", ":path", "/about"))
		}},
		{"an unknown pseudo header", func(c *raw) {
			headers(c, 1, true, fields(":method", "GET", ":scheme", "https", ":path", "/about", ":x", "y"))
		}},
		{"a status", func(c *raw) { headers(c, 1, true, fields(":status", "200")) }},
		{"a path with a host", func(c *raw) { headers(c, 1, true, block("GET", "http://other/about")) }},
		{"a path of all", func(c *raw) { headers(c, 1, true, block("OPTIONS", "*")) }},
		{"a path with spaces", func(c *raw) { headers(c, 1, true, block("GET", "/a b")) }},
		{"a path with a line's end", func(c *raw) { headers(c, 1, true, block("GET", "/a\r\nb")) }},
		{"a method with spaces", func(c *raw) { headers(c, 1, true, block("GET /x", "/about")) }},
		{"a value with a line's end", func(c *raw) { headers(c, 1, true, block("GET", "/about", "a", "b\r\nc: d")) }},
		{"a value with a zero", func(c *raw) { headers(c, 1, true, block("GET", "/about", "a", "b\x00")) }},
		{"a name with a colon", func(c *raw) { headers(c, 1, true, block("GET", "/about", "a:b", "c")) }},
		{"a name with a space", func(c *raw) { headers(c, 1, true, block("GET", "/about", "a ", "c")) }},
		{"no name", func(c *raw) { headers(c, 1, true, block("GET", "/about", "", "c")) }},
		{"transfer-encoding", func(c *raw) { headers(c, 1, true, block("GET", "/about", "transfer-encoding", "chunked")) }},
		{"two lengths", func(c *raw) {
			headers(c, 1, false, block("POST", "/echo", "content-length", "3", "content-length", "5"))
			_ = c.WriteData(1, true, []byte("abc"))
		}},
		{"a length that is none", func(c *raw) {
			headers(c, 1, false, block("POST", "/echo", "content-length", "+3"))
			_ = c.WriteData(1, true, []byte("abc"))
		}},
		{"a length that is negative", func(c *raw) {
			headers(c, 1, false, block("POST", "/echo", "content-length", "-1"))
			_ = c.WriteData(1, true, []byte("abc"))
		}},
		{"a length without a body", func(c *raw) { headers(c, 1, true, block("POST", "/echo", "content-length", "3")) }},
		{"expect among others", func(c *raw) {
			headers(c, 1, false, block("POST", "/echo", "expect", "a, 100-continue"))
			_ = c.WriteData(1, true, []byte("abc"))
		}},
		{"a pseudo header among trailers", func(c *raw) {
			headers(c, 1, false, block("POST", "/echo"))
			headers(c, 1, true, fields(":path", "/other"))
		}},
		{"CONNECT with a path", func(c *raw) { headers(c, 1, true, block("CONNECT", "/small")) }},
		{"a protocol", func(c *raw) { headers(c, 1, true, block("CONNECT", "/small", ":protocol", "websocket")) }},
		{"less than declared", func(c *raw) {
			headers(c, 1, false, block("POST", "/echo", "content-length", "5"))
			_ = c.WriteData(1, true, []byte("abc"))
		}},
		{"more than declared", func(c *raw) {
			headers(c, 1, false, block("POST", "/hold", "content-length", "2"))
			_ = c.WriteData(1, true, []byte("abc"))
		}},
		{"padding", func(c *raw) {
			headers(c, 1, false, block("POST", "/echo", "content-length", "3"))
			_ = c.WriteDataPadded(1, true, []byte("abc"), make([]byte, 100))
		}},
		{"too many streams", func(c *raw) {
			for id := uint32(1); id < 11; id += 2 {
				headers(c, id, true, block("GET", "/hold"))
			}
		}},
		{"headers that are too long", func(c *raw) {
			b := block("GET", "/small", "long", strings.Repeat("x", 1<<20+1<<16))
			_ = c.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: b[:maxReadFrame], EndStream: true})
			for b = b[maxReadFrame:]; len(b) > maxReadFrame; b = b[maxReadFrame:] {
				_ = c.WriteContinuation(1, false, b[:maxReadFrame])
			}
			_ = c.WriteContinuation(1, true, b)
		}},
		{"a body for nobody", func(c *raw) { headers(c, 1, false, block("POST", "/unread", "content-length", "9")) }},
		{"GOAWAY", func(c *raw) { _ = c.WriteGoAway(0, http2.ErrCodeNo, nil) }},
	} {
		t.Run(q.name, func(t *testing.T) {
			var got [2]string
			for i, s := range servers {
				c := dial(t, s, 1<<20)
				q.send(c)
				got[i] = c.outcome()
			}
			if got[0] != got[1] {
				t.Errorf("own %q, net/http %q", got[0], got[1])
			}
		})
	}
}
