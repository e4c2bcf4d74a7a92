package kinds

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/quorate/quorate/internal/must"
	"github.com/quorate/quorate/proto"
)

// TestTablesAreClosed: a table without a prefix that is built in stays so, and none is
// added. A name that is not in the list may belong to a custom resource whose objects
// are on somebody's disks.
func TestTablesAreClosed(t *testing.T) {
	if n := len(closed()); n != 58 {
		t.Errorf("tables.txt has %d tables instead of 58: it must never change", n)
	}
	all, err := Available()
	must.OK(t, err)
	served := map[string]bool{}
	for _, r := range all.All() {
		if !r.Virtual {
			served[r.Table()] = true
		}
	}
	for name := range closed() {
		if !served[name] {
			t.Errorf("nothing is stored in %s any more: what lies there is lost", name)
		}
	}
}

// TestRulesAreOfTheirTables: the bits in logs mean the tables in which these resources are,
// and what is looked at follows from the keys that they have.
func TestRulesAreOfTheirTables(t *testing.T) {
	all, err := Available()
	must.OK(t, err)
	of := map[string]*Resource{}
	for _, r := range all.All() {
		of[r.Table()] = r
	}
	want := []string{
		"roles", "clusterroles", "rolebindings", "clusterrolebindings", "mutatingwebhookconfigurations",
		"validatingwebhookconfigurations", "validatingadmissionpolicies", "validatingadmissionpolicybindings",
		"mutatingadmissionpolicies", "mutatingadmissionpolicybindings", "customresourcedefinitions", "namespaces",
		"limitranges", "resourcequotas", "", "priorityclasses", "storageclasses", "ingressclasses", "runtimeclasses",
		"volumeattributesclasses", "serviceaccounts",
	}
	if len(want) != len(proto.Rules) {
		t.Fatalf("%d rules, want %d", len(proto.Rules), len(want))
	}
	for bit, rule := range proto.Rules {
		if rule.Bit != 1<<bit {
			t.Errorf("the rule at %d has bit %b", bit, rule.Bit)
		}
		r := of[rule.Table]
		if want[bit] == "" {
			if _, ofAPI := OfTable(rule.Table); ofAPI || r != nil || rule.Scope != proto.RuleOfCluster {
				t.Errorf("bit %d: %+v is no table of the cluster's own", bit, rule)
			}
			continue
		}
		if r == nil || r.Custom || r.Plural != want[bit] {
			t.Errorf("bit %d: %s belongs to %+v, not to %s", bit, rule.Table, r, want[bit])
			continue
		}
		scope := proto.RuleOfCluster
		switch key := r.Key("NAMESPACE", "NAME"); {
		case strings.HasPrefix(key, "NAMESPACE/"):
			scope = proto.RuleOfNamespace
		case want[bit] == "namespaces":
			scope = proto.RuleOfName
		}
		if rule.Scope != scope {
			t.Errorf("bit %d: %s has scope %d, its keys ask for %d", bit, rule.Table, rule.Scope, scope)
		}
	}
}

// TestNoTableHasTwoOwners: whatever a definition calls its resource, a built-in one has
// another table.
func TestNoTableHasTwoOwners(t *testing.T) {
	all, err := Available()
	must.OK(t, err)
	builtin := map[string]bool{}
	names := map[schema.GroupResource]bool{
		{Group: "example.com", Resource: "widgets"}:                              true,
		{Group: "gateway.networking.k8s.io", Resource: "gateways"}:               true,
		{Group: "quorate", Resource: "members"}:                                  true,
		{Group: "io", Resource: "custom"}:                                        true,
		{Group: "storagemigration.k8s.io", Resource: "storageversionmigrations"}: true,
	}
	for _, r := range all.All() {
		builtin[r.Table()] = true
		names[r.GroupResource()] = true
		stored := r.Group
		if r.StorageVersion != "" {
			stored = r.StorageGroup
		}
		names[schema.GroupResource{Group: stored, Resource: r.Plural}] = true
	}
	for gr := range names {
		builtin[BuiltinTable(gr)] = true
	}
	seen := map[string]schema.GroupResource{}
	for gr := range names {
		r := &Resource{Group: gr.Group, Plural: gr.Resource, Custom: true}
		if builtin[r.Table()] {
			t.Errorf("the custom resource %s has the table %s of a built-in one", gr, r.Table())
		}
		if other, taken := seen[r.Table()]; taken {
			t.Errorf("%s and %s have the table %s", gr, other, r.Table())
		}
		seen[r.Table()] = gr
		other := &Resource{Group: gr.Group, Version: "v2", StorageGroup: gr.Group, StorageVersion: "v1", Plural: gr.Resource, Custom: true}
		if other.Table() != r.Table() {
			t.Errorf("versions of %s have the tables %s and %s", gr, r.Table(), other.Table())
		}
		if r.CodeName() != "" {
			t.Errorf("the custom resource %s has the code of a built-in one", gr)
		}
	}
	for name, custom := range map[string]bool{"pods": false, "deployments.apps": false, "widgets.example.com": true, "gateways.gateway.networking.k8s.io": true} {
		gr := schema.ParseGroupResource(name)
		if got := (&Resource{Group: gr.Group, Plural: gr.Resource, Custom: custom}).Table(); got != name {
			t.Errorf("what lies in %s is looked for in %s", name, got)
		}
	}
}

// TestBuiltinKindsFirst: a custom resource does not get a built-in kind, whatever its
// plural is.
func TestBuiltinKindsFirst(t *testing.T) {
	gvk := schema.GroupVersionKind{Group: "g", Version: "v1", Kind: "K"}
	own := &Resource{Group: "g", Version: "v1", Kind: "K", Plural: "ks"}
	custom := &Resource{Group: "g", Version: "v1", Kind: "K", Plural: "aaas", Custom: true}
	if got := NewRegistry([]*Resource{custom, own}).LookupKind(gvk); got != own {
		t.Errorf("the kind is that of %s", got.Plural)
	}
	if n, ok := NewRegistry([]*Resource{own}).Replaced(nil, []*Resource{custom}); ok {
		t.Errorf("a second resource of the kind came without a decision: it is that of %s", n.LookupKind(gvk).Plural)
	}
}
