package writes

import (
	"slices"
	"strings"
	"testing"

	"github.com/quorate/quorate/test/harness/cluster"
)

// session runs kubectl in a namespace of its own, each time at another node.
type session struct {
	t         *testing.T
	nodes     []*cluster.Node
	namespace string
	steps     int
}

func newSession(t *testing.T, namespace string) *session {
	t.Helper()
	s := &session{t: t, nodes: cluster.Shared(t).Nodes(), namespace: namespace}
	s.nodes[0].Kubectl(t, "create", "namespace", namespace)
	return s
}

func (s *session) end() { s.nodes[0].Kubectl(s.t, "delete", "namespace", s.namespace) }

func (s *session) kubectl(stdin string, args ...string) cluster.Output {
	s.t.Helper()
	s.steps++
	return s.nodes[s.steps%len(s.nodes)].TryKubectl(s.t, nil, stdin, append([]string{"-n", s.namespace}, args...)...)
}

// must fails the test unless the command succeeds and prints want.
func (s *session) must(stdin, want string, args ...string) {
	s.t.Helper()
	if out := s.kubectl(stdin, args...); out.Code != 0 || !strings.Contains(out.Stdout, want) {
		s.t.Fatalf("kubectl %s: exit code %d\n%s%s\nwant %s", strings.Join(args, " "), out.Code, out.Stdout, out.Stderr, want)
	}
}

// refused fails the test if the command succeeds, and returns what it says.
func (s *session) refused(stdin string, args ...string) string {
	s.t.Helper()
	out := s.kubectl(stdin, args...)
	if out.Code == 0 {
		s.t.Fatalf("kubectl %s was not refused:\n%s", strings.Join(args, " "), out.Stdout)
	}
	return out.Stderr
}

// managers are those of a deployment that own its replicas, a line each, with what they did.
func (s *session) managers(name string) string {
	s.t.Helper()
	out := s.kubectl("", "get", "deployment", name, "--show-managed-fields", "-o",
		`go-template={{range $m := .metadata.managedFields}}{{range $field, $_ := index $m.fieldsV1 "f:spec"}}{{if eq $field "f:replicas"}}{{$m.manager}} {{$m.operation}}{{"\n"}}{{end}}{{end}}{{end}}`)
	if out.Code != 0 {
		s.t.Fatalf("the managers of %s: %s", name, out.Stderr)
	}
	lines := strings.SplitAfter(out.Stdout, "\n")
	slices.Sort(lines)
	return strings.Join(lines, "")
}

func (s *session) own(name, want string) {
	s.t.Helper()
	if got := s.managers(name); got != want {
		s.t.Errorf("the replicas of %s belong to\n%swant\n%s", name, got, want)
	}
}

const (
	nginxYAML = `
apiVersion: apps/v1
kind: Deployment
metadata:
  name: nginx-deployment
  labels: {app: nginx}
spec:
  replicas: 3
  selector: {matchLabels: {app: nginx}}
  template:
    metadata: {labels: {app: nginx}}
    spec: {containers: [{name: nginx, image: "nginx:1.14.2"}]}
`
	nginxReplicasYAML = `
apiVersion: apps/v1
kind: Deployment
metadata: {name: nginx-deployment}
spec: {replicas: 3}
`
)

// without leaves the replicas out.
func without(manifest string) string { return strings.Replace(manifest, "  replicas: 3\n", "", 1) }

