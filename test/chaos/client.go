//go:build linux && amd64

package chaos

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/quorate/quorate/test/judges/history"
	"github.com/quorate/quorate/test/judges/wire"
)

const (
	namespace  = "chaos"
	collection = "/api/v1/namespaces/" + namespace + "/configmaps"
	// callWithin bounds every call; a watch has its own bounds.
	callWithin = 5 * time.Second
	// maxAnswer bounds what is read of an answer.
	maxAnswer = 16 << 20
)

// client is the HTTP side of one client: a connection to each node.
type client struct {
	c     *Cluster
	conns map[*Node]*http.Client
}

func newClient(c *Cluster) *client { return &client{c: c, conns: map[*Node]*http.Client{}} }

func (k *client) close() {
	for _, h := range k.conns {
		h.CloseIdleConnections()
	}
}

func (k *client) http(n *Node) *http.Client {
	h := k.conns[n]
	if h == nil {
		h = &http.Client{Transport: &http.Transport{
			ForceAttemptHTTP2: true, MaxConnsPerHost: 1,
			DialTLSContext: func(ctx context.Context, _, address string) (net.Conn, error) {
				conn, err := k.dial(ctx, n, address)
				if err != nil {
					return nil, fmt.Errorf("%w: %w", wire.ErrNotSent, err)
				}
				return conn, nil
			},
		}}
		k.conns[n] = h
	}
	return h
}

// handshakeWithin bounds the beginning of a connection: the kernel accepts it
// also for a process that does nothing any more.
const handshakeWithin = 2 * time.Second

func (k *client) dial(ctx context.Context, n *Node, address string) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, handshakeWithin)
	defer cancel()
	raw, err := n.host.Dial(ctx, "tcp4", address)
	if err != nil {
		return nil, err
	}
	config := k.c.tls.Clone()
	config.NextProtos = []string{"h2"}
	if config.ServerName, _, err = net.SplitHostPort(address); err != nil {
		return nil, err
	}
	conn := tls.Client(raw, config)
	if err := conn.HandshakeContext(ctx); err != nil {
		raw.Close()
		return nil, err
	}
	return conn, nil
}

func (k *client) open(ctx context.Context, n *Node, q wire.Request) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, q.Method, "https://"+n.API+q.Path+"?"+q.Query.Encode(), bytes.NewReader(q.Body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Accept", "application/json")
	if q.Body != nil {
		req.Header.Set("Content-Type", cmp.Or(q.ContentType, "application/json"))
	}
	return k.http(n).Do(req)
}

// call makes a request and reads its answer, within callWithin.
func (k *client) call(ctx context.Context, n *Node, q wire.Request) (wire.Answer, error) {
	ctx, cancel := context.WithTimeout(ctx, callWithin)
	defer cancel()
	resp, err := k.open(ctx, n, q)
	if err != nil {
		return wire.Answer{}, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		return wire.Answer{}, err
	}
	return wire.Answer{Code: resp.StatusCode, Header: resp.Header, Body: body}, nil
}

// itemOf is what an object says. One whose padding is damaged has a value that
// nobody wrote.
func itemOf(o *wire.Object) history.Item {
	it := history.Item{Key: o.Metadata.Name, Value: o.Data["value"], Revision: o.Revision()}
	if strings.Trim(o.Data["padding"], "x") != "" {
		it.Value += " with damaged padding"
	}
	return it
}

// encode is a ConfigMap's JSON.
func encode(key, value, padding string, rev uint64) []byte {
	meta := map[string]any{"name": key, "labels": map[string]string{"color": wire.Color(value)}}
	if rev > 0 {
		meta["resourceVersion"] = strconv.FormatUint(rev, 10)
	}
	b, err := json.Marshal(map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta,
		"data": map[string]string{"value": value, "padding": padding}})
	if err != nil {
		panic(err) // strings only
	}
	return b
}
