package membership

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/quorate/quorate/membership/pki"
	"github.com/quorate/quorate/proto"
)

// joinBody is what a joining node sends to JoinPath.
type joinBody struct {
	TokenID string `json:"tokenID"`
	Secret  string `json:"secret"`
	Node    string `json:"node"` // for the record: id or name
}

// joinGrant is the answer: the cluster secret, and where to go next.
type joinGrant struct {
	Secrets   []string        `json:"secrets"`
	ClusterID proto.ClusterID `json:"clusterID"`
	Peers     []string        `json:"peers"`
}

const maxJoinBody = 4 << 10

// joinBodyWithin is how long the body of a join may take, whose sender is nobody: as long as
// the rest of any other stranger's. It is a few hundred bytes, and a node sends it at once.
const joinBodyWithin = 2 * time.Second

// JoinHandler serves JoinPath: it exchanges a valid join token for the cluster
// secret. It needs no client certificate and must be reachable without
// authentication, but only through TLS with this node's serving certificate.
func (j *joinTokens) JoinHandler() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		limit := 5 * j.opt.CallTimeout
		ctx, cancel := context.WithTimeout(r.Context(), limit)
		defer cancel()
		// Nobody is known here: a body that does not come must not hold the connection,
		// neither while it is read nor when its request was refused.
		connection := http.NewResponseController(w)
		_ = connection.SetReadDeadline(time.Now().Add(joinBodyWithin)) // only connections have deadlines
		if r.ProtoMajor == 1 {
			w.Header().Set("Connection", "close")
		}
		var grant joinGrant
		req, err := j.readJoin(r)
		if err == nil {
			// The body is here. That the connection's time is over would end ctx, during the write.
			_ = connection.SetReadDeadline(time.Now().Add(limit))
			grant, err = j.serveJoin(ctx, r, req)
		}
		if err != nil {
			j.refusals.Warn(j.log, "join token refused", "from", r.RemoteAddr, "err", err)
			answer(w, nil, err)
			return
		}
		answer(w, grant, nil)
	})
}

// readJoin reads a request for a join, if this node can serve one.
func (j *joinTokens) readJoin(r *http.Request) (req joinBody, err error) {
	switch {
	case r.Method != http.MethodPost:
		return req, fmt.Errorf("%w: POST is needed", ErrBadRequest)
	case r.TLS == nil || r.TLS.Version < tls.VersionTLS12:
		return req, fmt.Errorf("%w: TLS is needed", ErrBadRequest)
	case j.opt.Certificates == nil || j.id.Cluster() == "":
		return req, ErrNoLeader
	}
	data, err := io.ReadAll(io.LimitReader(r.Body, maxJoinBody+1))
	if err != nil || len(data) > maxJoinBody {
		return req, fmt.Errorf("%w: the body", ErrBadRequest)
	}
	err = decodeJSON(data, &req)
	return req, err
}

func (j *joinTokens) serveJoin(ctx context.Context, r *http.Request, req joinBody) (joinGrant, error) {
	// Anyone who has no token cannot keep one who has from using it: the two have buckets of
	// their own. To look at a token costs less than the handshake before; to use one, a write.
	if err := j.tryToken(req); err != nil {
		if errors.Is(err, ErrToken) && !j.wrong.take() {
			return joinGrant{}, errBusy
		}
		return joinGrant{}, err
	}
	if !j.joins.take() {
		return joinGrant{}, errBusy
	}
	if err := j.useToken(ctx, req.TokenID, req.Secret, req.Node); err != nil {
		return joinGrant{}, err
	}
	j.log.Info("join token used", "token", req.TokenID, "node", req.Node, "from", r.RemoteAddr)
	g := joinGrant{ClusterID: j.id.Cluster()}
	for _, s := range j.opt.Certificates.Secrets() {
		g.Secrets = append(g.Secrets, s.Reveal())
	}
	for _, s := range j.raft.Members().Servers {
		g.Peers = append(g.Peers, s.Address)
	}
	return g, nil
}

// tryToken looks at a token without using it.
func (j *joinTokens) tryToken(req joinBody) error {
	if !isHex(req.TokenID, tokenIDBytes) || len(req.Node) > 128 {
		return ErrToken
	}
	_, err := j.checkToken(req.TokenID, req.Secret)
	return err
}

// Grant is what a join token was exchanged for. Save Secrets with
// pki.SaveSecrets, then start as any other node, with Peers to join.
type Grant struct {
	Secrets   []pki.Secret
	ClusterID proto.ClusterID
	Peers     []string
}

