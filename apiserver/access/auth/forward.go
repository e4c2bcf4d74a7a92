package auth

import (
	"fmt"
	"io"
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

// Backward makes the answer of another server one that this server may give: it takes out the headers that only this
// server sets, and puts a 502 in the place of an answer whose status code ends no request. net/http panics at most of
// these codes.
func Backward(res *http.Response) *http.Response {
	if res.StatusCode < http.StatusOK || res.StatusCode > 999 {
		_ = res.Body.Close() // nobody reads it
		text := fmt.Sprintf("the server that this request was passed on to answered with the status code %d, which is not one of a final answer\n", res.StatusCode)
		return &http.Response{
			StatusCode: http.StatusBadGateway, Proto: res.Proto, ProtoMajor: res.ProtoMajor, ProtoMinor: res.ProtoMinor, Request: res.Request,
			Header: http.Header{"Content-Type": {"text/plain; charset=utf-8"}},
			Body:   io.NopCloser(strings.NewReader(text)), ContentLength: int64(len(text)),
		}
	}
	for name := range res.Header {
		if name == "Audit-Id" || strings.HasPrefix(name, "X-Quorate-") || strings.HasPrefix(name, "X-Kubernetes-Pf-") {
			delete(res.Header, name)
		}
	}
	return res
}
