package auth

import (
	"encoding/base64"
	"errors"
	"net/http"
	"strings"
	"unicode/utf8"
)

// Browsers cannot send an Authorization header with a WebSocket. A subprotocol with
// this prefix carries the token instead, in base64url without padding.
const (
	socketProtocols   = "Sec-Websocket-Protocol"
	socketTokenPrefix = "base64url.bearer.authorization.k8s.io."
)

// socketToken returns the bearer token among the subprotocols of a WebSocket
// request, or "", and the other subprotocols. There must be another one: it is what
// the server can answer with.
func socketToken(r *http.Request) (token, rest string, err error) {
	if len(r.Header[socketProtocols]) == 0 || !strings.EqualFold(r.Header.Get("Upgrade"), "websocket") {
		return "", "", nil
	}
	var others []string
	seen := false
	for protocol := range strings.SplitSeq(strings.Join(r.Header[socketProtocols], ","), ",") {
		protocol = strings.TrimSpace(protocol)
		encoded, ok := strings.CutPrefix(protocol, socketTokenPrefix)
		if !ok {
			others = append(others, protocol)
			continue
		}
		if seen {
			return "", "", errors.New("more than one bearer token among the WebSocket protocols")
		}
		seen = true
		decoded, err := base64.RawURLEncoding.DecodeString(encoded)
		if err != nil || !utf8.Valid(decoded) {
			return "", "", errors.New("the bearer token among the WebSocket protocols is not base64url of a text")
		}
		token = string(decoded)
	}
	if token != "" && len(others) == 0 {
		return "", "", errors.New("a bearer token is the only WebSocket protocol: there must be another one to answer with")
	}
	return token, strings.Join(others, ","), nil
}

// dropTokens takes bearer tokens out of the headers of a request that goes on to another server: that of
// Authorization and those among the subprotocols, also those that nobody has looked at because the client
// has shown another credential.
func dropTokens(h http.Header) {
	h.Del("Authorization")
	all := h[socketProtocols]
	if !strings.Contains(strings.Join(all, ","), socketTokenPrefix) {
		return
	}
	var others []string
	for protocol := range strings.SplitSeq(strings.Join(all, ","), ",") {
		if protocol = strings.TrimSpace(protocol); !strings.HasPrefix(protocol, socketTokenPrefix) {
			others = append(others, protocol)
		}
	}
	if len(others) == 0 {
		h.Del(socketProtocols)
		return
	}
	h.Set(socketProtocols, strings.Join(others, ","))
}
