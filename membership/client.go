package membership

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/quorate/quorate/membership/pki"
)

const (
	maxAnswerBytes = 4 << 20
	// connectWithin bounds each half of a connection's beginning. A process that is frozen
	// takes connections and says nothing.
	connectWithin = 3 * time.Second
)

// AdminClient speaks to the admin API of any node. It tries the servers in turn
// until one answers; a change that may have been carried out is tried again,
// which is safe since all changes are idempotent (but a token may be made twice).
// It may be used concurrently.
type AdminClient struct {
	servers []string
	http    *http.Client // for answers, bounded in time as a whole
	streams *http.Client // for what takes as long as it takes; its beginning is bounded
}

// NewAdminClient makes a client from a kubeconfig with a client certificate.
func NewAdminClient(k pki.Kubeconfig) (*AdminClient, error) {
	config, err := k.TLS()
	if err != nil {
		return nil, fmt.Errorf("admin client: %w", err)
	}
	c := &AdminClient{http: &http.Client{
		Timeout: maxChangeTime + 5*time.Second,
		Transport: &http.Transport{
			TLSClientConfig:     config,
			TLSHandshakeTimeout: connectWithin,
			ForceAttemptHTTP2:   true,
			MaxIdleConns:        8,
			IdleConnTimeout:     30 * time.Second,
			DialContext:         (&net.Dialer{Timeout: connectWithin}).DialContext,
			// A little longer than the server lets a change take.
			ResponseHeaderTimeout:  maxChangeTime + 2*time.Second,
			MaxResponseHeaderBytes: 64 << 10,
		},
	}}
	as, err := impersonation(&k.As)
	if err != nil {
		return nil, fmt.Errorf("admin client: %w", err)
	}
	if as != nil {
		c.http.Transport = actingAs{c.http.Transport, as}
	}
	c.streams = &http.Client{Transport: c.http.Transport}
	for _, e := range k.Endpoints {
		c.servers = append(c.servers, strings.TrimSuffix(e.Server, "/"))
	}
	if len(c.servers) == 0 {
		return nil, errors.New("admin client: the kubeconfig has no server")
	}
	return c, nil
}

// impersonation are the headers of a request that ask for it; nil for nobody. Errors: groups and the like
// without a user, whom no server would accept.
func impersonation(i *pki.Impersonation) (http.Header, error) {
	if i.User == "" {
		if i.UID != "" || len(i.Groups) > 0 || len(i.Extra) > 0 {
			return nil, errors.New("the kubeconfig's user has as-uid, as-groups or as-user-extra without as")
		}
		return nil, nil
	}
	h := http.Header{"Impersonate-User": {i.User}}
	if i.UID != "" {
		h.Set("Impersonate-Uid", i.UID)
	}
	for _, g := range i.Groups {
		h.Add("Impersonate-Group", g)
	}
	for name, values := range i.Extra {
		for _, v := range values {
			h.Add("Impersonate-Extra-"+url.PathEscape(name), v)
		}
	}
	return h, nil
}

// actingAs adds headers to each request.
type actingAs struct {
	http.RoundTripper
	as http.Header
}

// RoundTrip implements http.RoundTripper.
func (t actingAs) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	maps.Copy(r.Header, t.as)
	return t.RoundTripper.RoundTrip(r)
}

// CloseIdleConnections is for http.Client.
func (t actingAs) CloseIdleConnections() {
	if c, ok := t.RoundTripper.(interface{ CloseIdleConnections() }); ok {
		c.CloseIdleConnections()
	}
}

// Open reads what a path of a server gives, from the first server that answers with 200.
// The caller closes it. ctx ends it.
func (c *AdminClient) Open(ctx context.Context, path string) (io.ReadCloser, error) {
	var tried attempts
	for _, server := range c.servers {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, server+path, nil)
		if err != nil {
			return nil, err
		}
		resp, err := c.streams.Do(req)
		if err == nil && resp.StatusCode == http.StatusOK {
			return resp.Body, nil
		}
		if err == nil {
			text, _ := io.ReadAll(io.LimitReader(resp.Body, 16<<10))
			resp.Body.Close()
			err = answerError(resp.StatusCode, text)
		} else {
			err = plainly(err)
		}
		tried.add(server, err)
		if ctx.Err() != nil {
			break
		}
	}
	return nil, tried.err()
}