// JoinWithToken exchanges a join token at the first of the API addresses
// (https://host:port or host:port) that grants it. The token's secret is sent
// only after the server has proved that its CA is the one that the token pins.
// node is for the cluster's records: name or id of this node. As long as a server has
// too much to do, it tries again until ctx ends.
func JoinWithToken(ctx context.Context, token JoinToken, servers []string, node string) (Grant, error) {
	if len(servers) == 0 {
		return Grant{}, errors.New("join: no API address given")
	}
	for wait := joinRetry; ; wait = min(2*wait, maxJoinRetry) {
		g, err := joinAtAny(ctx, token, servers, node)
		if err == nil || !errors.Is(err, errBusy) || sleep(ctx, wait/2+rand.N(wait), nil) != nil {
			return g, err
		}
	}
}

// Between two tries of a join: half of it to one and a half.
const (
	joinRetry    = 500 * time.Millisecond
	maxJoinRetry = 4 * time.Second
)

func joinAtAny(ctx context.Context, token JoinToken, servers []string, node string) (Grant, error) {
	var errs []error
	for _, s := range servers {
		g, err := joinAt(ctx, token, s, node)
		if err == nil {
			return g, nil
		}
		errs = append(errs, fmt.Errorf("join at %s: %w", s, err))
	}
	return Grant{}, errors.Join(errs...)
}

func joinAt(ctx context.Context, token JoinToken, server, node string) (Grant, error) {
	host := strings.TrimSuffix(strings.TrimPrefix(server, "https://"), "/")
	name, _, err := net.SplitHostPort(host)
	if err != nil {
		return Grant{}, err
	}
	body, err := json.Marshal(joinBody{token.ID, token.Secret, node})
	if err != nil {
		return Grant{}, err
	}
	transport := &http.Transport{
		DisableKeepAlives:      true,
		MaxResponseHeaderBytes: 64 << 10,
		TLSClientConfig: &tls.Config{
			MinVersion: tls.VersionTLS13,
			ServerName: name,
			// The CA is known by its hash only; VerifyConnection checks the whole
			// chain, host name included.
			InsecureSkipVerify: true,
			VerifyConnection:   func(s tls.ConnectionState) error { return verifyPin(s, token.Pin, name) },
		},
	}
	client := &http.Client{
		Transport: transport,
		Timeout:   30 * time.Second,
		CheckRedirect: func(*http.Request, []*http.Request) error {
			return errors.New("the server redirects; the token is not sent elsewhere")
		},
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "https://"+host+JoinPath, bytes.NewReader(body))
	if err != nil {
		return Grant{}, err
	}
	req.Header.Set("Content-Type", "application/json")
	var g joinGrant
	if err := roundTrip(client, req, &g); err != nil {
		if errors.Is(err, ErrPin) {
			err = fmt.Errorf("%w; is this the peer port? A join token needs the address of the API, as in 'quorate member list'", err)
		}
		return Grant{}, err
	}
	return g.check(token.Pin)
}

// verifyPin accepts a chain that ends at a CA with the pinned key.
func verifyPin(s tls.ConnectionState, pin, host string) error {
	roots, intermediates := x509.NewCertPool(), x509.NewCertPool()
	found := false
	for i, c := range s.PeerCertificates {
		if i > 0 && c.IsCA && pki.PinOf(c) == pin {
			roots.AddCert(c)
			found = true
		} else if i > 0 {
			intermediates.AddCert(c)
		}
	}
	if !found {
		return ErrPin
	}
	_, err := s.PeerCertificates[0].Verify(x509.VerifyOptions{
		Roots: roots, Intermediates: intermediates, DNSName: host,
		KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	})
	if err != nil {
		return fmt.Errorf("%w: %w", ErrPin, err)
	}
	return nil
}

// check makes sure that the secret is that of the pinned CA.
func (g joinGrant) check(pin string) (Grant, error) {
	secrets, err := pki.ParseSecrets(strings.Join(g.Secrets, "\n"))
	if err != nil {
		return Grant{}, err
	}
	for _, s := range secrets {
		if p, err := pki.PinOfSecret(s); err == nil && p == pin {
			return Grant{secrets, g.ClusterID, g.Peers}, nil
		}
	}
	return Grant{}, fmt.Errorf("%w: the secret it sent belongs to another one", ErrPin)
}

// bucket limits how often something may happen, for all callers together. Its zero rate
// allows nothing.
type bucket struct {
	rate, burst float64 // per second; at once
	now         func() time.Time

	mu     sync.Mutex
	used   float64
	filled time.Time
}

func (b *bucket) take() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := b.now()
	if !b.filled.IsZero() {
		b.used = max(0, b.used-now.Sub(b.filled).Seconds()*b.rate)
	}
	b.filled = now
	if b.used+1 > b.burst {
		return false
	}
	b.used++
	return true
}
