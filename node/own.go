package node

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/pprof"
	"strings"
	"time"

	"github.com/quorate/quorate/apiserver"
	"github.com/quorate/quorate/apiserver/access/auth"
	"github.com/quorate/quorate/apiserver/backends/egress/tunnel"
	"github.com/quorate/quorate/apiserver/wire/status"
	"github.com/quorate/quorate/consistency"
	"github.com/quorate/quorate/internal/backup"
	"github.com/quorate/quorate/internal/process"
	"github.com/quorate/quorate/membership"
	"github.com/quorate/quorate/proto"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

const (
	profilesPath = "/debug/pprof/"
	// decideWithin is how long a request waits to be decided again.
	decideWithin = 10 * time.Second
)

// ownPaths are those that are not Kubernetes'. Who may use which is a matter of roles.
func (n *Node) ownPaths() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("/", status.PlainNotFound)
	mux.Handle(membership.AdminPath, noted(n.log, n.manager.AdminHandler(decideAgain, n.admission.routes()...)))
	mux.Handle(process.Path, process.Serve(n.cfg.Name, n.cfg.Version))
	mux.HandleFunc(backup.Path, serveAtMost(backupsAtOnce, "backups", n.serveBackup))
	if n.dialers.tunnels != nil { // which user may open which is decided before
		mux.Handle(tunnel.Path, ifStillAllowed(n.dialers.tunnels))
	}
	if n.cfg.Profiling {
		mux.HandleFunc(profilesPath, pprof.Index)
		mux.HandleFunc(profilesPath+"profile", pprof.Profile)
		mux.HandleFunc(profilesPath+"symbol", pprof.Symbol)
		mux.HandleFunc(profilesPath+"trace", pprof.Trace)
	}
	return mux
}

// longRunning are the own paths whose answers take as long as they take.
func longRunning(path string) bool {
	return path == backup.Path || strings.HasPrefix(path, tunnel.Path) || strings.HasPrefix(path, profilesPath)
}

// decided is the key of the revision as of which a request to an own path was allowed.
type decided struct{}

// decideAgain decides again whether a request is allowed, by all that was acknowledged. What the context that it returns
// writes is refused if roles have changed since (membershipKV). Errors: membership.ErrForbidden, ErrNoLeader, the context's.
func decideAgain(ctx context.Context) (context.Context, error) {
	at, err := apiserver.Again(ctx)
	var refused apierrors.APIStatus
	var unavailable *consistency.UnavailableError
	switch {
	case err == nil:
		return context.WithValue(ctx, decided{}, at), nil
	case errors.As(err, &refused):
		return nil, fmt.Errorf("%w: %w", membership.ErrForbidden, err)
	case errors.As(err, &unavailable):
		return nil, fmt.Errorf("%w: %w", membership.ErrNoLeader, err)
	}
	return nil, err
}

// rolesDecided names in a write the roles that its request was allowed by.
func rolesDecided(ctx context.Context, w *proto.Write) *proto.Write {
	if at, ok := ctx.Value(decided{}).(proto.Revision); ok {
		w.DecidedAt = uint64(at)
		w.Rules = proto.RuleRoles | proto.RuleClusterRoles | proto.RuleRoleBindings | proto.RuleClusterRoleBindings
	}
	return w
}

// ifStillAllowed serves what is more than a moment's, or secret, if the request is still allowed by all that was
// acknowledged.
func ifStillAllowed(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), decideWithin)
		_, err := decideAgain(ctx)
		cancel()
		switch {
		case err == nil:
			h.ServeHTTP(w, r)
		case errors.Is(err, membership.ErrForbidden):
			http.Error(w, err.Error(), http.StatusForbidden)
		default:
			w.Header().Set("Retry-After", "1")
			http.Error(w, fmt.Sprintf("this node cannot know whether %s is still allowed to do this: %v", userName(r.Context()), err), http.StatusServiceUnavailable)
		}
	})
}

// noted logs what changes the cluster, or hands its secret out: members, leadership and
// join tokens.
func noted(log *slog.Logger, h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet {
			h.ServeHTTP(w, r)
			return
		}
		log.Info("administration", "method", r.Method, "path", r.URL.Path, "user", userName(r.Context()), "from", r.RemoteAddr)
		h.ServeHTTP(w, r)
	})
}

// userName names the user of a request and, if there is one, who impersonates the user.
func userName(ctx context.Context) string {
	u := auth.UserFrom(ctx)
	if u == nil {
		return ""
	}
	if by := auth.ImpersonatorFrom(ctx); by != nil {
		return u.Name + " (impersonated by " + by.Name + ")"
	}
	return u.Name
}
