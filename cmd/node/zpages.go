package main

import (
	"fmt"
	"net/http"
	"time"

	"github.com/quorate/quorate/apiserver/features"
	"github.com/quorate/quorate/apiserver/kinds"
	"github.com/quorate/quorate/apiserver/zpages"
	"github.com/spf13/pflag"
)

// classified are the flags whose values nobody is shown.
var classified = map[string]bool{"join-token": true}

// zpages are /flagz and /statusz, as far as their gates are open.
func (n *node) zpages(version string) http.Handler {
	mux := http.NewServeMux()
	if n.features.Enabled(features.ComponentFlagz) {
		mux.Handle("/flagz", zpages.Flagz(n.cfg.values()))
	}
	if n.features.Enabled(features.ComponentStatusz) {
		mux.Handle("/statusz", zpages.Statusz(time.Now(), version, fmt.Sprintf("1.%d", kinds.Minor),
			[]string{"/healthz", "/livez", "/metrics", "/readyz", "/version"}))
	}
	return mux
}

// values are the settings as text, without those that are secret.
func (c *Config) values() map[string]string {
	out := map[string]string{}
	if c.set == nil {
		return out
	}
	c.set.VisitAll(func(f *pflag.Flag) {
		out[f.Name] = f.Value.String()
		if classified[f.Name] && out[f.Name] != "" {
			out[f.Name] = "CLASSIFIED"
		}
	})
	return out
}
