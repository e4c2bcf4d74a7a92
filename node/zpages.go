package node

import (
	"fmt"
	"net/http"
	"time"

	"github.com/quorate/quorate/apiserver/observe/features"
	"github.com/quorate/quorate/apiserver/observe/zpages"
	"github.com/quorate/quorate/apiserver/types/kinds"
)

// zpages are /flagz and /statusz, as far as their gates are open.
func (n *Node) zpages(version string) http.Handler {
	mux := http.NewServeMux()
	if n.features.Enabled(features.ComponentFlagz) {
		mux.Handle("/flagz", zpages.Flagz(n.flagz()))
	}
	if n.features.Enabled(features.ComponentStatusz) {
		mux.Handle("/statusz", zpages.Statusz(time.Now(), version, fmt.Sprintf("1.%d", kinds.Minor),
			[]string{"/healthz", "/livez", "/metrics", "/readyz", "/version"}))
	}
	return mux
}

// flagz are the settings as text.
func (n *Node) flagz() map[string]string {
	if n.cfg.Flagz == nil {
		return map[string]string{}
	}
	return n.cfg.Flagz()
}