// TestHandover hands the replicas of a Deployment over to an autoscaler, as the page about
// server-side apply tells it: no step sets them to what nobody wants.
func TestHandover(t *testing.T) {
	s := newSession(t, "handover")
	defer s.end()
	const replicas = "jsonpath={.spec.replicas}"
	scale := []string{"patch", "deployment", "nginx-deployment", "--subresource=scale", "--type=merge", "--field-manager=kube-controller-manager", "-p", `{"spec":{"replicas":6}}`}
	s.must(nginxYAML, "deployment.apps/nginx-deployment serverside-applied", "apply", "--server-side", "-f", "-")
	s.own("nginx-deployment", "kubectl Apply\n")
	s.must("", "autoscaled", "autoscale", "deployment", "nginx-deployment", "--cpu-percent=50", "--min=1", "--max=10")
	s.must("", "1 10 50", "get", "hpa", "nginx-deployment", "-o", "jsonpath={.spec.minReplicas} {.spec.maxReplicas} {.spec.metrics[0].resource.target.averageUtilization}")
	// Too early: the default would come.
	s.must(without(nginxYAML), "1", "apply", "--server-side", "--dry-run=server", "-f", "-", "-o", replicas)
	// By a manager that shares them for a while.
	s.must(nginxReplicasYAML, "serverside-applied", "apply", "--server-side", "--field-manager=handover-to-hpa", "--validate=false", "-f", "-")
	s.own("nginx-deployment", "handover-to-hpa Apply\nkubectl Apply\n")
	s.must(without(nginxYAML), "3", "apply", "--server-side", "-f", "-", "-o", replicas)
	s.own("nginx-deployment", "handover-to-hpa Apply\n")
	s.must("", "patched", scale...)
	s.own("nginx-deployment", "kube-controller-manager Update\n")
	if out := s.kubectl("", "get", "deployment", "nginx-deployment", "--show-managed-fields", "-o", "yaml"); out.Code != 0 || strings.Contains(out.Stdout, "handover-to-hpa") {
		t.Errorf("the manager that owns nothing more is there: %s%s", out.Stdout, out.Stderr)
	}
	s.must(without(nginxYAML), "6", "apply", "--server-side", "-f", "-", "-o", replicas)
	// The autoscaler was first: both ways say so.
	for _, late := range [][2]string{{nginxYAML, "kubectl"}, {nginxReplicasYAML, "handover-to-hpa"}} {
		if err := s.refused(late[0], "apply", "--server-side", "--field-manager="+late[1], "-f", "-"); !strings.Contains(err, `conflict with "kube-controller-manager" with subresource "scale"`) || !strings.Contains(err, ".spec.replicas") {
			t.Errorf("%s: the conflict reads %s", late[1], err)
		}
	}
	s.must(nginxYAML, "3", "apply", "--server-side", "--force-conflicts", "-f", "-", "-o", replicas)
	s.own("nginx-deployment", "kubectl Apply\n")

	// Between users: both want the same, then one leaves it out.
	s.must(nginxReplicasYAML, "serverside-applied", "apply", "--server-side", "--field-manager=second", "-f", "-")
	s.must(without(nginxYAML), "3", "apply", "--server-side", "-f", "-", "-o", replicas)
	s.own("nginx-deployment", "second Apply\n")
	s.must("", "    manager: second\n    operation: Apply\n", "get", "deployment", "nginx-deployment", "--show-managed-fields", "-o", "yaml")
}

