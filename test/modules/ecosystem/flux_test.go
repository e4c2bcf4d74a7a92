package ecosystem

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fluxcd/cli-utils/pkg/kstatus/polling"
	"github.com/fluxcd/pkg/ssa"
	"github.com/fluxcd/pkg/ssa/utils"
	"github.com/go-logr/logr"
	"github.com/quorate/quorate/test/harness/cluster"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	"sigs.k8s.io/controller-runtime/pkg/log"
)

// otherwiseHere are the tests of Flux that fail here, and why.
var otherwiseHere = map[string]string{
	// They expect that an apply fails when the schema of a new version has a field
	// with a default that the version of an older manager has not, and then show
	// how Flux gets round it. Here nothing fails: docs/differences.md.
	"TestApply_MigrateAPIVersion":                          "the apply works at once",
	"TestApplyAll_MigrateAPIVersion":                       "the apply works at once",
	"TestApply_MigrateAPIVersion_RealWorldExternalSecrets": "the apply works at once",
}

// TestFluxsOwn runs the tests of Flux's resource manager, unchanged, against a
// follower of three nodes instead of an apiserver with etcd. They reckon with a
// server that empties no namespaces.
func TestFluxsOwn(t *testing.T) {
	onlyInFull(t)
	c := cluster.Start(t, 3, "controllers=-namespace-controller")
	follower := c.Others(c.Leader(t))[0]
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "go", "test", "-count=1", "-v", "-timeout", "4m", "github.com/fluxcd/pkg/ssa")
	cmd.Env = append(os.Environ(), "USE_EXISTING_CLUSTER=true", "KUBECONFIG="+kubeconfigOf(t, c, follower))
	cmd.WaitDelay = time.Second
	out, err := cmd.CombinedOutput()
	passed, failed := 0, []string{}
	for _, m := range regexp.MustCompile(`(?m)^--- (PASS|FAIL): (\w+)`).FindAllSubmatch(out, -1) {
		name := string(m[2])
		switch {
		case string(m[1]) == "PASS":
			passed++
		case otherwiseHere[name] == "":
			t.Errorf("%s fails", name)
			fallthrough
		default:
			failed = append(failed, name)
		}
	}
	t.Logf("%d tests of Flux pass, %q fail", passed, failed)
	for name, why := range otherwiseHere {
		if !slices.Contains(failed, name) {
			t.Errorf("%s does not fail any more: %s", name, why)
		}
	}
	if passed < 50 || t.Failed() {
		t.Fatalf("%v\n%s", err, out)
	}
}

// fluxOf is Flux's resource manager as a client of one node.
func fluxOf(t *testing.T, n *cluster.Node) *ssa.ResourceManager {
	t.Helper()
	httpClient, err := rest.HTTPClientFor(n.Config())
	noError(t, err)
	t.Cleanup(httpClient.CloseIdleConnections)
	mapper, err := apiutil.NewDynamicRESTMapper(n.Config(), httpClient)
	noError(t, err)
	c, err := client.New(n.Config(), client.Options{Mapper: mapper, HTTPClient: httpClient})
	noError(t, err)
	return ssa.NewResourceManager(c, polling.NewStatusPoller(c, mapper, polling.Options{}), ssa.Owner{Field: "flux", Group: "toolkit.example.com"})
}

