package discovery

import (
	"encoding/json"
	"fmt"
	"net/http"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/version"
)

// fallbackAPI is the version of k8s.io/api for binaries without build
// information. A test compares it with go.mod.
const fallbackAPI = "v0.36.3"

// VersionInfo is the version that the server reports: that of the Kubernetes
// modules it is built with, k8s.io/api v0.N.P being Kubernetes 1.N.P, with
// Quorate's own version as build metadata.
func VersionInfo(quorate string) version.Info {
	api := fallbackAPI
	info := version.Info{
		GitTreeState: "unknown",
		GoVersion:    runtime.Version(),
		Compiler:     runtime.Compiler,
		Platform:     runtime.GOOS + "/" + runtime.GOARCH,
	}
	if build, ok := debug.ReadBuildInfo(); ok {
		for _, m := range build.Deps {
			if m.Path == "k8s.io/api" {
				api = m.Version
			}
		}
		for _, s := range build.Settings {
			switch s.Key {
			case "vcs.revision":
				info.GitCommit = s.Value
			case "vcs.time":
				info.BuildDate = s.Value
			case "vcs.modified":
				info.GitTreeState = map[string]string{"true": "dirty", "false": "clean"}[s.Value]
			}
		}
	}
	minor, patch := parseAPI(api)
	info.Major, info.Minor = "1", strconv.Itoa(minor)
	info.EmulationMajor, info.EmulationMinor = info.Major, info.Minor
	info.MinCompatibilityMajor, info.MinCompatibilityMinor = info.Major, strconv.Itoa(minor-1)
	info.GitVersion = fmt.Sprintf("v1.%d.%s+quorate-%s", minor, patch, buildMetadata(quorate))
	return info
}

// parseAPI reads v0.N.P[-pre]; a version that does not parse counts as the
// fallback.
func parseAPI(v string) (minor int, patch string) {
	parts := strings.SplitN(strings.TrimPrefix(v, "v0."), ".", 2)
	if n, err := strconv.Atoi(parts[0]); err == nil && len(parts) == 2 && strings.HasPrefix(v, "v0.") {
		return n, parts[1]
	}
	if v != fallbackAPI {
		return parseAPI(fallbackAPI)
	}
	return 0, "0"
}

// buildMetadata keeps what semantic versions allow behind the plus sign.
func buildMetadata(s string) string {
	s = strings.Map(func(r rune) rune {
		switch {
		case r >= '0' && r <= '9', r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r == '.', r == '-':
			return r
		}
		return '-'
	}, strings.TrimPrefix(s, "v"))
	if s == "" {
		return "dev"
	}
	return s
}

// Version serves /version: indented JSON.
func Version(info version.Info) http.Handler {
	data, err := json.MarshalIndent(info, "", "  ")
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet && r.Method != http.MethodHead {
			w.Header().Set("Allow", "GET, HEAD")
			http.Error(w, "405: Method Not Allowed", http.StatusMethodNotAllowed)
			return
		}
		if err != nil { // a struct of strings always encodes
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(data)
	})
}
