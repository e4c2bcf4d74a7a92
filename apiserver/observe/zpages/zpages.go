// Package zpages serves /flagz and /statusz: what the process was told, and what it
// is, for people and, in the kinds Flagz and Statusz of config.k8s.io/v1beta1, for
// programs. Upstream's own package is not used: it brings a dozen modules for tracing
// along.
package zpages

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/munnerz/goautoneg"
)

// component is what kube-apiserver calls itself here.
const component = "apiserver"

const group, version = "config.k8s.io", "v1beta1"

// warning is upstream's, which keeps people from parsing the text.
const warning = "Warning: This endpoint is not meant to be machine parseable, has no formatting compatibility guarantees and is for debugging purposes only.\n"

type meta struct {
	Name string `json:"name"`
}

type flags struct {
	Kind       string            `json:"kind"`
	APIVersion string            `json:"apiVersion"`
	Metadata   meta              `json:"metadata"`
	Flags      map[string]string `json:"flags,omitempty"`
}

// Flagz serves flags by name. Secret values must not be among them. The map is not
// to be changed.
func Flagz(values map[string]string) http.Handler {
	object := flags{"Flagz", group + "/" + version, meta{component}, values}
	return page("Flagz", func() any { return object }, func() string {
		var b strings.Builder
		for _, name := range slices.Sorted(maps.Keys(values)) {
			fmt.Fprintf(&b, "%s=%s\n", name, values[name])
		}
		return b.String()
	})
}

type status struct {
	Kind             string    `json:"kind"`
	APIVersion       string    `json:"apiVersion"`
	Metadata         meta      `json:"metadata"`
	StartTime        time.Time `json:"startTime"`
	UptimeSeconds    int64     `json:"uptimeSeconds"`
	GoVersion        string    `json:"goVersion"`
	BinaryVersion    string    `json:"binaryVersion"`
	EmulationVersion string    `json:"emulationVersion,omitempty"`
	Paths            []string  `json:"paths"`
}

// Statusz serves what a process is: binary is its version, emulation the version of
// the API ("1.36"), paths where else to look.
func Statusz(started time.Time, binary, emulation string, paths []string) http.Handler {
	now := func() status {
		return status{"Statusz", group + "/" + version, meta{component}, started.UTC().Truncate(time.Second),
			int64(time.Since(started).Seconds()), runtime.Version(), binary, emulation, paths}
	}
	return page("Statusz", func() any { return now() }, func() string {
		s := now()
		return fmt.Sprintf("\nStarted: %s\nUp: %s\nGo version: %s\nBinary version: %s\nEmulation version: %s\nPaths: %s\n",
			s.StartTime.Format(time.UnixDate), time.Duration(s.UptimeSeconds)*time.Second, s.GoVersion, s.BinaryVersion,
			s.EmulationVersion, strings.Join(s.Paths, " "))
	})
}

// page negotiates between the text and the object.
func page(kind string, object func() any, text func() string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asObject, ok := negotiate(r.Header.Get("Accept"), kind)
		switch {
		case r.Method != http.MethodGet && r.Method != http.MethodHead:
			w.Header().Set("Allow", "GET, HEAD")
			http.Error(w, "405 method not allowed", http.StatusMethodNotAllowed)
		case !ok:
			http.Error(w, "only the following media types are accepted: text/plain, application/json;v="+version+";g="+group+";as="+kind, http.StatusNotAcceptable)
		case asObject:
			b, err := json.Marshal(object())
			if err != nil {
				http.Error(w, err.Error(), http.StatusInternalServerError)
				return
			}
			w.Header().Set("Content-Type", "application/json")
			_, _ = w.Write(append(b, '\n'))
		default:
			w.Header().Set("Content-Type", "text/plain; charset=utf-8")
			w.Header().Set("X-Content-Type-Options", "nosniff")
			fmt.Fprintf(w, "\n%s %s\n%s%s", component, strings.ToLower(kind), warning, text())
		}
	})
}

// negotiate takes text where anything will do, and JSON only where the kind is named.
func negotiate(accept, kind string) (asObject, ok bool) {
	if strings.TrimSpace(accept) == "" {
		return false, true
	}
	for _, c := range goautoneg.ParseAccept(accept) {
		switch {
		case c.Type == "*" && c.SubType == "*", c.Type == "text" && (c.SubType == "plain" || c.SubType == "*"):
			return false, true
		case c.Type == "application" && c.SubType == "json" && c.Params["as"] == kind && c.Params["g"] == group && c.Params["v"] == version:
			return true, true
		}
	}
	return false, false
}
