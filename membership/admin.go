package membership

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/quorate/quorate/proto"
)

const (
	maxAdminBody = 16 << 10
	// maxChangeTime bounds a change that a client waits for.
	maxChangeTime = 30 * time.Second
)

// httpErrors maps errors to answers of the admin API and back, first match
// first. The codes are part of the API.
var httpErrors = []struct {
	err    error
	status int
	code   string
}{
	{ErrToken, http.StatusUnauthorized, "InvalidToken"},
	{ErrNotFound, http.StatusNotFound, "NotFound"},
	{ErrAmbiguous, http.StatusConflict, "Ambiguous"},
	{ErrRemoved, http.StatusConflict, "Removed"},
	{ErrNotMember, http.StatusServiceUnavailable, "NotMember"},
	{ErrForbidden, http.StatusForbidden, "Forbidden"},
	{ErrRefused, http.StatusConflict, "Refused"},
	{ErrOtherCluster, http.StatusConflict, "OtherCluster"},
	{ErrConflict, http.StatusConflict, "Conflict"},
	{ErrNoQuorum, http.StatusServiceUnavailable, "NoQuorum"},
	{ErrNoLeader, http.StatusServiceUnavailable, "NoLeader"},
	{ErrNotLeader, http.StatusServiceUnavailable, "NotLeader"},
	{ErrBadRequest, http.StatusBadRequest, "BadRequest"},
	{errMethod, http.StatusMethodNotAllowed, "MethodNotAllowed"},
	{ErrUnknownOutcome, http.StatusGatewayTimeout, "UnknownOutcome"},
	{errBusy, http.StatusTooManyRequests, "TooManyRequests"},
	{context.DeadlineExceeded, http.StatusGatewayTimeout, "Timeout"},
}

// ErrBadRequest is wrapped by what is wrong with a request of the admin API.
var ErrBadRequest = errors.New("bad request")

var (
	errBusy   = errors.New("too many requests")
	errMethod = errors.New("the path does not allow this method")
)

// AdminHandler serves AdminPath. It does not ask who calls: mount it behind
// authentication and authorization. again is called before anything is changed; the change gets the context that it
// returns. It decides again by what the cluster has acknowledged, because this node may lag behind the write that has
// taken the right away.
//
//	GET    members                     MemberList
//	POST   members                     AddRequest -> MemberList
//	POST   members/{id or name}/promote|demote[?force=true] -> MemberList
//	DELETE members/{id or name}[?force=true][&keepTokens=true|SECONDS] -> MemberList
//	POST   transfer-leader             TransferRequest -> MemberList
//	GET    tokens                      TokenList
//	POST   tokens                      TokenRequest -> TokenCreated
//	DELETE tokens/{id}                 204
//	GET    status                      ClusterStatus
//
// more are further routes, which have no place in this package.
func (m *Manager) AdminHandler(again func(context.Context) (context.Context, error), more ...AdminRoute) http.Handler {
	mux := http.NewServeMux()
	handle := func(pattern string, h func(context.Context, *http.Request) (any, error)) {
		method, path, _ := strings.Cut(pattern, " ")
		mux.HandleFunc(method+" "+AdminPath+path, func(w http.ResponseWriter, r *http.Request) {
			ctx, cancel := context.WithTimeout(r.Context(), maxChangeTime)
			defer cancel()
			var out any
			var err error
			if method == http.MethodGet { // from what this node has
				out, err = h(ctx, r)
			} else {
				out, err = m.unlessNoQuorum(ctx, func(ctx context.Context) (any, error) {
					ctx, err := again(ctx)
					if err != nil {
						return nil, err
					}
					return h(ctx, r)
				})
			}
			answer(w, out, err)
		})
	}
	handle("GET members", func(ctx context.Context, _ *http.Request) (any, error) { return m.Members() })
	handle("POST members", m.serveAdd)
	handle("POST members/{member}/promote", m.serveChange(proto.ChangeKind_CHANGE_PROMOTE))
	handle("POST members/{member}/demote", m.serveChange(proto.ChangeKind_CHANGE_DEMOTE))
	handle("DELETE members/{member}", m.serveChange(proto.ChangeKind_CHANGE_REMOVE))
	handle("POST transfer-leader", m.serveTransfer)
	handle("GET tokens", func(context.Context, *http.Request) (any, error) {
		t, err := m.Tokens()
		return TokenList{t}, err
	})
	handle("POST tokens", m.serveCreateToken)
	handle("DELETE tokens/{id}", func(ctx context.Context, r *http.Request) (any, error) {
		return nil, m.DeleteToken(ctx, r.PathValue("id"))
	})
	handle("GET status", func(ctx context.Context, _ *http.Request) (any, error) { return m.ClusterStatus(ctx) })
	for _, r := range more {
		handle(r.Pattern, r.Serve)
	}
	return inJSON(mux)
}