// TestApplyUpgrade goes from client-side apply to server-side apply and back, as the page tells it.
func TestApplyUpgrade(t *testing.T) {
	s := newSession(t, "upgrade")
	defer s.end()
	const (
		image    = "jsonpath={.spec.template.spec.containers[0].image}"
		replicas = "jsonpath={.spec.replicas}"
		applied  = `jsonpath={.metadata.annotations.kubectl\.kubernetes\.io/last-applied-configuration}`
	)
	of := func(image string) string { return strings.Replace(nginxYAML, "1.14.2", image, 1) }
	get := func(want, what string) {
		t.Helper()
		s.must("", want, "get", "deployment", "nginx-deployment", "-o", what)
	}
	s.must(nginxYAML, "created", "apply", "-f", "-")
	s.own("nginx-deployment", "kubectl-client-side-apply Update\n")
	get(`"image":"nginx:1.14.2"`, applied)
	// The manager kubectl takes over what was applied before, and with it what is left out. Others do not.
	if err := s.refused(of("1.15"), "apply", "--server-side", "--field-manager=my-manager", "-f", "-"); !strings.Contains(err, `conflict with "kubectl-client-side-apply"`) {
		t.Errorf("the conflict reads %s", err)
	}
	s.must(nginxYAML, "serverside-applied (server dry run)", "apply", "--server-side", "--field-manager=my-manager", "--dry-run=server", "-f", "-")
	s.must(of("1.15"), "serverside-applied (server dry run)", "apply", "--server-side", "--dry-run=server", "-f", "-")
	s.own("nginx-deployment", "kubectl-client-side-apply Update\n")
	s.must(of("1.15"), "serverside-applied", "apply", "--server-side", "-f", "-")
	s.own("nginx-deployment", "kubectl Apply\n")
	get("nginx:1.15", image)
	get(`"image":"nginx:1.15"`, applied)
	s.must(without(of("1.15")), "serverside-applied", "apply", "--server-side", "-f", "-")
	get("1", replicas)
	// Back: what is left out goes as well.
	s.must(of("1.16"), "configured", "apply", "-f", "-")
	get("nginx:1.16", image)
	get("3", replicas)
	s.must(without(of("1.16")), "configured", "apply", "-f", "-")
	get("1", replicas)
	// An applier on the client's side overwrites what others have written, and does not notice.
	s.must("", "image updated", "set", "image", "deployment/nginx-deployment", "nginx=nginx:2")
	s.must(of("1.16"), "configured", "apply", "-f", "-")
	get("nginx:1.16", image)
	// Who scales owns the replicas.
	s.must("", "scaled", "scale", "deployment", "nginx-deployment", "--replicas=5")
	if err := s.refused(of("1.16"), "apply", "--server-side", "-f", "-"); !strings.Contains(err, `conflict with "kubectl" with subresource "scale"`) {
		t.Errorf("the conflict reads %s", err)
	}
	// The page's object, and a List, of which kubectl makes single requests.
	s.must("{apiVersion: v1, kind: ConfigMap, metadata: {name: test-cm, labels: {test-label: test}}, data: {key: some value}}", "configmap/test-cm serverside-applied", "apply", "--server-side", "-f", "-")
	s.must("", `[{"apiVersion":"v1","fieldsType":"FieldsV1","fieldsV1":{"f:data":{"f:key":{}},"f:metadata":{"f:labels":{"f:test-label":{}}}},"manager":"kubectl","operation":"Apply","time":"`, "get", "configmap", "test-cm", "--show-managed-fields", "-o", "jsonpath={.metadata.managedFields}")
	s.must("{apiVersion: v1, kind: List, items: [{apiVersion: v1, kind: ConfigMap, metadata: {name: one}}, {apiVersion: v1, kind: ConfigMap, metadata: {name: two}}]}", "configmap/one created\nconfigmap/two created\n", "apply", "-f", "-")
	s.must("", "  kind: ConfigMap\n", "get", "configmaps", "-o", "yaml")
	s.must("", "\nkind: List\n", "get", "configmaps", "-o", "yaml")
	s.must("", "readyz check passed\n", "get", "--raw=/readyz?verbose")
}

// TestValidateFlag: kubectl's --validate is a level of the server's field validation, Strict if nothing is said.
func TestValidateFlag(t *testing.T) {
	s := newSession(t, "validate")
	defer s.end()
	const manifest = "{apiVersion: v1, kind: ConfigMap, metadata: {name: c-NAME}, dta: {k: v}}"
	for _, level := range []string{"", "--validate", "--validate=true", "--validate=strict"} {
		args := []string{"create", "-f", "-"}
		if level != "" {
			args = append(args, level)
		}
		if err := s.refused(strings.Replace(manifest, "NAME", "a", 1), args...); !strings.Contains(err, `strict decoding error: unknown field "dta"`) {
			t.Errorf("%q: %s", level, err)
		}
	}
	for name, warns := range map[string]bool{"warn": true, "ignore": false, "false": false} {
		out := s.kubectl(strings.Replace(manifest, "NAME", name, 1), "create", "-f", "-", "--validate="+name)
		if out.Code != 0 || strings.Contains(out.Stderr, `Warning: unknown field "dta"`) != warns {
			t.Errorf("--validate=%s: %d %s%s", name, out.Code, out.Stdout, out.Stderr)
		}
	}
}