// TestFlux applies what Helm renders of the chart in stages, while the leader is
// killed, finds and mends drift, takes fields over from kubectl, and deletes all.
// Every call is made by another manager, to another node.
func TestFlux(t *testing.T) {
	log.SetLogger(logr.Discard())
	c := cluster.Start(t, 3)
	r := &turns{c: c}
	const ns = "flux"
	objects := func(set string) []*unstructured.Unstructured {
		t.Helper()
		h := &helm{turns: r, binary: binary(t, "HELM", "helm"), home: t.TempDir(), ns: ns, release: "mill"}
		rendered := h.run(t, h.chart("template", set, "--include-crds", "--no-hooks")...)
		list, err := utils.ReadObjects(strings.NewReader("apiVersion: v1\nkind: Namespace\nmetadata: {name: " + ns + "}\n---\n" + rendered))
		noError(t, err)
		for _, o := range list {
			if !utils.IsClusterDefinition(o) && o.GetKind() != "ClusterRoleBinding" {
				o.SetNamespace(ns)
			}
		}
		return list
	}
	// done checks what became of all objects.
	done := func(cs *ssa.ChangeSet, err error, want ssa.Action, others map[string]ssa.Action) {
		t.Helper()
		noError(t, err)
		if len(cs.Entries) != 15 {
			t.Errorf("%d objects:\n%s", len(cs.Entries), cs)
		}
		for _, e := range cs.Entries {
			w := want
			if o, ok := others[e.Subject]; ok {
				w = o
			}
			if e.Action != w {
				t.Errorf("%s, want %s", e, w)
			}
		}
	}
	opts := ssa.DefaultApplyOptions()
	opts.WaitInterval = 50 * time.Millisecond

	// Created, definitions first, while the leader is killed.
	leader := c.Leader(t)
	through := c.Others(leader)[0]
	type result struct {
		cs  *ssa.ChangeSet
		err error
	}
	results := make(chan result, 1)
	list, m := objects("replicas=2"), fluxOf(t, through)
	go func() {
		cs, err := m.ApplyAllStaged(t.Context(), list, opts)
		results <- result{cs, err}
	}()
	cluster.Await(t, 30*time.Second, "the definition", func() string {
		_, answer, err := through.Get(t, "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/stones.mill.example.com")
		if err != nil || answer.StatusCode != 200 {
			return fmt.Sprint(err)
		}
		return ""
	})
	r.dead = leader
	c.Kill(t, leader)
	first := <-results
	done(first.cs, first.err, ssa.CreatedAction, nil)

	// Nothing has drifted, and nothing is written.
	versions := func() string {
		return r.kubectl(t, "-n", ns, "get", "deployments,services,configmaps,secrets,roles,ingresses,hpa,stones", "-o", `jsonpath={range .items[*]}{.kind} {.metadata.resourceVersion}{"\n"}{end}`)
	}
	cluster.AwaitFurnished(t, r.node(), ns) // the next leader may have to write the rest
	before := versions()
	cs, err := fluxOf(t, r.node()).ApplyAllStaged(t.Context(), objects("replicas=2"), opts)
	done(cs, err, ssa.UnchangedAction, nil)
	if after := versions(); after != before {
		t.Errorf("an apply without a change has written:\n%s\nbefore:\n%s", after, before)
	}
	r.revive(t)

	// Somebody patches, and somebody applies on the client: drift, seen and mended.
	r.kubectl(t, "-n", ns, "patch", "configmap", "mill", "--type=merge", `-p={"data":{"flour":"sand"}}`)
	r.feed(t, `{"apiVersion":"v1","kind":"Service","metadata":{"name":"mill","labels":{"extra":"yes"}},"spec":{"ports":[{"name":"more","port":81,"targetPort":"http"}]}}`, "-n", ns, "apply", "-f", "-")
	for _, o := range objects("replicas=2") {
		if o.GetName() != "mill" || o.GetKind() != "ConfigMap" {
			continue
		}
		entry, live, merged, err := fluxOf(t, r.node()).Diff(t.Context(), o, ssa.DefaultDiffOptions())
		noError(t, err)
		was, _, _ := unstructured.NestedString(live.Object, "data", "flour")
		will, _, _ := unstructured.NestedString(merged.Object, "data", "flour")
		if entry.Action != ssa.ConfiguredAction || was != "sand" || will != "wheat" {
			t.Errorf("diff: %s, %s to %s", entry, was, will)
		}
	}
	opts.Cleanup = ssa.ApplyCleanupOptions{
		Annotations: []string{"kubectl.kubernetes.io/last-applied-configuration"},
		FieldManagers: []ssa.FieldManager{
			{Name: "kubectl", OperationType: metav1.ManagedFieldsOperationUpdate},
			{Name: "kubectl", OperationType: metav1.ManagedFieldsOperationApply},
		},
	}
	cs, err = fluxOf(t, r.node()).ApplyAll(t.Context(), objects("replicas=2"), opts)
	done(cs, err, ssa.UnchangedAction, map[string]ssa.Action{"ConfigMap/flux/mill": ssa.ConfiguredAction, "Service/flux/mill": ssa.ConfiguredAction})
	for what, want := range map[string]string{
		"configmap": "flux wheat ",
		"service":   "flux  http 80 ",
	} {
		got := r.kubectl(t, "-n", ns, "get", what, "mill", "-o", "jsonpath={.metadata.managedFields[*].manager} {.data.flour} {range .spec.ports[*]}{.name} {.port} {end}{.metadata.labels.extra}")
		if got != want {
			t.Errorf("%s is %q, want %q", what, got, want)
		}
	}

	// An immutable field is refused, and replaced by force.
	uid := r.kubectl(t, "-n", ns, "get", "deployment", "mill", "-o", "jsonpath={.metadata.uid}")
	selector := objects("replicas=2")
	for _, o := range selector {
		if o.GetKind() == "Deployment" {
			for _, path := range [][]string{{"spec", "selector", "matchLabels"}, {"spec", "template", "metadata", "labels"}} {
				noError(t, unstructured.SetNestedField(o.Object, "other", append(path, "app.kubernetes.io/instance")...))
			}
		}
	}
	if _, err := fluxOf(t, r.node()).ApplyAll(t.Context(), selector, opts); err == nil || !strings.Contains(err.Error(), "field is immutable") {
		t.Errorf("another selector: %v", err)
	}
	opts.Force = true
	cs, err = fluxOf(t, r.node()).ApplyAll(t.Context(), selector, opts)
	done(cs, err, ssa.UnchangedAction, map[string]ssa.Action{"Deployment/flux/mill": ssa.CreatedAction})
	if now := r.kubectl(t, "-n", ns, "get", "deployment", "mill", "-o", "jsonpath={.metadata.uid}"); now == uid {
		t.Error("the deployment was not replaced")
	}

	last := objects("replicas=2")
	cs, err = fluxOf(t, r.node()).DeleteAll(t.Context(), last, ssa.DefaultDeleteOptions())
	done(cs, err, ssa.DeletedAction, nil)
	// Once the definition of Stones is gone, Flux fails when it asks for one: it does not take a kind
	// that is gone for an object that is gone. No group of theirs means that no Stone is left either.
	last = slices.DeleteFunc(last, func(o *unstructured.Unstructured) bool { return o.GetKind() == "Stone" })
	noError(t, fluxOf(t, r.node()).WaitForTermination(last, ssa.WaitOptions{Interval: 50 * time.Millisecond, Timeout: 30 * time.Second}))
	if left := r.kubectl(t, "get", "clusterroles,clusterrolebindings,crds", "-l", "app.kubernetes.io/name=mill", "-o", "name"); left != "" || bytes.Contains(through.MustGet(t, "/apis"), []byte("mill.example.com")) {
		t.Errorf("left: %s", left)
	}
}
