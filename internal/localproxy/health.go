package localproxy

import (
	"context"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"time"
)

// probeLocked begins to ask a node, while the Balancer runs.
func (b *Balancer) probeLocked(n *node) {
	if b.running == nil || n.end != nil {
		return
	}
	var ctx context.Context
	ctx, n.end = context.WithCancel(b.running)
	b.wg.Go(func() { b.probe(ctx, n) })
}

// probe asks a node until it is no member any more and nobody is connected to it.
func (b *Balancer) probe(ctx context.Context, n *node) {
	p := b.cfg.Probe(n.address)
	defer p.Close()
	for {
		began := time.Now()
		limited, cancel := context.WithTimeout(ctx, b.cfg.Every)
		isReady, err := p.Ask(limited)
		cancel()
		if ctx.Err() != nil {
			return
		}
		b.learn(n, isReady, err)
		if !sleep(ctx, max(0, b.cfg.Every-time.Since(began))) {
			return
		}
	}
}

// learn notes what a probe has found, and ends the connections of a node that is of no use.
func (b *Balancer) learn(n *node, isReady bool, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	was := n.health
	switch {
	case err != nil:
		if n.failures++; n.failures >= b.cfg.Failures {
			n.health = dead
		} else {
			n.health = max(n.health, failing)
		}
	case isReady:
		n.health, n.failures = ready, 0
	default:
		if was != unready {
			n.since = time.Now()
		}
		n.health, n.failures = unready, 0
	}
	end := n.health == dead || n.health == unready && time.Since(n.since) >= b.cfg.Unready && b.anyReadyLocked()
	ended := 0
	if end {
		// Each is forgotten by the goroutine that passes its bytes, or has dialled it.
		for p := range n.conns {
			p.close()
			ended++
		}
	}
	b.sayLocked(n, was, err, ended)
}

// sayLocked logs a node's health if it has changed. That one is ready at first is as it should be.
func (b *Balancer) sayLocked(n *node, was health, err error, ended int) {
	if was == n.health || was == unknown && n.health == ready {
		return
	}
	args := []any{"node", n.address, "was", was.String(), "connections ended", ended}
	if err != nil {
		args = append(args, "err", err)
	}
	b.cfg.Log.Info("a node is "+n.health.String(), args...)
}

func (b *Balancer) anyReadyLocked() bool {
	for _, n := range b.nodes {
		if n.listed && n.health == ready {
			return true
		}
	}
	return false
}

// newReadyz asks a node for /readyz.
func newReadyz(address string, dialer *net.Dialer) Probe {
	return &readyz{"https://" + address + "/readyz", &http.Transport{
		// It is asked without a credential, and its answer decides about nothing but the way of bytes
		// whose ends verify each other: anyone who could feign it could as well drop them. So the host needs
		// no file before its kubelet has one.
		TLSClientConfig:        &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"http/1.1"}},
		DialContext:            dialer.DialContext,
		MaxIdleConns:           1,
		MaxResponseHeaderBytes: 64 << 10,
	}}
}

type readyz struct {
	url       string
	transport *http.Transport
}

// Ask implements Probe. A node that serves nobody without a credential (401, 403) is taken for ready.
func (r *readyz) Ask(ctx context.Context) (bool, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, r.url, nil)
	if err != nil {
		return false, err
	}
	resp, err := r.transport.RoundTrip(req)
	if err != nil {
		return false, err
	}
	defer resp.Body.Close()
	// A short answer is read, so that the connection can be used again.
	if _, err := io.CopyN(io.Discard, resp.Body, 4<<10); err != nil && err != io.EOF {
		return false, err
	}
	switch resp.StatusCode {
	case http.StatusOK, http.StatusUnauthorized, http.StatusForbidden:
		return true, nil
	}
	return false, nil
}

// Close implements Probe.
func (r *readyz) Close() { r.transport.CloseIdleConnections() }