// Close closes idle connections.
func (c *AdminClient) Close() { c.http.CloseIdleConnections() }

// Server is the host and port that are asked first.
func (c *AdminClient) Server() string { return strings.TrimPrefix(c.servers[0], "https://") }

// Members lists the members.
func (c *AdminClient) Members(ctx context.Context) (MemberList, error) {
	return Ask[MemberList](ctx, c, http.MethodGet, "members", nil)
}

// Add adds the node that runs at a peer address, without a vote.
func (c *AdminClient) Add(ctx context.Context, peerAddress string) (MemberList, error) {
	return Ask[MemberList](ctx, c, http.MethodPost, "members", AddRequest{peerAddress})
}

// Promote gives a member, by id or name, its vote.
func (c *AdminClient) Promote(ctx context.Context, member string, force bool) (MemberList, error) {
	return Ask[MemberList](ctx, c, http.MethodPost, memberPath(member, "/promote", force), nil)
}

// Demote takes a member's vote; it stays without one until it is promoted.
func (c *AdminClient) Demote(ctx context.Context, member string, force bool) (MemberList, error) {
	return Ask[MemberList](ctx, c, http.MethodPost, memberPath(member, "/demote", force), nil)
}

// KeepTokens says what becomes of the service account tokens that a removed member has
// signed.
type KeepTokens struct {
	// Keep has them hold; without it they end with the removal.
	Keep bool
	// For is how long. Zero: as long as the longest of them may be valid.
	For time.Duration
}

// Remove takes a member out of the cluster. Its id can never come back.
func (c *AdminClient) Remove(ctx context.Context, member string, force bool, tokens KeepTokens) (MemberList, error) {
	q := url.Values{}
	if force {
		q.Set("force", "true")
	}
	switch {
	case tokens.Keep && tokens.For > 0:
		q.Set("keepTokens", strconv.FormatInt(int64((tokens.For+time.Second-1)/time.Second), 10))
	case tokens.Keep:
		q.Set("keepTokens", "true")
	}
	path := memberPath(member, "", false)
	if len(q) > 0 {
		path += "?" + q.Encode()
	}
	return Ask[MemberList](ctx, c, http.MethodDelete, path, nil)
}

// Transfer hands leadership to a voter, or to the most caught-up one if to is
// empty.
func (c *AdminClient) Transfer(ctx context.Context, to string) (MemberList, error) {
	return Ask[MemberList](ctx, c, http.MethodPost, "transfer-leader", TransferRequest{to})
}

// Tokens lists the join tokens.
func (c *AdminClient) Tokens(ctx context.Context) ([]TokenInfo, error) {
	l, err := Ask[TokenList](ctx, c, http.MethodGet, "tokens", nil)
	return l.Tokens, err
}

// CreateToken makes a join token.
func (c *AdminClient) CreateToken(ctx context.Context, req TokenRequest) (TokenCreated, error) {
	return Ask[TokenCreated](ctx, c, http.MethodPost, "tokens", req)
}

// DeleteToken deletes a join token by its id.
func (c *AdminClient) DeleteToken(ctx context.Context, id string) error {
	_, err := Ask[struct{}](ctx, c, http.MethodDelete, "tokens/"+url.PathEscape(id), nil)
	return err
}

// Status asks one node for the status of the whole cluster. It works in a
// minority.
func (c *AdminClient) Status(ctx context.Context) (ClusterStatus, error) {
	return Ask[ClusterStatus](ctx, c, http.MethodGet, "status", nil)
}

