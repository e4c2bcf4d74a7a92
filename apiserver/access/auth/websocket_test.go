package auth

import (
	"context"
	"encoding/base64"
	"errors"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"
)

type oneToken string

func (t oneToken) AuthenticateToken(_ context.Context, token string) (*User, bool, error) {
	return &User{Name: "u"}, token == string(t), nil
}

// TestDropTokens: no token goes on to another server, no matter who has looked at it.
func TestDropTokens(t *testing.T) {
	token := socketTokenPrefix + base64.RawURLEncoding.EncodeToString([]byte("secret"))
	for _, row := range []struct {
		protocols []string
		left      []string
	}{
		{nil, nil},
		{[]string{"a, b", "c"}, []string{"a, b", "c"}},
		{[]string{token + ", v1.x"}, []string{"v1.x"}},
		{[]string{"a", token + "," + token + "==", "b"}, []string{"a,b"}},
		{[]string{token}, nil},
	} {
		h := http.Header{"Authorization": {"Bearer secret"}}
		if row.protocols != nil {
			h[socketProtocols] = row.protocols
		}
		dropTokens(h)
		if got := h[socketProtocols]; !slices.Equal(got, row.left) || h.Get("Authorization") != "" {
			t.Errorf("%q: left with %q", row.protocols, h)
		}
	}
}

func TestSocketToken(t *testing.T) {
	token := socketTokenPrefix + base64.RawURLEncoding.EncodeToString([]byte("secret"))
	wrong := socketTokenPrefix + base64.RawURLEncoding.EncodeToString([]byte("wrong"))
	a := &Authentication{Tokens: []TokenAuthenticator{oneToken("secret")}}
	for _, row := range []struct {
		name      string
		upgrade   string
		protocols []string
		user      string // "" is refused
		left      string
	}{
		{"token and another", "WebSocket", []string{token + ", v1.x"}, "u", "v1.x"},
		{"several headers", "websocket", []string{"a", token, "b"}, "u", "a,b"},
		{"no token", "websocket", []string{"a"}, "system:anonymous", "a"},
		{"no WebSocket", "", []string{token + ", a"}, "system:anonymous", token + ", a"},
		{"an empty token", "websocket", []string{socketTokenPrefix + ",a"}, "system:anonymous", socketTokenPrefix + ",a"},
		{"alone", "websocket", []string{token}, "", token},
		{"two", "websocket", []string{token + "," + token + ",a"}, "", ""},
		{"padded", "websocket", []string{token + "==, a"}, "", ""},
		{"not text", "websocket", []string{socketTokenPrefix + "_w, a"}, "", ""},
		{"wrong", "websocket", []string{wrong + ", a"}, "", ""},
	} {
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		r.Header["Upgrade"] = []string{row.upgrade}
		r.Header["Sec-Websocket-Protocol"] = row.protocols
		u, err := a.Authenticate(r)
		switch {
		case row.user == "":
			if !errors.Is(err, ErrUnauthorized) {
				t.Errorf("%s: %v, %v, want a refusal", row.name, u, err)
			}
		case err != nil || u.Name != row.user || r.Header.Get("Sec-Websocket-Protocol") != row.left:
			t.Errorf("%s: %v, %v, left with %q", row.name, u, err, r.Header.Get("Sec-Websocket-Protocol"))
		}
	}
}
