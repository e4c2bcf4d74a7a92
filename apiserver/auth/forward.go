package auth

import (
	"net/http"
	"strings"
)

// Forward makes the headers of a client those of a request to another server, on whose behalf this server speaks: it
// takes out what proves or says who asks, and what is for this connection alone. What this server adds must be set
// behind it. upgrade says that the request changes the protocol of its connection.
//
// The names in Connection are taken out here and not by the proxy (RFC 9110 section 7.6.1): a proxy library does so with
// the headers that it finds, those of this server among them, so that a client could name X-Remote-Group.
func Forward(h http.Header, upgrade bool) {
	named := h["Connection"]
	h.Del("Connection")
	for _, line := range named {
		for name := range strings.SplitSeq(line, ",") {
			if name = strings.TrimSpace(name); name != "" && !(upgrade && strings.EqualFold(name, "Upgrade")) {
				h.Del(name)
			}
		}
	}
	if upgrade {
		h.Set("Connection", "Upgrade")
	}
	dropTokens(h)
	for name := range h {
		if strings.HasPrefix(strings.ToLower(name), "impersonate-") {
			delete(h, name)
		}
	}
}
