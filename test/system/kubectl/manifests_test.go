package kubectl

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/quorate/quorate/internal/must"
	"github.com/quorate/quorate/test/harness/cluster"
)

// manifest returns the path of a file under testdata/manifests.
func manifest(t *testing.T, path string) string {
	t.Helper()
	path, err := filepath.Abs(filepath.Join("testdata", "manifests", path))
	must.OK(t, err)
	return path
}

// TestManifests takes manifests of other projects through their lives: applied,
// compared with what comes back, found unchanged by diff, applied again without
// a write, deleted. Every step goes through another node.
func TestManifests(t *testing.T) {
	r := &cluster.Round{Cluster: cluster.Shared(t)}
	for _, project := range []struct {
		name      string
		files     []string
		namespace string // to be made first
		// kubectl compares with the manifest by itself: it sends a patch, and says
		// "configured", where a default went into a list without merge keys
		// (rules), a number came back as a quantity, or the manifest says zero where the
		// API's types leave it out (minReadySeconds). The server must not write.
		configured []string
	}{
		{"ingress-nginx", []string{"deploy.yaml"}, "", []string{"validatingwebhookconfiguration.admissionregistration.k8s.io/ingress-nginx-admission", "deployment.apps/ingress-nginx-controller"}},
		{"descheduler", []string{"rbac.yaml", "configmap.yaml", "cronjob.yaml"}, "", nil},
		{"vertical-pod-autoscaler", []string{"vpa-rbac.yaml", "prometheus.yaml"}, "monitoring", []string{"deployment.apps/prometheus"}},
		{"kwok", []string{"fake-pod-stages.yaml"}, "", nil},
	} {
		t.Run(project.name, func(t *testing.T) {
			if project.namespace != "" {
				r.Kubectl(t, "create", "namespace", project.namespace)
				defer r.Kubectl(t, "delete", "namespace", project.namespace)
			}
			var files []string
			for _, f := range project.files {
				files = append(files, "-f", manifest(t, filepath.Join(project.name, f)))
			}
			with := func(args ...string) []string { return append(args, files...) }
			wanted := documents(t, files)

			for _, line := range lines(r.Kubectl(t, with("apply")...)) {
				if !strings.HasSuffix(line, " created") {
					t.Errorf("apply says %q, want created", line)
				}
			}
			sameObjects(t, wanted, r.Kubectl(t, with("get", "-o", "json")...))
			if out := r.Try(t, nil, with("diff")...); out.Code != 0 {
				t.Errorf("diff right after apply: exit code %d\n%s%s", out.Code, out.Stdout, out.Stderr)
			}
			before := r.Kubectl(t, with("get", "-o", "json")...)
			for _, line := range lines(r.Kubectl(t, with("apply")...)) {
				if !strings.HasSuffix(line, " unchanged") && !slices.Contains(project.configured, strings.TrimSuffix(line, " configured")) {
					t.Errorf("the second apply says %q, want unchanged", line)
				}
			}
			if after := r.Kubectl(t, with("get", "-o", "json")...); after != before {
				t.Error("an apply without a change has written")
			}
			if table := lines(r.Kubectl(t, with("get")...)); len(table) < len(wanted) {
				t.Errorf("the tables have %d lines for %d objects:\n%s", len(table), len(wanted), strings.Join(table, "\n"))
			}
			// The namespace may take its objects with it before their turn comes.
			r.Kubectl(t, with("delete", "--ignore-not-found")...)
			if left := r.Kubectl(t, with("get", "--ignore-not-found", "-o", "name")...); left != "" {
				t.Errorf("left after delete:\n%s", left)
			}
		})
	}
}

// documents reads the objects of YAML files, given as arguments of kubectl.
func documents(t *testing.T, files []string) map[string]map[string]any {
	t.Helper()
	out := map[string]map[string]any{}
	for _, f := range files {
		if f == "-f" {
			continue
		}
		b, err := os.ReadFile(f)
		must.OK(t, err)
		for _, doc := range strings.Split("\n"+string(b), "\n---") {
			var o map[string]any
			if err := yaml.Unmarshal([]byte(doc), &o); err != nil {
				t.Fatalf("%s: %v", f, err)
			}
			if o != nil {
				out[identity(o)] = o
			}
		}
	}
	return out
}

func identity(o map[string]any) string {
	meta, _ := o["metadata"].(map[string]any)
	return fmt.Sprintf("%v %v", o["kind"], meta["name"])
}

