package ecosystem

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/quorate/quorate/test/harness/cluster"
)

// configMaps are manifests of ConfigMaps, with labels if there are some.
func configMaps(labels string, names ...string) string {
	var b strings.Builder
	for _, name := range names {
		fmt.Fprintf(&b, "---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: %s, labels: {%s}}\ndata: {k: v}\n", name, labels)
	}
	return b.String()
}

func names(t *testing.T, r *turns, args ...string) string {
	t.Helper()
	return strings.Join(strings.Fields(r.kubectl(t, append([]string{"get", "-o", "name"}, args...)...)), " ")
}

// TestApplySets prunes with kubectl's apply sets, whose parent is a Secret, a
// ConfigMap or a custom resource, on the server and on the client. The leader is
// killed between an apply and the next one.
func TestApplySets(t *testing.T) {
	r := &turns{c: cluster.Start(t, 3)}
	const definition = `apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: bundles.sets.example.com, labels: {applyset.kubernetes.io/is-parent-type: "true"}}
spec:
  group: sets.example.com
  scope: Cluster
  names: {plural: bundles, kind: Bundle}
  versions: [{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object}}}]
`
	r.feed(t, definition, "apply", "-f", "-")
	r.kubectl(t, "wait", "--for=condition=Established", "crd/bundles.sets.example.com", "--timeout=20s")
	r.caughtUp(t)
	for i, x := range []struct {
		name, parent string
		flags        []string
	}{
		{"secret", "secrets/set", []string{"--server-side"}},
		{"configmap", "configmaps/set", nil},
		{"custom", "bundles.sets.example.com/set", []string{"--server-side"}},
	} {
		t.Run(x.name, func(t *testing.T) {
			ns := "set-" + x.name
			r.kubectl(t, "create", "namespace", ns)
			r.kubectl(t, "create", "namespace", ns+"-more")
			apply := func(manifests, parent string) cluster.Output {
				t.Helper()
				args := append([]string{"apply", "--prune", "--applyset=" + parent, "-f", "-"}, x.flags...)
				if x.name == "custom" {
					// The parent has no namespace: objects say theirs.
					manifests = strings.ReplaceAll(manifests, "metadata: {name: ", "metadata: {namespace: "+ns+", name: ")
				} else {
					args = append(args, "-n", ns)
				}
				return r.node().TryKubectl(t, []string{"KUBECTL_APPLYSET=true"}, manifests, args...)
			}
			expect := func(out cluster.Output, fragments ...string) {
				t.Helper()
				for _, f := range fragments {
					if out.Code != 0 || !strings.Contains(out.Stdout, f) {
						t.Errorf("exit code %d, without %q:\n%s%s", out.Code, f, out.Stdout, out.Stderr)
					}
				}
			}
			if x.name == "custom" {
				if out := apply(configMaps("", "a"), x.parent); out.Code == 0 || !strings.Contains(out.Stderr, "custom resource ApplySet parents cannot be created automatically") {
					t.Errorf("a custom parent that is not there: %d %s", out.Code, out.Stderr)
				}
				r.feed(t, "apiVersion: sets.example.com/v1\nkind: Bundle\nmetadata: {name: set, annotations: {applyset.kubernetes.io/tooling: kubectl/v1.36, applyset.kubernetes.io/contains-group-kinds: \"\"}}\n", "create", "-f", "-")
				// kubectl wants the label, and says what it should be.
				out := apply(configMaps("", "a"), x.parent)
				_, id, _ := strings.Cut(out.Stderr, "applyset.kubernetes.io/id")
				if out.Code == 0 || id == "" {
					t.Fatalf("a parent without its label: %d %s", out.Code, out.Stderr)
				}
				r.kubectl(t, "label", "bundle", "set", "applyset.kubernetes.io/id=wrong")
				out = apply(configMaps("", "a"), x.parent)
				_, id, _ = strings.Cut(out.Stderr, "want: ")
				id, _, _ = strings.Cut(id, ")")
				if out.Code == 0 || id == "" {
					t.Fatalf("a parent with a wrong label: %d %s", out.Code, out.Stderr)
				}
				r.kubectl(t, "label", "--overwrite", "bundle", "set", "applyset.kubernetes.io/id="+id)
			}
			first, pruned, where := []string{"configmap/a", "configmap/c", "role.rbac.authorization.k8s.io/r"}, []string{"configmap/b pruned", "role.rbac.authorization.k8s.io/r pruned"}, "ConfigMap"
			elsewhere := ""
			if x.name == "custom" {
				elsewhere = strings.Replace(configMaps("", "far"), "{name: far", "{namespace: "+ns+"-more, name: far", 1)
				first, pruned, where = append(first, "configmap/far"), append(pruned, "configmap/far pruned"), "ConfigMap "+ns
			}
			role := "---\napiVersion: rbac.authorization.k8s.io/v1\nkind: Role\nmetadata: {name: r}\nrules: []\n"
			expect(apply(configMaps("", "a", "b", "c")+role+elsewhere, x.parent), first...)
			r.kubectl(t, "-n", ns, "create", "configmap", "bystander")
			if i == 0 {
				r.killLeader(t)
			}
			out := apply(configMaps("", "a", "c"), x.parent)
			expect(out, pruned...)
			if i == 0 {
				r.revive(t)
			}
			parent := ""
			if x.name == "configmap" {
				parent = " configmap/set"
			}
			if got := names(t, r, "configmaps,roles", "-n", ns, "--field-selector=metadata.name!=kube-root-ca.crt"); got != "configmap/a configmap/bystander configmap/c"+parent {
				t.Errorf("left: %s", got)
			}
			if got := names(t, r, "configmaps", "-n", ns+"-more", "--field-selector=metadata.name!=kube-root-ca.crt"); got != "" {
				t.Errorf("left in the other namespace: %s", got)
			}
			if got := r.kubectl(t, "get", x.parent, "-n", ns, "-o", `jsonpath={.metadata.annotations.applyset\.kubernetes\.io/contains-group-kinds} {.metadata.annotations.applyset\.kubernetes\.io/additional-namespaces}`); strings.TrimSpace(got) != where {
				t.Errorf("the parent says %q", got)
			}
			r.kubectl(t, "delete", "namespace", ns, ns+"-more")
		})
	}
}

