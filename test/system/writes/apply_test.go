package writes

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"github.com/quorate/quorate/test/harness/cluster"
)

const webYAML = `
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, labels: {app: web}}
spec:
  replicas: 3
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec: {containers: [{name: nginx, image: "nginx:1.14.2"}]}
`

// TestServerSideApply is kubectl's way with server-side apply, each step at another
// node: from client-side apply and back, conflicts, and what to do about them.
func TestServerSideApply(t *testing.T) {
	s := newSession(t, "apply")
	defer s.end()
	nodes, must, refused := s.nodes, s.must, s.refused
	must(webYAML, "created", "apply", "-f", "-")
	// kubectl's own manager takes over what client-side apply had.
	must(strings.Replace(webYAML, "1.14.2", "1.15", 1), "serverside-applied", "apply", "--server-side", "-f", "-")
	must("", "scaled", "scale", "deployment", "web", "--replicas=5")
	if err := refused(webYAML, "apply", "--server-side", "-f", "-"); !strings.Contains(err, `conflict with "kubectl" with subresource "scale" using apps/v1: .spec.replicas`) {
		t.Errorf("the conflict reads %s", err)
	}
	must(webYAML, "serverside-applied", "apply", "--server-side", "--force-conflicts", "-f", "-")
	must("", "3", "get", "deployment", "web", "-o", "jsonpath={.spec.replicas}")
	// Client-side apply again, and a second manager that shares.
	must(strings.Replace(webYAML, "1.14.2", "1.16", 1), "configured", "apply", "-f", "-")
	refused(webYAML, "apply", "--server-side", "--field-manager=second", "-f", "-")
	must(strings.Replace(webYAML, "1.14.2", "1.16", 1), "serverside-applied", "apply", "--server-side", "--field-manager=second", "-f", "-")
	must(webYAML, "dry run", "apply", "--server-side", "--force-conflicts", "--dry-run=server", "-f", "-")
	must("", "1.16", "get", "deployment", "web", "-o", "jsonpath={.spec.template.spec.containers[0].image}")

	var first []byte
	for _, n := range nodes {
		raw := n.MustGet(t, "/apis/apps/v1/namespaces/apply/deployments/web")
		if first == nil {
			first = raw
		} else if !bytes.Equal(first, raw) {
			t.Errorf("%s has\n%s\nothers have\n%s", n.Name, raw, first)
		}
	}
}

// TestAppliersAtOnce: many managers apply their own field of one object, through all
// nodes at once, while others update it. Nobody loses a field, everybody owns his.
func TestAppliersAtOnce(t *testing.T) {
	nodes := cluster.Start(t, 3, cluster.Nonvoters+"1").Nodes()
	nodes[0].Kubectl(t, "create", "namespace", "appliers")
	clients := make([]func(*testing.T, int, int) error, 0, 12)
	for i := range 12 {
		maps := nodes[i%len(nodes)].Typed(t).CoreV1().ConfigMaps("appliers")
		if i < 8 {
			clients = append(clients, func(t *testing.T, i, round int) error {
				body := fmt.Sprintf(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"shared"},"data":{"applied-%d":"%d"}}`, i, round)
				_, err := maps.Patch(t.Context(), "shared", types.ApplyYAMLPatchType, []byte(body), metav1.PatchOptions{FieldManager: fmt.Sprint("applier-", i)})
				return err
			})
			continue
		}
		clients = append(clients, func(t *testing.T, i, round int) error {
			body := fmt.Sprintf(`{"data":{"patched-%d":"%d"}}`, i, round)
			for {
				_, err := maps.Patch(t.Context(), "shared", types.MergePatchType, []byte(body), metav1.PatchOptions{FieldManager: fmt.Sprint("patcher-", i)})
				if !apierrors.IsNotFound(err) { // else no applier has made it yet
					return err
				}
			}
		})
	}
	const rounds = 6
	var wg sync.WaitGroup
	for i, write := range clients {
		wg.Go(func() {
			for round := range rounds {
				if err := write(t, i, round); err != nil {
					t.Errorf("client %d, round %d: %v", i, round, err)
					return
				}
			}
		})
	}
	wg.Wait()
	var got corev1.ConfigMap
	if err := json.Unmarshal(nodes[0].MustGet(t, "/api/v1/namespaces/appliers/configmaps/shared"), &got); err != nil {
		t.Fatal(err)
	}
	owned := map[string][]string{}
	for _, e := range got.ManagedFields {
		set := fieldpath.NewSet()
		if err := set.FromJSON(e.FieldsV1.GetRawReader()); err != nil {
			t.Fatal(err)
		}
		set.Leaves().Iterate(func(p fieldpath.Path) { owned[e.Manager] = append(owned[e.Manager], p.String()) })
	}
	for i := range clients {
		key, manager := fmt.Sprint("applied-", i), fmt.Sprint("applier-", i)
		if i >= 8 {
			key, manager = fmt.Sprint("patched-", i), fmt.Sprint("patcher-", i)
		}
		if got.Data[key] != fmt.Sprint(rounds-1) {
			t.Errorf("%s is %q, its manager's last write was %d", key, got.Data[key], rounds-1)
		}
		if !slices.Equal(owned[manager], []string{".data." + key}) {
			t.Errorf("%s owns %v, want .data.%s", manager, owned[manager], key)
		}
	}
}
