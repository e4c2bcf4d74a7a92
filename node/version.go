package node

import (
	"runtime/debug"
	"strings"

	"github.com/quorate/quorate/apiserver/catalog/discovery"
	"k8s.io/apimachinery/pkg/version"
)

// modulePath is where this module is in the build of a program.
const modulePath = "github.com/quorate/quorate"

// moduleVersion is the version of this module in the program's build, or "unknown".
func moduleVersion() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	for _, m := range append(info.Deps, &info.Main) {
		if m.Path == modulePath && m.Version != "" && m.Version != "(devel)" {
			return m.Version
		}
	}
	return "unknown"
}

// KubernetesVersion is the version of Kubernetes that a node serves whose Config.Version is version.
func KubernetesVersion(version string) string { return discovery.VersionInfo(version).GitVersion }

// versionInfo is what the API says of its version.
func (c *Config) versionInfo() version.Info {
	info := discovery.VersionInfo(c.Version)
	if c.GitVersion != "" {
		info.GitVersion = c.GitVersion
	}
	return info
}

// kubernetesVersion is the release of Kubernetes that is served, such as v1.36.3, whatever the build is.
func (n *Node) kubernetesVersion() string {
	release, _, _ := strings.Cut(n.cfg.versionInfo().GitVersion, "+")
	return release
}
