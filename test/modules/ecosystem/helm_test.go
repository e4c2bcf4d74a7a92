package ecosystem

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/quorate/quorate/test/harness/cluster"
)

// helm runs Helm for one release in a namespace of its own.
type helm struct {
	*turns
	binary  string
	home    string
	ns      string
	release string
	applies bool // on the server, not on the client
}

// command is Helm for the node whose turn it is, not started yet.
func (h *helm) command(ctx context.Context, args ...string) (*exec.Cmd, *cluster.Node) {
	n := h.node()
	cmd := exec.CommandContext(ctx, h.binary, append([]string{"--kubeconfig", h.c.Kubeconfig, "--kube-context", "quorate-" + n.Name, "-n", h.ns}, args...)...)
	cmd.Env = []string{"HOME=" + h.home, "PATH=" + os.Getenv("PATH")}
	cmd.WaitDelay = time.Second
	return cmd, n
}

// try runs a command to its end.
func (h *helm) try(t *testing.T, args ...string) cluster.Output {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cmd, n := h.command(ctx, args...)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) || ctx.Err() != nil {
		t.Fatalf("helm %q (%s): %v\n%s", args, n.Name, err, stderr.String())
	}
	return cluster.Output{Stdout: stdout.String(), Stderr: stderr.String(), Code: cmd.ProcessState.ExitCode()}
}

// run is try for what must succeed.
func (h *helm) run(t *testing.T, args ...string) string {
	t.Helper()
	out := h.try(t, args...)
	if out.Code != 0 {
		t.Fatalf("helm %q: exit code %d\n%s%s", args, out.Code, out.Stdout, out.Stderr)
	}
	return out.Stdout
}

// chart is the command that installs or renders the chart, or upgrades to it, with
// values.
func (h *helm) chart(verb string, set string, more ...string) []string {
	chart, err := filepath.Abs("testdata/mill")
	if err != nil {
		panic(err)
	}
	args := append([]string{verb, h.release, chart, "--set", set}, more...)
	if verb == "install" && h.isFour() {
		args = append(args, fmt.Sprintf("--server-side=%v", h.applies))
	}
	return args
}

func (h *helm) isFour() bool { return !strings.HasSuffix(h.binary, "-3") }

// field is a field of an object of the release.
func (h *helm) field(t *testing.T, object, path string) string {
	t.Helper()
	return h.kubectl(t, "-n", h.ns, "get", object, "-o", "jsonpath="+path)
}

func (h *helm) expect(t *testing.T, object, path, want string) {
	t.Helper()
	if got := h.field(t, object, path); got != want {
		t.Errorf("%s %s is %q, want %q", object, path, got, want)
	}
}

// stands checks that everything in the release's manifest is in the cluster as it
// stands there.
func (h *helm) stands(t *testing.T) {
	t.Helper()
	manifest := h.run(t, "get", "manifest", h.release)
	out := h.node().TryKubectl(t, nil, manifest, "diff", "--server-side", "--force-conflicts", "--field-manager=comparison", "-n", h.ns, "-f", "-")
	if out.Code != 0 {
		t.Errorf("the cluster is not as the manifest says: exit code %d\n%s%s", out.Code, out.Stdout, out.Stderr)
	}
}

// history is the status of every revision, oldest first.
func (h *helm) history(t *testing.T) string {
	t.Helper()
	var revisions []struct {
		Revision int
		Status   string
	}
	raw := h.run(t, "history", h.release, "-o", "json")
	noError(t, json.Unmarshal([]byte(raw), &revisions))
	var all []string
	for i, r := range revisions {
		if r.Revision != i+1 {
			t.Errorf("revision %d is the entry %d of the history", r.Revision, i+1)
		}
		all = append(all, r.Status)
	}
	return strings.Join(all, " ")
}

func (h *helm) expectHistory(t *testing.T, want string) {
	t.Helper()
	if got := h.history(t); got != want {
		t.Errorf("the history is %q, want %q", got, want)
	}
}

// versions are the resourceVersions of everything in the namespace that the
// release may touch.
func (h *helm) versions(t *testing.T) string {
	t.Helper()
	return h.kubectl(t, "-n", h.ns, "get", "deployments,services,configmaps,secrets,serviceaccounts,roles,rolebindings,ingresses,hpa,pdb,stones",
		"-o", `jsonpath={range .items[*]}{.kind}/{.metadata.name} {.metadata.resourceVersion}{"\n"}{end}`)
}

