package h2

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"golang.org/x/net/http/httpguts"
	"golang.org/x/net/http2"
)

// maxFields is how many header fields a request may have. Each takes some 130 bytes, however short it is. Clients send a
// dozen, and who impersonates one for each group of a user.
const maxFields = 1024

// readRequest makes the request of a stream's first headers. Errors are http2's.
func (st *stream) readRequest(f *http2.MetaHeadersFrame) error {
	malformed := http2.StreamError{StreamID: st.id, Code: http2.ErrCodeProtocol}
	var method, scheme, authority, path string
	for _, p := range f.PseudoFields() {
		switch p.Name {
		case ":method":
			method = p.Value
		case ":scheme":
			scheme = p.Value
		case ":authority":
			authority = p.Value
		case ":path":
			path = p.Value
		default:
			return malformed // :protocol was not offered
		}
	}
	fields := f.RegularFields()
	tooMany := len(fields) > maxFields
	if tooMany {
		fields = nil
	}
	header, values := make(http.Header, len(fields)), make([]string, len(fields))
	cookies := []string(nil)
	for i, field := range fields {
		name := canonical(field.Name)
		if name == "Cookie" {
			cookies = append(cookies, field.Value)
			continue
		}
		if have, ok := header[name]; ok {
			header[name] = append(have, field.Value)
			continue
		}
		values[i] = field.Value
		header[name] = values[i : i+1 : i+1]
	}
	if len(cookies) > 0 {
		header["Cookie"] = []string{strings.Join(cookies, "; ")}
	}
	if authority == "" {
		authority = header.Get("Host")
	}
	delete(header, "Trailer")
	target, err := targetOf(method, scheme, authority, path)
	if err != nil {
		return malformed
	}
	r := &http.Request{
		Method: method, URL: target, RemoteAddr: st.c.remote, Header: header, RequestURI: path,
		Proto: "HTTP/2.0", ProtoMajor: 2, Host: authority, Body: http.NoBody,
	}
	if method == http.MethodConnect {
		r.RequestURI = authority
	}
	if scheme == "https" {
		r.TLS = st.c.state
	}
	if httpguts.HeaderValuesContainsToken(header["Expect"], "100-continue") {
		delete(header, "Expect")
		st.continues = true
	}
	if !st.remoteDone {
		if err := st.expectBody(r); err != nil {
			return err
		}
	}
	st.handler = st.c.handler
	// These answers are none of the server's Handler, which may bound how many wait for their clients.
	if f.Truncated || tooMany {
		st.handler, st.refused = http.HandlerFunc(headersTooLong), true
	} else if err := checkHeader(header); err != nil {
		st.handler, st.refused = refusing(err), true
	}
	ctx, cancel := context.WithCancel(st.c.base)
	st.ctx, st.cancel, st.head = ctx, cancel, method == http.MethodHead
	st.request = r.WithContext(ctx)
	st.header = make(http.Header, 12)
	return nil
}

// targetOf parses what is asked for.
func targetOf(method, scheme, authority, path string) (*url.URL, error) {
	if method == http.MethodConnect {
		if path != "" || scheme != "" || authority == "" {
			return nil, fmt.Errorf("CONNECT %q", authority)
		}
		return &url.URL{Host: authority}, nil
	}
	// The authority must not name a user (RFC 9113, 8.3.1).
	if strings.Contains(authority, "@") {
		return nil, fmt.Errorf("authority %q", authority)
	}
	if method == "" || path == "" || scheme != "https" && scheme != "http" {
		return nil, fmt.Errorf("%q %q %q", method, scheme, path)
	}
	return url.ParseRequestURI(path)
}

// expectBody is for a request whose body comes behind its headers.
func (st *stream) expectBody(r *http.Request) error {
	r.ContentLength = -1
	if length := r.Header["Content-Length"]; length != nil {
		n, err := strconv.ParseUint(length[0], 10, 63)
		if err != nil {
			n = 0 // net/http does that too: what comes is too much then
		}
		r.ContentLength = int64(n)
	}
	st.declared = r.ContentLength
	r.Body = body{st}
	return nil
}

// connectionHeaders are not allowed in HTTP/2 (RFC 9113, 8.2.2).
var connectionHeaders = [...]string{"Connection", "Keep-Alive", "Proxy-Connection", "Transfer-Encoding", "Upgrade"}

func checkHeader(h http.Header) error {
	for _, name := range connectionHeaders {
		if _, ok := h[name]; ok {
			return fmt.Errorf("request header %q is not valid in HTTP/2", name)
		}
	}
	if te := h["Te"]; len(te) > 1 || len(te) == 1 && te[0] != "trailers" && te[0] != "" {
		return fmt.Errorf("request header %q may only be %q in HTTP/2", "TE", "trailers")
	}
	return nil
}

func headersTooLong(w http.ResponseWriter, _ *http.Request) {
	w.WriteHeader(http.StatusRequestHeaderFieldsTooLarge)
	_, _ = w.Write([]byte("<h1>HTTP Error 431</h1><p>Request Header Field(s) Too Large</p>"))
}

func refusing(err error) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { http.Error(w, err.Error(), http.StatusBadRequest) }
}

// canonical is a header's name as http.Header has it.
func canonical(name string) string {
	if c, ok := requestNames[name]; ok {
		return c
	}
	return http.CanonicalHeaderKey(name)
}

// requestNames are the headers that nearly every request has.
var requestNames = map[string]string{
	"accept": "Accept", "accept-encoding": "Accept-Encoding", "authorization": "Authorization", "content-length": "Content-Length",
	"content-type": "Content-Type", "user-agent": "User-Agent", "audit-id": "Audit-Id", "if-none-match": "If-None-Match",
}