// TestPrune prunes by labels and an allowlist, diffs on the server, and resolves
// conflicts between managers.
func TestPrune(t *testing.T) {
	r := &turns{c: cluster.Start(t, 3)}
	const ns = "prune"
	r.kubectl(t, "create", "namespace", ns)
	prune := func(manifests string, more ...string) string {
		t.Helper()
		return r.feed(t, manifests, append([]string{"apply", "-n", ns, "--prune", "-l", "set=one", "-f", "-"}, more...)...)
	}
	// Pruning by labels looks for what kubectl has applied on the client.
	prune(configMaps("set: one", "a", "b", "c"))
	prune(configMaps("set: two", "z") + configMaps("set: one", "a", "b", "c"))
	if out := prune(configMaps("set: one", "a", "b")); !strings.Contains(out, "configmap/c pruned") || strings.Contains(out, "configmap/z") {
		t.Errorf("pruned:\n%s", out)
	}
	if out := prune(configMaps("set: one", "a"), "--prune-allowlist=core/v1/Secret"); strings.Contains(out, "pruned") {
		t.Errorf("pruned of Secrets only:\n%s", out)
	}
	if out := prune(configMaps("set: one", "a"), "--prune-allowlist=core/v1/ConfigMap"); !strings.Contains(out, "configmap/b pruned") {
		t.Errorf("pruned of ConfigMaps:\n%s", out)
	}
	if got := names(t, r, "configmaps", "-n", ns, "--field-selector=metadata.name!=kube-root-ca.crt"); got != "configmap/a" {
		t.Errorf("left: %s", got)
	}

	deployment := func(image string, replicas int) string {
		return fmt.Sprintf(`{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"d"},"spec":{"replicas":%d,"selector":{"matchLabels":{"a":"b"}},
			"template":{"metadata":{"labels":{"a":"b"}},"spec":{"containers":[{"name":"c","image":%q}]}}}}`, replicas, image)
	}
	try := func(in string, args ...string) cluster.Output {
		t.Helper()
		return r.node().TryKubectl(t, nil, in, append(args, "-n", ns, "-f", "-")...)
	}
	if out := try(deployment("one", 1), "diff", "--server-side"); out.Code != 1 || !strings.Contains(out.Stdout, "+kind: Deployment") {
		t.Errorf("diff of what is not there: exit code %d\n%s%s", out.Code, out.Stdout, out.Stderr)
	}
	try(deployment("one", 1), "apply", "--server-side")
	if out := try(deployment("one", 1), "diff", "--server-side"); out.Code != 0 {
		t.Errorf("diff right after apply: exit code %d\n%s%s", out.Code, out.Stdout, out.Stderr)
	}
	out := try(deployment("two", 5), "diff", "--server-side")
	if out.Code != 1 || !strings.Contains(out.Stdout, "+  replicas: 5") || !strings.Contains(out.Stdout, "+      - image: two") {
		t.Errorf("diff: exit code %d\n%s%s", out.Code, out.Stdout, out.Stderr)
	}
	out = try(deployment("two", 5), "apply", "--server-side", "--field-manager=other")
	for _, want := range []string{`Apply failed with 2 conflicts: conflicts with "kubectl":`, "- .spec.replicas", `- .spec.template.spec.containers[name="c"].image`, "--force-conflicts"} {
		if out.Code != 1 || !strings.Contains(out.Stderr, want) {
			t.Errorf("a conflict: exit code %d, without %q\n%s", out.Code, want, out.Stderr)
		}
	}
	r.killLeader(t)
	if out := try(deployment("two", 5), "apply", "--server-side", "--field-manager=other", "--force-conflicts"); out.Code != 0 {
		t.Errorf("forced: %d %s", out.Code, out.Stderr)
	}
	// Taking the values of others is sharing: no conflict. A client-side apply may
	// follow, and the server side again.
	for _, args := range [][]string{{"apply", "--server-side"}, {"apply"}, {"apply", "--server-side"}} {
		if out := try(deployment("two", 5), args...); out.Code != 0 {
			t.Errorf("%q: exit code %d: %s", args, out.Code, out.Stderr)
		}
	}
	r.revive(t)
	cluster.Await(t, 10*time.Second, "all nodes have the same", func() string {
		for _, n := range r.c.Nodes() {
			if got := n.Kubectl(t, "-n", ns, "get", "deployment", "d", "-o", "jsonpath={.spec.replicas} {.spec.template.spec.containers[*].image}"); got != "5 two" {
				return n.Name + ": " + got
			}
		}
		return ""
	})
}
