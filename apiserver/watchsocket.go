package apiserver

import (
	"bufio"
	"context"
	"errors"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/quorate/quorate/apiserver/wire/codec"
	"github.com/quorate/quorate/apiserver/wire/status"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"golang.org/x/net/websocket"
)

// A watch over a WebSocket (RFC 6455) has one event per message: text for JSON,
// binary for protobuf. Everything else about it is the same as over plain HTTP.
// HTTP/2 has no such upgrade: net/http refuses its headers with 400.

const (
	// maxClientMessage bounds what a client may send, in bytes, though it has nothing
	// to say. A longer message ends the watch.
	maxClientMessage = 4 << 10
	// closeWithin bounds the goodbye to a client that does not read.
	closeWithin = time.Second
)

// wantsSocket reports whether the request is to become a WebSocket, as upstream
// decides it: without the Connection header it is plain HTTP.
func wantsSocket(r *http.Request) bool {
	return wantsUpgrade(r) && strings.EqualFold(r.Header.Get("Upgrade"), "websocket")
}

// overSocket upgrades the connection and has serve write the watch's events to it.
// When it returns, the connection is closed.
func (c verbs) overSocket(f codec.Format, to *watchConn, serve func(*codec.EventWriter, deadline)) error {
	if err := checkHandshake(c.Header(), c.r); err != nil {
		return err
	}
	send := func(ws *websocket.Conn, b []byte) error {
		n, err := to.timed(ws.Write, b)
		c.written += int64(n)
		return err
	}
	// Made before the upgrade: what cannot be encoded is answered in plain HTTP.
	var ws *websocket.Conn
	events, err := codec.NewMessageWriter(func(b []byte) error { return send(ws, b) }, f, c.Resource)
	if err != nil {
		return err
	}
	c.setWarnings() // the upgrade is no answer of ours
	server := websocket.Server{
		Config:    websocket.Config{Header: c.Header()},
		Handshake: func(*websocket.Config, *http.Request) error { return nil }, // done above
		Handler: func(conn *websocket.Conn) {
			ws = conn
			ws.PayloadType = websocket.TextFrame
			if f.MediaType == codec.Protobuf {
				ws.PayloadType = websocket.BinaryFrame
			}
			c.talk(ws, func() { serve(events, ws) })
		},
	}
	server.ServeHTTP(&hijacked{c.call}, c.r)
	return nil
}

// talk runs serve until it is done or the client goes, and says goodbye.
func (c verbs) talk(ws *websocket.Conn, serve func()) {
	ctx, cancel := context.WithCancel(c.Context)
	c.Context = ctx
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		defer cancel()
		c.listen(ws)
	}()
	serve()
	// Pongs and the goodbye share a lock: neither may wait for the client for long.
	_ = ws.SetWriteDeadline(time.Now().Add(closeWithin)) // it is a network connection
	_ = ws.Close()                                       // the client may be gone
	<-ended
}

// listen answers pings and drops what the client sends, until it closes or breaks
// the protocol.
func (c verbs) listen(ws *websocket.Conn) {
	defer func() {
		if p := recover(); p != nil {
			c.cfg.Observer.Panicked(&c.Kind)
			c.cfg.Log.Error("panic in a WebSocket", "panic", p)
		}
	}()
	ws.MaxPayloadBytes = maxClientMessage
	var message []byte
	for websocket.Message.Receive(ws, &message) == nil {
	}
}

// checkHandshake refuses, while an answer can still be given, what the library
// would refuse on the bare connection, with the codes that upstream gives.
func checkHandshake(answer http.Header, r *http.Request) error {
	h := r.Header
	if h.Get("Sec-Websocket-Key") == "" {
		return status.BadRequest("the header Sec-WebSocket-Key is missing")
	}
	if h.Get("Sec-Websocket-Version") != "13" {
		answer.Set("Sec-WebSocket-Version", "13")
		return status.BadRequest("the header Sec-WebSocket-Version must be 13")
	}
	config := &websocket.Config{Version: websocket.ProtocolVersionHybi13}
	origin, err := websocket.Origin(config, r)
	if err != nil || origin == nil {
		return refusedOrigin(h.Get("Origin"))
	}
	// A browser sends its user's certificate along with whatever page asks. A token has
	// to be named, so anyone who names it may come from where he likes.
	if r.TLS != nil && len(r.TLS.PeerCertificates) > 0 && !sameHost(origin.Host, r.Host) {
		return forbiddenOrigin("the header Origin names another host than the request, and the credential is a client certificate")
	}
	// A server that does not know a subprotocol cannot choose among several. Upstream
	// gives back a single one.
	if strings.Contains(h.Get("Sec-Websocket-Protocol"), ",") {
		return status.BadRequest("a watch has no WebSocket subprotocol: at most one may be offered")
	}
	return nil
}

// sameHost compares the host of an Origin with that of a request. Browsers leave the
// default port out.
func sameHost(origin, host string) bool {
	plain := func(s string) string { return strings.ToLower(strings.TrimSuffix(s, ":443")) }
	return plain(origin) == plain(host)
}

// refusedOrigin: a header Origin must be there and be a URL, as upstream has it.
func refusedOrigin(origin string) error {
	text := "the header Origin is missing"
	if origin != "" {
		text = "the header Origin is not a URL"
	}
	return forbiddenOrigin(text)
}

func forbiddenOrigin(text string) error {
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure, Code: http.StatusForbidden, Reason: metav1.StatusReasonForbidden, Message: text,
	}}
}

// hijacked gives the library the connection below a call, and notes the upgrade.
type hijacked struct{ *call }

var errNoHijack = errors.New("the connection cannot become a WebSocket")

// Hijack implements http.Hijacker.
func (h *hijacked) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, buf, err := http.NewResponseController(h.call.ResponseWriter).Hijack()
	if err != nil {
		return nil, nil, errors.Join(errNoHijack, err)
	}
	h.code = http.StatusSwitchingProtocols
	return conn, buf, nil
}
