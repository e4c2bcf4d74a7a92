package node

import (
	"context"
	"log/slog"
	"net/http"
	"net/http/pprof"
	"strings"

	"github.com/quorate/quorate/apiserver/auth"
	"github.com/quorate/quorate/apiserver/egress/tunnel"
	"github.com/quorate/quorate/apiserver/status"
	"github.com/quorate/quorate/internal/backup"
	"github.com/quorate/quorate/internal/process"
	"github.com/quorate/quorate/membership"
)

const profilesPath = "/debug/pprof/"

// ownPaths are those that are not Kubernetes'. Who may use which is a matter of roles.
func (n *Node) ownPaths() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("/", status.PlainNotFound)
	mux.Handle(membership.AdminPath, noted(n.log, n.manager.AdminHandler(n.admissionRoutes()...)))
	mux.Handle(process.Path, process.Serve(n.cfg.Name, n.cfg.Version))
	mux.HandleFunc(backup.Path, serveAtMost(backupsAtOnce, "backups", n.saveSnapshot))
	n.serveTunnels(mux)
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