// inJSON answers what a mux has no route for as the rest of the API answers: the mux itself says it
// in plain text.
func inJSON(mux *http.ServeMux) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h, pattern := mux.Handler(r)
		if pattern != "" {
			mux.ServeHTTP(w, r)
			return
		}
		refusal := headersOnly{}
		h.ServeHTTP(refusal, r)
		if allow := refusal.Header()["Allow"]; allow != nil { // it has the path, for other methods
			w.Header()["Allow"] = allow
			answer(w, nil, fmt.Errorf("%w: %.20q: only %s", errMethod, r.Method, strings.Join(allow, ", ")))
			return
		}
		answer(w, nil, fmt.Errorf("%w: this API has no path %.120q", ErrNotFound, r.URL.Path))
	})
}

// headersOnly is a http.ResponseWriter that keeps the headers, and nothing else.
type headersOnly http.Header

func (h headersOnly) Header() http.Header         { return http.Header(h) }
func (h headersOnly) Write(b []byte) (int, error) { return len(b), nil }
func (h headersOnly) WriteHeader(int)             {}

// AdminRoute is a route of the admin API that somebody else serves.
type AdminRoute struct {
	Pattern string // METHOD PATH, below AdminPath
	// Serve returns the answer as it is written in JSON, nil for none. Errors that wrap this
	// package's have their codes. What changes something is given up when there is no quorum.
	Serve func(ctx context.Context, r *http.Request) (any, error)
}

// Members are the members as this node has them in memory.
func (b *base) Members() (MemberList, error) {
	_, members, err := b.members()
	return b.listOf(members), err
}

func (b *base) listOf(members []*proto.Member) MemberList {
	out := MemberList{ClusterID: b.id.Cluster(), Members: []MemberInfo{}}
	leader, _ := b.raft.Leader()
	lost := lostEntries(b.raft.Status(context.Background())) // which asks nobody
	for _, p := range members {
		row := memberInfo(p, leader)
		row.LostEntries = lost[row.ID]
		out.Members = append(out.Members, row)
	}
	return out
}

// serveAdd asks the node at the address who it is, then adds it.
func (m *Manager) serveAdd(ctx context.Context, r *http.Request) (any, error) {
	var req AddRequest
	if err := ReadJSON(r, &req); err != nil {
		return nil, err
	}
	if req.PeerAddress == "" || len(req.PeerAddress) > maxAddressBytes {
		return nil, fmt.Errorf("%w: peerAddress is required", ErrBadRequest)
	}
	helloCtx, cancel := context.WithTimeout(ctx, m.opt.CallTimeout)
	defer cancel()
	h, err := m.hello(helloCtx, "", req.PeerAddress)
	if err != nil {
		return nil, fmt.Errorf("%w: the node at %s does not answer: %w", ErrRefused, req.PeerAddress, err)
	}
	if h.ClusterId != "" && h.ClusterId != string(m.id.Cluster()) {
		return nil, fmt.Errorf("the node at %s %w, %s", req.PeerAddress, ErrOtherCluster, h.ClusterId)
	}
	members, err := m.change(ctx, &proto.ChangeRequest{Kind: proto.ChangeKind_CHANGE_ADD, Member: h.Self})
	return m.listOf(members), err
}

