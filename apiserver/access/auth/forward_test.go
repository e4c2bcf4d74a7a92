package auth

import (
	"io"
	"net/http"
	"reflect"
	"strconv"
	"strings"
	"testing"

	"github.com/quorate/quorate/internal/must"
)

// TestForward: what is left of a client's headers.
func TestForward(t *testing.T) {
	for _, x := range []struct {
		name       string
		upgrade    bool
		sent, left http.Header
	}{
		{"who asks", false, http.Header{"Authorization": {"Bearer x"}, "Impersonate-User": {"a"}, "Impersonate-Foo": {"b"}, "impersonate-raw": {"c"}, "Accept": {"d"}}, http.Header{"Accept": {"d"}}},
		{"names in Connection", false, http.Header{"Connection": {"x-a, X-B", "close,keep-alive"}, "X-A": {"1"}, "X-B": {"2"}, "X-C": {"3"}}, http.Header{"X-C": {"3"}}},
		{"no upgrade", false, http.Header{"Connection": {"Upgrade"}, "Upgrade": {"h2c"}}, http.Header{}},
		{"an upgrade", true, http.Header{"Connection": {"keep-alive, UPGRADE, X-A", ",X-B ,"}, "Upgrade": {"websocket"}, "X-A": {"1"}, "X-B": {"2"}, "X-C": {"3"}},
			http.Header{"Connection": {"Upgrade"}, "Upgrade": {"websocket"}, "X-C": {"3"}}},
		{"itself", true, http.Header{"Connection": {"Connection, Upgrade"}, "Upgrade": {"a"}}, http.Header{"Connection": {"Upgrade"}, "Upgrade": {"a"}}},
	} {
		if Forward(x.sent, x.upgrade); !reflect.DeepEqual(x.sent, x.left) {
			t.Errorf("%s: left with %v, want %v", x.name, x.sent, x.left)
		}
	}
}

// TestBackward: what is left of another server's answer.
func TestBackward(t *testing.T) {
	for _, code := range []int{-1, 0, 99, 100, 101, 103, 199, 200, 204, 302, 404, 600, 999, 1000} {
		body := &closing{Reader: strings.NewReader("theirs")}
		res := Backward(&http.Response{StatusCode: code, Body: body, Header: http.Header{
			"Audit-Id": {"1"}, "X-Quorate-Node": {"2"}, "X-Kubernetes-Pf-Flowschema-Uid": {"3"}, "X-Kubernetes-Pf-Prioritylevel-Uid": {"4"}, "Content-Type": {"5"}, "X-Theirs": {"6"},
		}})
		text, err := io.ReadAll(res.Body)
		must.OK(t, err)
		if code >= 200 && code <= 999 {
			if want := (http.Header{"Content-Type": {"5"}, "X-Theirs": {"6"}}); res.StatusCode != code || body.closed || string(text) != "theirs" || !reflect.DeepEqual(res.Header, want) {
				t.Errorf("%d: %d %v %q, want headers %v", code, res.StatusCode, res.Header, text, want)
			}
		} else if res.StatusCode != http.StatusBadGateway || !body.closed || !strings.Contains(string(text), strconv.Itoa(code)) || res.ContentLength != int64(len(text)) || len(res.Header) != 1 {
			t.Errorf("%d: %d %v %q", code, res.StatusCode, res.Header, text)
		}
	}
}

type closing struct {
	io.Reader
	closed bool
}

// Close implements io.Closer.
func (c *closing) Close() error { c.closed = true; return nil }