// Kubernetes asks the servers in turn for a path of the Kubernetes API, with a body in JSON or none. A
// refusal is the Status' message. A change whose server does not answer is tried at the next one: the
// caller's must bear that. Without a quorum the error wraps ErrNoQuorum and says who is missing.
func (c *AdminClient) Kubernetes(ctx context.Context, method, path string, body, into any) error {
	var data []byte
	if body != nil {
		var err error
		if data, err = json.Marshal(body); err != nil {
			return err
		}
	}
	_, err := inTurn(ctx, c, func(ctx context.Context, server string) (struct{}, error) {
		req, err := http.NewRequestWithContext(ctx, method, server+path, bytes.NewReader(data))
		if err != nil {
			return struct{}{}, err
		}
		req.Header.Set("Accept", "application/json")
		if data != nil {
			req.Header.Set("Content-Type", "application/json")
		}
		return struct{}{}, c.explain(ctx, server, roundTrip(c.http, req, into))
	})
	return err
}

func memberPath(member, verb string, force bool) string {
	p := "members/" + url.PathEscape(member) + verb
	if force {
		p += "?force=" + strconv.FormatBool(force)
	}
	return p
}

// Ask asks the servers in turn for a path below AdminPath. An answer is an answer, except that
// a node without a leader says nothing about the others.
func Ask[T any](ctx context.Context, c *AdminClient, method, path string, body any) (T, error) {
	var zero T
	var data []byte
	if body != nil {
		var err error
		if data, err = json.Marshal(body); err != nil {
			return zero, err
		}
	}
	try := func(ctx context.Context, server string) (T, error) {
		var out T
		var reader io.Reader
		if data != nil {
			reader = bytes.NewReader(data)
		}
		req, err := http.NewRequestWithContext(ctx, method, server+AdminPath+path, reader)
		if err != nil {
			return zero, err
		}
		req.Header.Set("Accept", "application/json")
		if data != nil {
			req.Header.Set("Content-Type", "application/json")
		}
		if err := roundTrip(c.http, req, &out); err != nil {
			return zero, err
		}
		return out, nil
	}
	if method == http.MethodGet {
		return anyOf(ctx, c.servers, try)
	}
	return inTurn(ctx, c, try)
}

// Answer is what one server says.
type Answer[T any] struct {
	Server string // host and port
	Value  T
	Err    error
}

// AskEach asks every server of the kubeconfig for a path below AdminPath, at once.
func AskEach[T any](ctx context.Context, c *AdminClient, path string) []Answer[T] {
	out := make([]Answer[T], len(c.servers))
	var wg sync.WaitGroup
	for i, server := range c.servers {
		wg.Go(func() {
			one := *c
			one.servers = []string{server}
			out[i].Server = strings.TrimPrefix(server, "https://")
			out[i].Value, out[i].Err = Ask[T](ctx, &one, http.MethodGet, path, nil)
		})
	}
	wg.Wait()
	return out
}

// inTurn is for changes: one server after the other. If one says that there is no quorum, only one
// that says otherwise is asked yet: this one may be cut off.
func inTurn[T any](ctx context.Context, c *AdminClient, try func(context.Context, string) (T, error)) (T, error) {
	var zero T
	var tried attempts
	var noQuorum error
	others := c.findQuorum(ctx)
	defer others.end()
	for i := 0; i < len(c.servers); i++ {
		server := c.servers[i]
		if noQuorum != nil && server != others.server() {
			continue
		}
		out, err := try(ctx, server)
		if err == nil {
			return out, nil
		}
		tried.add(server, err)
		switch {
		case ctx.Err() != nil:
			return zero, err
		case errors.Is(err, ErrNoQuorum):
			noQuorum = cmp.Or(noQuorum, err)
		case isAnswer(err):
			return zero, err
		}
	}
	if noQuorum != nil {
		return zero, noQuorum
	}
	return zero, tried.err()
}

// askNextAfter is how long a server has for what only asks before the next one is asked too.
const askNextAfter = time.Second