func (m *Manager) serveChange(kind proto.ChangeKind) func(context.Context, *http.Request) (any, error) {
	return func(ctx context.Context, r *http.Request) (any, error) {
		force := false
		if v := r.URL.Query().Get("force"); v != "" {
			var err error
			if force, err = strconv.ParseBool(v); err != nil {
				return nil, fmt.Errorf("%w: force=%.20q", ErrBadRequest, v)
			}
		}
		keep, err := keepTokens(r.URL.Query().Get("keepTokens"), m.opt.TokenLifetime)
		if err != nil {
			return nil, err
		}
		members, err := m.change(ctx, &proto.ChangeRequest{
			Kind: kind, Force: force, KeepTokensSeconds: keep, Member: &proto.Member{NodeId: r.PathValue("member")},
		})
		return m.listOf(members), err
	}
}

// maxKeepTokensSeconds is as long as any token is valid.
const maxKeepTokensSeconds = 1 << 32

// keepTokens reads for how many seconds the tokens of a removed member are kept: "" and
// "false" are not at all, "true" is as long as the longest of them may be valid.
func keepTokens(v string, lifetime time.Duration) (uint64, error) {
	switch v {
	case "", "false":
		return 0, nil
	case "true":
		return uint64(lifetime / time.Second), nil
	}
	seconds, err := strconv.ParseUint(v, 10, 64)
	if err != nil || seconds > maxKeepTokensSeconds {
		return 0, fmt.Errorf("%w: keepTokens=%.20q: must be true, false, or from 0 to %d seconds", ErrBadRequest, v, maxKeepTokensSeconds)
	}
	return seconds, nil
}

func (m *Manager) serveTransfer(ctx context.Context, r *http.Request) (any, error) {
	var req TransferRequest
	if err := ReadJSON(r, &req); err != nil {
		return nil, err
	}
	if err := m.Transfer(ctx, req.To); err != nil {
		return nil, err
	}
	return m.Members()
}

func (m *Manager) serveCreateToken(ctx context.Context, r *http.Request) (any, error) {
	var req TokenRequest
	if err := ReadJSON(r, &req); err != nil {
		return nil, err
	}
	if req.TTLSeconds < 0 || req.TTLSeconds > int64(MaxTokenTTL/time.Second) {
		return nil, fmt.Errorf("%w: ttlSeconds %d: must be from 1 to %d", ErrBadRequest, req.TTLSeconds, int64(MaxTokenTTL/time.Second))
	}
	t, info, err := m.CreateToken(ctx, time.Duration(req.TTLSeconds)*time.Second, req.Uses, req.Note)
	return TokenCreated{t.Reveal(), info}, err
}

// ReadJSON reads a bounded body of one value with known fields only. Errors: ErrBadRequest.
func ReadJSON(r *http.Request, to any) error {
	data, err := io.ReadAll(io.LimitReader(r.Body, maxAdminBody+1))
	if err != nil {
		return fmt.Errorf("%w: %w", ErrBadRequest, err)
	}
	if len(data) > maxAdminBody {
		return fmt.Errorf("%w: body of more than %d bytes", ErrBadRequest, maxAdminBody)
	}
	return decodeJSON(data, to)
}

// answer writes a result or an error.
func answer(w http.ResponseWriter, out any, err error) {
	h := w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("Cache-Control", "no-store")
	code := http.StatusOK
	if err != nil {
		e := errorBody{Error: err.Error()}
		code = http.StatusInternalServerError
		for _, k := range httpErrors {
			if errors.Is(err, k.err) {
				code, e.Code = k.status, k.code
				break
			}
		}
		if code == http.StatusServiceUnavailable || code == http.StatusTooManyRequests {
			h.Set("Retry-After", "1")
		}
		out = e
	}
	if out == nil {
		w.WriteHeader(http.StatusNoContent)
		return
	}
	data, err := json.Marshal(out)
	if err != nil {
		w.WriteHeader(http.StatusInternalServerError)
		return
	}
	w.WriteHeader(code)
	_, _ = w.Write(append(data, '\n')) // the client may be gone
}
