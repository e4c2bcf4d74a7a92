//go:build linux

package nodes

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/quorate/quorate/internal/must"
)

// testExtensionServers runs two API servers of other projects as Pods, by their own manifests: metrics-server, which
// kubectl top asks, and the sample-apiserver with its etcd.
func testExtensionServers(t *testing.T, s *Site) {
	t.Run("Metrics", func(t *testing.T) {
		s.addImage(t, "metrics-server")
		s.applyModule(t, "metrics-server", `images: [{name: gcr.io/k8s-staging-metrics-server/metrics-server, newName: site.test/metrics-server, newTag: "1"}]
patches:
- target: {kind: Deployment}
  patch: |-
    - {op: add, path: /spec/template/spec/containers/0/args/-, value: --kubelet-insecure-tls}
    - {op: replace, path: /spec/template/spec/containers/0/imagePullPolicy, value: Never}
`)
		for _, m := range s.control {
			for _, what := range []string{"nodes", "pods"} {
				s.awaitFor(t, 2*podsWithin, fmt.Sprintf("kubectl top %s by %s", what, m.name), func() string {
					out, err := s.tryKubectl(t, "", "--server", "https://"+m.ip+":6443", "top", what, "-A")
					if what == "nodes" {
						out, err = s.tryKubectl(t, "", "--server", "https://"+m.ip+":6443", "top", what)
					}
					if err != nil || what == "nodes" && (!strings.Contains(out, "w1 ") || !strings.Contains(out, "w2 ")) {
						return out + s.kubectl(t, "get", "apiservice", "v1beta1.metrics.k8s.io", "-o", "jsonpath={.status}")
					}
					return ""
				})
			}
		}
	})
	t.Run("Sample", func(t *testing.T) {
		s.addImage(t, "sample-apiserver")
		s.addImage(t, "etcd")
		// The role in these manifests lacks the MutatingAdmissionPolicies, which the server reads since 1.36.
		s.applyModule(t, "sample-apiserver", `images:
- {name: kube-sample-apiserver, newName: site.test/sample-apiserver, newTag: "1"}
- {name: registry.k8s.io/etcd, newName: site.test/etcd, newTag: "1"}
patches:
- target: {kind: Deployment}
  patch: |-
    - {op: add, path: /spec/template/spec/containers/1/imagePullPolicy, value: Never}
- target: {kind: ClusterRole, name: aggregated-apiserver-clusterrole}
  patch: |-
    - {op: add, path: /rules/1/resources/-, value: mutatingadmissionpolicies}
    - {op: add, path: /rules/1/resources/-, value: mutatingadmissionpolicybindings}
`)
		for _, m := range s.control {
			by, name := []string{"--server", "https://" + m.ip + ":6443"}, "of-"+m.name
			flunder := fmt.Sprintf("apiVersion: wardle.example.com/v1alpha1\nkind: Flunder\nmetadata: {name: %s}\n", name)
			s.awaitFor(t, podsWithin, m.name+" takes a flunder", func() string {
				out, err := s.tryKubectl(t, flunder, append(by, "apply", "-f", "-")...)
				if err != nil {
					return out + s.kubectl(t, "get", "apiservice", "v1alpha1.wardle.example.com", "-o", "jsonpath={.status}")
				}
				return ""
			})
			s.follow(t, "of-", append(by, "get", "flunders", "-w"), 1)
			if out := s.kubectl(t, append(by, "explain", "flunder.spec")...); !strings.Contains(out, "reference") {
				t.Errorf("explain by %s: %q", m.name, out)
			}
			for _, other := range s.control {
				if out := s.kubectl(t, "--server", "https://"+other.ip+":6443", "get", "flunder", name, "-o", "name"); !strings.Contains(out, "flunder.wardle.example.com/"+name+"\n") {
					t.Errorf("by %s: %q", other.name, out)
				}
			}
		}
	})
}

// applyModule applies manifests out of a module, as people would change them for a site: an overlay.
func (s *Site) applyModule(t *testing.T, module, overlay string) {
	t.Helper()
	dir := t.TempDir()
	must.OK(t, os.CopyFS(filepath.Join(dir, "base"), os.DirFS(filepath.Join(s.bin, "manifests", module))))
	base := filepath.Join(dir, "base/kustomization.yaml")
	if _, err := os.Stat(base); err != nil {
		files, err := filepath.Glob(filepath.Join(dir, "base/*.yaml"))
		must.OK(t, err)
		var b strings.Builder
		b.WriteString("resources:\n")
		for _, f := range files {
			fmt.Fprintf(&b, "- %s\n", filepath.Base(f))
		}
		writeFile(t, base, []byte(b.String()))
	}
	writeFile(t, filepath.Join(dir, "kustomization.yaml"), []byte("resources: [base]\n"+overlay))
	s.kubectl(t, "apply", "-k", dir)
	t.Cleanup(func() { s.kubectlAtEnd(t, "delete", "-k", dir, "--wait=false", "--ignore-not-found") })
}
