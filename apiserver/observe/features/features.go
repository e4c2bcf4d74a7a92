// Package features are the feature gates of this server, under upstream's names and
// with upstream's rules: alpha ones are off, beta ones on, and what is generally
// available is locked. A gate is here only if something here depends on it, or if
// what it stands for is always on.
package features

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/component-base/featuregate"
)

// The gates that change something. Their state is upstream's in 1.36.
const (
	// APIResponseCompression compresses long answers for clients that accept it.
	APIResponseCompression featuregate.Feature = "APIResponseCompression"
	// ClusterTrustBundle lets ClusterTrustBundles be served.
	ClusterTrustBundle featuregate.Feature = "ClusterTrustBundle"
	// ComponentFlagz and ComponentStatusz serve /flagz and /statusz.
	ComponentFlagz   featuregate.Feature = "ComponentFlagz"
	ComponentStatusz featuregate.Feature = "ComponentStatusz"
	// ManifestBasedAdmissionControlConfig lets admission policies and webhooks come
	// from files.
	ManifestBasedAdmissionControlConfig featuregate.Feature = "ManifestBasedAdmissionControlConfig"
	// OpenAPIEnums publishes the values that a field may have.
	OpenAPIEnums featuregate.Feature = "OpenAPIEnums"
	// StorageVersionHash is in discovery.
	StorageVersionHash featuregate.Feature = "StorageVersionHash"
	// UnauthenticatedHTTP2DOSMitigation ends an HTTP/2 connection after a request of
	// nobody.
	UnauthenticatedHTTP2DOSMitigation featuregate.Feature = "UnauthenticatedHTTP2DOSMitigation"
	// WatchList lets a watch begin with the state (sendInitialEvents).
	WatchList featuregate.Feature = "WatchList"
)

var alpha = featuregate.FeatureSpec{PreRelease: featuregate.Alpha}
var beta = featuregate.FeatureSpec{Default: true, PreRelease: featuregate.Beta}
var betaOff = featuregate.FeatureSpec{PreRelease: featuregate.Beta}
var locked = featuregate.FeatureSpec{Default: true, PreRelease: featuregate.GA, LockToDefault: true}

var known = map[featuregate.Feature]featuregate.FeatureSpec{
	APIResponseCompression:              beta,
	ClusterTrustBundle:                  betaOff,
	ComponentFlagz:                      beta,
	ComponentStatusz:                    beta,
	ManifestBasedAdmissionControlConfig: alpha,
	OpenAPIEnums:                        beta,
	StorageVersionHash:                  beta,
	UnauthenticatedHTTP2DOSMitigation:   beta,
	WatchList:                           beta,
	// Always on here, as there.
	"ConsistentListFromCache":           locked,
	"ResilientWatchCacheInitialization": locked,
	"RetryGenerateName":                 locked,
	"StreamingCollectionEncodingToJSON": locked,
}

// Gates are set once, before the server starts, and read by everybody after.
type Gates struct {
	gates featuregate.MutableFeatureGate
}

// New returns the gates as settings say: NAME=true|false, AllAlpha and AllBeta
// included. An unknown name and a change of a locked gate are errors.
func New(settings []string) (*Gates, error) { return with(known, settings) }

func with(specs map[featuregate.Feature]featuregate.FeatureSpec, settings []string) (*Gates, error) {
	g := featuregate.NewFeatureGate()
	if err := g.Add(specs); err != nil {
		return nil, fmt.Errorf("feature-gates: %w", err)
	}
	if err := g.Set(strings.Join(settings, ",")); err != nil {
		return nil, fmt.Errorf("feature-gates: %w", err)
	}
	return &Gates{g}, nil
}

// Enabled reports whether a gate is open.
func (g *Gates) Enabled(f featuregate.Feature) bool { return g.gates.Enabled(f) }

// Names lists the gates that can be set, sorted.
func Names() []string {
	var out []string
	for f, spec := range known {
		if !spec.LockToDefault {
			out = append(out, string(f))
		}
	}
	slices.Sort(out)
	return out
}

// State of a gate, for metrics and people.
type State struct {
	Name    string
	Stage   string // ALPHA, BETA, DEPRECATED, or empty for what is generally available
	Enabled bool
}

// All returns the state of every gate, sorted by name.
func (g *Gates) All() []State {
	var out []State
	for f, spec := range g.gates.GetAll() {
		out = append(out, State{string(f), string(spec.PreRelease), g.gates.Enabled(f)})
	}
	slices.SortFunc(out, func(a, b State) int { return strings.Compare(a.Name, b.Name) })
	return out
}