// sameObjects checks that a list holds the wanted objects with everything that
// stands in their manifests; the server may have added more.
func sameObjects(t *testing.T, wanted map[string]map[string]any, list string) {
	t.Helper()
	var got struct{ Items []map[string]any }
	must.OK(t, json.Unmarshal([]byte(list), &got))
	if len(got.Items) != len(wanted) {
		t.Errorf("%d objects came back, want %d", len(got.Items), len(wanted))
	}
	for _, o := range got.Items {
		want, ok := wanted[identity(o)]
		if !ok {
			t.Errorf("%s came back and was not applied", identity(o))
			continue
		}
		if where := notIn(want, o, ""); where != "" {
			t.Errorf("%s: %s", identity(o), where)
		}
		meta := o["metadata"].(map[string]any)
		for _, field := range []string{"uid", "resourceVersion", "creationTimestamp"} {
			if meta[field] == nil {
				t.Errorf("%s has no %s", identity(o), field)
			}
		}
	}
}

// notIn says where got lacks something of want; "" if it has everything.
func notIn(want, got any, path string) string {
	switch w := want.(type) {
	case map[string]any:
		g, ok := got.(map[string]any)
		if !ok && len(w) > 0 {
			return fmt.Sprintf("%s: %v, want an object", path, got)
		}
		for k, v := range w {
			if where := notIn(v, g[k], path+"."+k); where != "" {
				return where
			}
		}
		return ""
	case []any:
		g, ok := got.([]any)
		if !ok || len(g) != len(w) {
			return fmt.Sprintf("%s: %v, want %v", path, got, want)
		}
		for i, v := range w {
			if where := notIn(v, g[i], fmt.Sprintf("%s[%d]", path, i)); where != "" {
				return where
			}
		}
		return ""
	}
	if text, ok := got.(string); ok && text == fmt.Sprint(want) {
		return "" // a quantity given as a number comes back as a string
	}
	if zero := want == nil || reflect.ValueOf(want).IsZero(); zero && got == nil {
		return "" // omitted when empty
	}
	if !reflect.DeepEqual(want, got) {
		return fmt.Sprintf("%s: %v (%T), want %v (%T)", path, got, got, want, want)
	}
	return ""
}

func lines(s string) []string {
	var out []string
	for _, line := range strings.Split(s, "\n") {
		if strings.TrimSpace(line) != "" {
			out = append(out, line)
		}
	}
	return out
}