// binary is a program in the repository's bin, or the one that a variable names.
func binary(t *testing.T, variable, name string) string {
	t.Helper()
	path := os.Getenv(variable)
	if path == "" {
		path = filepath.Join("..", "..", "..", "bin", name)
	}
	path, err := filepath.Abs(path)
	noError(t, err)
	if _, err := os.Stat(path); err != nil {
		t.Fatalf("%v: run 'make helms' or set %s", err, variable)
	}
	return path
}

// TestHelm takes a chart through the life of a release with Helm 4, which applies
// on the server or on the client, and Helm 3. Every command goes through another
// node; the leader is killed while the chart is installed.
func TestHelm(t *testing.T) {
	c := cluster.Start(t, 3)
	for _, x := range []struct {
		name, variable, binary string
		applies                bool
	}{
		{"server", "HELM", "helm", true},
		{"client", "HELM", "helm", false},
		{"three", "HELM3", "helm-3", false},
	} {
		t.Run(x.name, func(t *testing.T) {
			if x.name == "client" {
				onlyInFull(t)
			}
			h := &helm{turns: &turns{c: c}, binary: binary(t, x.variable, x.binary), home: t.TempDir(), ns: "helm-" + x.name, release: "mill", applies: x.applies}
			helmLife(t, h)
		})
	}
}

func helmLife(t *testing.T, h *helm) {
	cluster.Namespace(t, h.node(), h.ns) // what controllers write into it must not look like Helm's
	helmDryRun(t, h)
	helmInstall(t, h)
	h.stands(t)
	h.expectHistory(t, "deployed")

	// Another node is the leader now; the dead one is still dead.
	before := h.field(t, "deployment/mill", "{.metadata.uid}")
	h.run(t, h.chart("upgrade", "replicas=3,flour=rye,cellar=true")...)
	h.expect(t, "deployment/mill", "{.spec.replicas} {.metadata.uid}", "3 "+before)
	h.expect(t, "configmap/mill", "{.data.flour}", "rye")
	h.expect(t, "configmap/mill-cellar", "{.data.sacks}", "12")
	h.expect(t, "configmap/mill-before", "{.data.revision}", "2")
	h.expect(t, "hpa/mill", "{.spec.maxReplicas}", "6")
	h.stands(t)
	h.revive(t)

	// Nothing changes: Helm may write its own record and the hook only.
	versions := h.versions(t)
	h.run(t, h.chart("upgrade", "replicas=3,flour=rye,cellar=true", "--no-hooks")...)
	if after := ofRelease(h.versions(t)); after != ofRelease(versions) {
		t.Errorf("an upgrade that changes nothing has written:\n%s\nbefore:\n%s", after, versions)
	}

	h.run(t, "rollback", h.release, "1")
	h.expect(t, "deployment/mill", "{.spec.replicas} {.metadata.uid}", "2 "+before)
	h.expect(t, "configmap/mill", "{.data.flour}", "wheat")
	if left := h.kubectl(t, "-n", h.ns, "get", "configmap/mill-cellar", "--ignore-not-found", "-o", "name"); left != "" {
		t.Errorf("the rollback leaves %s", left)
	}
	h.stands(t)
	h.expectHistory(t, "superseded superseded superseded deployed")

	helmConflict(t, h)
	helmRefused(t, h)
	helmReads(t, h)
	helmEnd(t, h)
	helmTemplate(t, h)
}

// ofRelease leaves Helm's records out of what versions returns.
func ofRelease(versions string) string {
	var out []string
	for _, line := range strings.Split(versions, "\n") {
		if !strings.HasPrefix(line, "Secret/sh.helm.release") {
			out = append(out, line)
		}
	}
	return strings.Join(out, "\n")
}

