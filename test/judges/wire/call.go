package wire

import (
	"errors"
	"net/http"
	"net/url"
)

// Request is one request of a client.
type Request struct {
	Method, Path string
	Query        url.Values
	ContentType  string // of the body; "" is JSON
	Body         []byte
}

// Answer is a whole one.
type Answer struct {
	Code   int
	Header http.Header
	Body   []byte
}

// ErrNotSent marks calls that no node has seen: there is nothing to record of them.
var ErrNotSent = errors.New("not sent")
