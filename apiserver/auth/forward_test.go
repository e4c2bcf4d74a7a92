package auth

import (
	"net/http"
	"reflect"
	"testing"
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