// TestKubectlStory changes one deployment with every command that people use,
// each through another node than the one before, while kubectl get -w looks on.
func TestKubectlStory(t *testing.T) {
	r := &cluster.Round{Cluster: cluster.Shared(t)}
	const ns = "story"
	k := func(args ...string) string {
		t.Helper()
		return strings.TrimSpace(r.Kubectl(t, append([]string{"-n", ns}, args...)...))
	}
	field := func(path string) string {
		t.Helper()
		return k("get", "deployment", "test-pod", "-o", "jsonpath="+path)
	}
	expect := func(path, want string) {
		t.Helper()
		if got := field(path); got != want {
			t.Errorf("%s is %q, want %q", path, got, want)
		}
	}
	r.Kubectl(t, "create", "namespace", ns)
	file := filepath.Join(t.TempDir(), "story.yaml")
	b, err := os.ReadFile(manifest(t, "kwok/fake-pod-stages.yaml"))
	must.OK(t, err)
	must.OK(t, os.WriteFile(file, []byte(strings.ReplaceAll(string(b), "namespace: default", "namespace: "+ns)), 0o600))

	k("apply", "-f", file)
	if table := k("get", "deployments", "-o", "wide"); !strings.HasPrefix(table, "NAME ") || !strings.Contains(table, "container-0,container-1") {
		t.Errorf("the table of deployments:\n%s", table)
	}
	watch := r.Node().KubectlBackground(t, "-n", ns, "get", "deployment", "test-pod", "-w", "--no-headers")
	cluster.Await(t, 10*time.Second, "kubectl get -w shows the deployment", func() string {
		if out := watch.Output(); !strings.HasPrefix(out, "test-pod") {
			return "it shows " + out
		}
		return ""
	})

	edit := r.Try(t, []string{"KUBE_EDITOR=sed -i -e s/replicas:.1/replicas:\\ 2/"}, "-n", ns, "edit", "deployment", "test-pod")
	if edit.Code != 0 || !strings.Contains(edit.Stdout, "edited") {
		t.Errorf("edit: exit code %d: %s%s", edit.Code, edit.Stdout, edit.Stderr)
	}
	expect("{.spec.replicas}", "2")
	if diff := r.Try(t, nil, "-n", ns, "diff", "-f", file); diff.Code != 1 || !strings.Contains(diff.Stdout, "replicas: 2") {
		t.Errorf("diff after an edit: exit code %d, want 1\n%s%s", diff.Code, diff.Stdout, diff.Stderr)
	}
	k("patch", "deployment", "test-pod", "--type=json", `-p=[{"op":"replace","path":"/spec/replicas","value":3}]`)
	expect("{.spec.replicas}", "3")
	k("patch", "deployment", "test-pod", "--type=merge", `-p={"spec":{"replicas":4,"minReadySeconds":7}}`)
	expect("{.spec.replicas} {.spec.minReadySeconds}", "4 7")
	k("patch", "deployment", "test-pod", "--type=strategic", `-p={"spec":{"template":{"spec":{"containers":[{"name":"container-1","image":"other"}]}}}}`)
	expect("{.spec.template.spec.containers[*].image}", "fake other")
	k("set", "image", "deployment/test-pod", "container-0=third")
	expect("{.spec.template.spec.containers[*].image}", "third other")
	k("label", "deployment", "test-pod", "tier=front")
	if names := k("get", "deployments", "-l", "tier=front", "-o", "name"); names != "deployment.apps/test-pod" {
		t.Errorf("the label selector finds %q", names)
	}
	k("annotate", "deployment", "test-pod", "note=hello world")
	expect("{.metadata.annotations.note}", "hello world")
	k("scale", "deployment", "test-pod", "--replicas=5", "--current-replicas=4")
	expect("{.spec.replicas}", "5")
	if out := r.Try(t, nil, "-n", ns, "scale", "deployment", "test-pod", "--replicas=9", "--current-replicas=4"); out.Code == 0 {
		t.Error("scale with a wrong --current-replicas was accepted")
	}

	waiting := r.Node().KubectlBackground(t, "-n", ns, "wait", "deployment/test-pod", "--for=condition=Available", "--timeout=30s")
	k("patch", "deployment", "test-pod", "--subresource=status", "--type=merge",
		`-p={"status":{"replicas":5,"readyReplicas":5,"availableReplicas":5,"conditions":[{"type":"Available","status":"True","reason":"Test","message":"ok"}]}}`)
	cluster.Await(t, 15*time.Second, "kubectl wait sees the condition", func() string {
		if out := waiting.Output(); !strings.Contains(out, "condition met") {
			return "it says " + out
		}
		return ""
	})
	if text := k("explain", "deployment.spec.strategy.rollingUpdate"); !strings.Contains(text, "maxSurge") || !strings.Contains(text, "RollingUpdateDeployment") {
		t.Errorf("explain says:\n%s", text)
	}
	if text := k("describe", "deployment", "test-pod"); !strings.Contains(text, "5 desired") {
		t.Errorf("describe says:\n%s", text)
	}

	// Back to the manifest: what apply owns returns, the rest stays.
	k("apply", "-f", file)
	expect("{.spec.replicas} {.spec.template.spec.containers[*].image} {.metadata.labels.tier}", "1 fake fake front")
	if out := r.Try(t, nil, "-n", ns, "diff", "-f", file); out.Code != 0 {
		t.Errorf("diff after the second apply: exit code %d\n%s", out.Code, out.Stdout)
	}
	k("delete", "-f", file)
	if left := k("get", "deployments,jobs", "-o", "name"); left != "" {
		t.Errorf("left after delete:\n%s", left)
	}
	// One line per change of the deployment, none twice: READY counts the replicas.
	cluster.Await(t, 10*time.Second, "kubectl get -w shows the deletion", func() string {
		var desired []string
		for _, line := range lines(watch.Output()) {
			_, of, _ := strings.Cut(strings.Fields(line)[1], "/")
			if len(desired) == 0 || desired[len(desired)-1] != of {
				desired = append(desired, of)
			}
		}
		if got := strings.Join(desired, " "); got != "1 2 3 4 5 1" {
			return fmt.Sprintf("the replicas went %s, want 1 2 3 4 5 1", got)
		}
		return ""
	})
	k("delete", "namespace", ns)
	if out := r.Try(t, nil, "get", "namespace", ns); out.Code == 0 || !strings.Contains(out.Stderr, "NotFound") {
		t.Errorf("the namespace after its deletion: %s%s", out.Stdout, out.Stderr)
	}
}