// helmDryRun renders with what the cluster knows, and writes nothing. The chart's
// definition must be there for it; Helm itself installs it later.
func helmDryRun(t *testing.T, h *helm) {
	const definition = "testdata/mill/crds/stones.yaml"
	h.kubectl(t, "apply", "-f", definition)
	h.kubectl(t, "wait", "--for=condition=Established", "crd/stones.mill.example.com", "--timeout=20s")
	h.caughtUp(t)
	everything := func() string {
		return h.kubectl(t, "get", "configmaps,secrets,deployments,stones,clusterroles", "-A", "-o", "name")
	}
	before := everything()
	out := h.run(t, h.chart("install", "replicas=2", "--dry-run=server")...)
	uid := h.kubectl(t, "get", "namespace", h.ns, "-o", "jsonpath={.metadata.uid}")
	if !strings.Contains(out, uid) {
		t.Errorf("a dry run on the server does not look up the namespace's uid %s:\n%s", uid, out)
	}
	if after := everything(); after != before {
		t.Errorf("a dry run has written:\n%s\nbefore:\n%s", after, before)
	}
	h.kubectl(t, "delete", "-f", definition)
}

// helmInstall kills the leader when the first object of the chart is there, its
// definition, and expects Helm not to notice.
func helmInstall(t *testing.T, h *helm) {
	leader := h.c.Leader(t)
	for h.c.Nodes()[h.next%len(h.c.Nodes())] == leader {
		h.next++
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cmd, through := h.command(ctx, h.chart("install", "replicas=2")...)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	noError(t, cmd.Start())
	cluster.Await(t, 30*time.Second, "the definition of the chart", func() string {
		_, answer, err := through.Get(t, "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/stones.mill.example.com")
		if err != nil || answer.StatusCode != 200 {
			return fmt.Sprintf("%v", err)
		}
		return ""
	})
	killed := time.Now()
	h.dead = leader
	h.c.Kill(t, leader)
	err := cmd.Wait()
	t.Logf("helm install through %s went on for %s after the leader was killed", through.Name, time.Since(killed).Round(time.Millisecond))
	if err != nil {
		t.Fatalf("helm install through %s while the leader is killed: %v\n%s", through.Name, err, out.String())
	}
	for _, want := range []string{"STATUS: deployed", "mill grinds wheat with 2 stones on Kubernetes 1.", "It has stones."} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("helm install does not say %q:\n%s", want, out.String())
		}
	}
	h.expect(t, "configmap/mill-before", "{.data.revision}", "1")
	h.expect(t, "stone/mill", "{.spec.furrows[*].depth}", "3 5")
	h.expect(t, "secret/mill", "{.data.password}", "Z3JpbmQ=")
}

// helmConflict lets somebody else take a field: Helm that applies on the server
// must name him, and take the field back when it is told to. Otherwise it patches.
func helmConflict(t *testing.T, h *helm) {
	const theirs = `{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"mill"},"spec":{"replicas":7}}`
	h.feed(t, theirs, "apply", "--server-side", "--force-conflicts", "--field-manager=autoscaler", "-n", h.ns, "-f", "-")
	out := h.try(t, h.chart("upgrade", "replicas=4")...)
	if h.applies {
		if out.Code == 0 || !strings.Contains(out.Stderr, `conflict with "autoscaler"`) || !strings.Contains(out.Stderr, ".spec.replicas") {
			t.Errorf("an upgrade against another manager: exit code %d\n%s%s", out.Code, out.Stdout, out.Stderr)
		}
		h.expect(t, "deployment/mill", "{.spec.replicas}", "7")
		h.expectHistory(t, "superseded superseded superseded deployed failed")
		h.run(t, h.chart("upgrade", "replicas=4", "--force-conflicts")...)
		h.expectHistory(t, "superseded superseded superseded superseded failed deployed")
	} else if out.Code != 0 {
		t.Errorf("an upgrade that patches: exit code %d\n%s%s", out.Code, out.Stdout, out.Stderr)
	}
	h.expect(t, "deployment/mill", "{.spec.replicas}", "4")
	h.stands(t)
}

// helmRefused upgrades to what the server refuses, and goes back.
func helmRefused(t *testing.T, h *helm) {
	out := h.try(t, h.chart("upgrade", "port=70000")...)
	const want = "spec.template.spec.containers[0].ports[0].containerPort: Invalid value: 70000: must be between 1 and 65535, inclusive"
	if out.Code == 0 || !strings.Contains(out.Stderr, want) {
		t.Errorf("an invalid upgrade: exit code %d\n%s%s\nwant %s", out.Code, out.Stdout, out.Stderr, want)
	}
	if got := h.history(t); !strings.HasSuffix(got, "deployed failed") {
		t.Errorf("the history is %q after a failed upgrade", got)
	}
	h.run(t, "rollback", h.release)
	h.expect(t, "deployment/mill", "{.spec.replicas} {.spec.template.spec.containers[0].ports[0].containerPort}", "4 8080")
	h.stands(t)
}

