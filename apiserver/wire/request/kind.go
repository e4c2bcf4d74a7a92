package request

import (
	"strings"
	"time"
)

// Kind is what a request is counted under. For paths that are no
// resource only Verb and Path's first segment (as Subresource "/livez") are set.
type Kind struct {
	Verb        string // get, list, watch, create, ...; the method in lower case for other paths
	Group       string
	Version     string
	Resource    string // empty for unknown resources: clients must not invent series
	Subresource string
	Scope       string // cluster, namespace, resource, or empty
	Component   string // "apiserver"
	DryRun      bool
	LongRunning bool
}

// End is how a request ended.
type End struct {
	Code          int
	Duration      time.Duration
	RequestBytes  int64
	ResponseBytes int64
}

// FirstSegment bounds what paths are counted under.
func FirstSegment(path string) string {
	first, _, _ := strings.Cut(strings.TrimPrefix(path, "/"), "/")
	switch first {
	case "api", "apis", "openapi", "version", "livez", "readyz", "healthz", "metrics", "flagz", "statusz", ".well-known", "openid", "quorate", "debug":
		return "/" + first
	}
	return ""
}