// anyOf is for what only asks: the first answer counts. A server that is frozen, or whose
// host is gone, costs askNextAfter.
func anyOf[T any](ctx context.Context, servers []string, try func(context.Context, string) (T, error)) (T, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	type result struct {
		server string
		out    T
		err    error
	}
	results := make(chan result, len(servers)) // none waits for a reader that has gone
	asked, failed := 0, 0
	ask := func() {
		server := servers[asked]
		asked++
		go func() {
			out, err := try(ctx, server)
			results <- result{server, out, err}
		}()
	}
	ask()
	next := time.NewTicker(askNextAfter)
	defer next.Stop()
	var zero T
	var tried attempts
	for {
		select {
		case r := <-results:
			if r.err == nil || isAnswer(r.err) || ctx.Err() != nil {
				return r.out, r.err
			}
			tried.add(r.server, r.err)
			if failed++; failed == len(servers) {
				return zero, tried.err()
			}
			if failed < asked || asked == len(servers) {
				continue
			}
		case <-next.C:
			if asked == len(servers) {
				continue
			}
		}
		ask()
	}
}

// isAnswer says whether an error is what the cluster answers, whichever node is asked.
func isAnswer(err error) bool {
	var remote *remoteError
	return errors.As(err, &remote) && !asksElsewhere(err)
}

// errServesNothing is wrapped by the answer of a node that refuses all requests: it was
// removed, or its state is wrong.
var errServesNothing = errors.New("the node serves nothing")

// asksElsewhere says whether the answer of a node says nothing about the others.
func asksElsewhere(err error) bool {
	return errors.Is(err, ErrNoLeader) || errors.Is(err, ErrNotLeader) || errors.Is(err, ErrNotMember) || errors.Is(err, errServesNothing)
}

// roundTrip sends a request and reads the answer, or the error in it.
func roundTrip(client *http.Client, req *http.Request, out any) error {
	resp, err := client.Do(req)
	if err != nil {
		return plainly(err)
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswerBytes+1))
	if err != nil {
		return err
	}
	if len(data) > maxAnswerBytes {
		return fmt.Errorf("answer of more than %d bytes", maxAnswerBytes)
	}
	if resp.StatusCode >= 300 {
		return answerError(resp.StatusCode, data)
	}
	if resp.StatusCode == http.StatusNoContent {
		return nil
	}
	if err := json.Unmarshal(data, out); err != nil {
		return fmt.Errorf("not an answer of Quorate: %w", err)
	}
	return nil
}

// unauthorized is what can be behind a 401, and what helps.
const unauthorized = "the cluster does not know this credential, or no more: those from before a restore or 'quorate recover' are refused, " +
	"and those of nodes that were removed. DATA-DIR/admin.kubeconfig of a member holds; with it 'quorate kubeconfig' makes others"

// answerError is an answer that is not 2xx: ours, or a Status of the API server
// in front of it.
func answerError(code int, data []byte) error {
	var e errorBody
	var st struct {
		Reason  string `json:"reason"`
		Message string `json:"message"`
	}
	if json.Unmarshal(data, &e) == nil && e.Error != "" {
		for _, k := range httpErrors {
			if k.code == e.Code {
				return &remoteError{e.Error, k.err}
			}
		}
		return &remoteError{e.Error, nil}
	}
	if code == http.StatusUnauthorized && json.Unmarshal(data, &st) == nil && st.Reason == "Unauthorized" {
		return &remoteError{st.Message + ": " + unauthorized, nil}
	}
	if json.Unmarshal(data, &st) == nil && st.Message != "" {
		return &remoteError{st.Message, statusError(code, st.Reason)}
	}
	return &remoteError{fmt.Sprintf("HTTP status %d", code), nil}
}

// statusError is what a Status of the API server is among our errors, or nil.
func statusError(code int, reason string) error {
	switch {
	case code == http.StatusServiceUnavailable:
		return errServesNothing
	case reason == "ServerTimeout": // it has no leader, and has done nothing
		return ErrNoLeader
	case code == http.StatusForbidden:
		return ErrForbidden
	case code == http.StatusNotFound:
		return ErrNotFound
	case code == http.StatusGatewayTimeout:
		return ErrUnknownOutcome
	}
	return nil
}

// decodeJSON decodes one value with known fields only.
func decodeJSON(data []byte, to any) error {
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	if err := d.Decode(to); err != nil {
		return fmt.Errorf("%w: %w", ErrBadRequest, err)
	}
	if d.More() {
		return fmt.Errorf("%w: more than one value", ErrBadRequest)
	}
	return nil
}