// helmReads asks for everything that can be asked of a release.
func helmReads(t *testing.T, h *helm) {
	for _, x := range []struct {
		args []string
		want string
	}{
		{[]string{"list", "-o", "json"}, `"name":"mill","namespace":"` + h.ns + `"`},
		{[]string{"list", "-A", "--filter", "mill"}, "mill-1.2.3"},
		{[]string{"status", h.release}, "STATUS: deployed"},
		{[]string{"get", "values", h.release, "--all"}, "flour: wheat"},
		{[]string{"get", "hooks", h.release}, "name: mill-after"},
		{[]string{"get", "notes", h.release}, "mill grinds wheat with 4 stones"},
		{[]string{"get", "metadata", h.release}, "STATUS: deployed"},
		{[]string{"get", "values", h.release, "--revision", "2"}, "flour: rye"},
	} {
		if out := h.run(t, x.args...); !strings.Contains(out, x.want) {
			t.Errorf("helm %q says\n%s\nwithout %s", x.args, out, x.want)
		}
	}
}

// helmEnd uninstalls. What is in crds stays, and so does the last hook.
func helmEnd(t *testing.T, h *helm) {
	h.run(t, "uninstall", h.release, "--keep-history")
	if got := h.history(t); !strings.HasSuffix(got, "uninstalled") {
		t.Errorf("the history is %q after uninstall", got)
	}
	left := func() string {
		return h.kubectl(t, "-n", h.ns, "get", "deployments,services,configmaps,secrets,serviceaccounts,roles,rolebindings,ingresses,hpa,pdb,stones,clusterroles,clusterrolebindings",
			"-l", "app.kubernetes.io/instance=mill", "-o", "name", "--ignore-not-found")
	}
	cluster.Await(t, 10*time.Second, "the release is gone", left)
	h.expect(t, "configmap/mill-after", "{.metadata.name}", "mill-after")
	h.run(t, "uninstall", h.release)
	if out := h.try(t, "status", h.release); out.Code == 0 || !strings.Contains(out.Stderr, "release: not found") {
		t.Errorf("status after uninstall: exit code %d\n%s%s", out.Code, out.Stdout, out.Stderr)
	}
	if all := h.kubectl(t, "-n", h.ns, "get", "secrets", "-o", "name"); all != "" {
		t.Errorf("left of the release's history: %s", all)
	}
}

// helmTemplate applies what Helm renders with kubectl, lets Helm take it over, and
// removes the definition at the end, so that the next one installs it.
func helmTemplate(t *testing.T, h *helm) {
	rendered := h.run(t, h.chart("template", "replicas=2", "--no-hooks")...)
	h.feed(t, rendered, "apply", "--server-side", "-n", h.ns, "-f", "-")
	if out := h.node().TryKubectl(t, nil, rendered, "diff", "--server-side", "-n", h.ns, "-f", "-"); out.Code != 0 {
		t.Errorf("diff right after apply: exit code %d\n%s%s", out.Code, out.Stdout, out.Stderr)
	}
	if out := h.try(t, h.chart("install", "replicas=5")...); out.Code == 0 || !strings.Contains(out.Stderr, "invalid ownership metadata") {
		t.Errorf("install over somebody else's objects: exit code %d\n%s%s", out.Code, out.Stdout, out.Stderr)
	}
	takeover := []string{"--take-ownership"}
	if h.applies {
		takeover = append(takeover, "--force-conflicts")
	}
	h.run(t, h.chart("install", "replicas=5", takeover...)...)
	h.expect(t, "deployment/mill", "{.spec.replicas}", "5")
	h.stands(t)
	h.run(t, "uninstall", h.release)
	h.kubectl(t, "delete", "crd", "stones.mill.example.com")
	h.kubectl(t, "delete", "namespace", h.ns)
}
