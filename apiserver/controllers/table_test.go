package controllers

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
)

// TestSelect: what a list enables. "all but" is of all that there are; "only" is beside those that a
// list must name to disable, or that cannot be disabled.
func TestSelect(t *testing.T) {
	for list, want := range map[string]string{
		"*":                            "all but",
		"*,-garbage-collector":         "all but garbage-collector-controller",
		"-garbage-collector,*":         "all but garbage-collector-controller",
		"*,-garbagecollector":          "all but garbage-collector-controller",
		"-namespace-controller":        "all but namespace-controller",
		"-namespace,event-ttl":         "only event-ttl-controller",
		"namespace":                    "only namespace-controller",
		"namespace,event-ttl":          "only namespace-controller event-ttl-controller",
		"":                             "only",
		"namespace,-namespace":         "!namespace-controller is enabled and disabled",
		"namespace,namespace":          "only namespace-controller",
		"*,-podgc":                     `!"podgc" is not in the list of known controllers: ` + fmt.Sprint(All),
		"*,-*":                         `!"*" is not in the list of known controllers: ` + fmt.Sprint(All),
		"garbage-collector-controller": "only garbage-collector-controller",
		"serviceaccount":               "only serviceaccount-controller",
		"*,-kubernetes-service,-serviceaccount-controller": "all but kubernetes-service-controller serviceaccount-controller",

		"*,-clusterrole-aggregation":             "all but clusterrole-aggregation-controller",
		"-clusterrole-aggregation-controller":    "all but clusterrole-aggregation-controller",
		"clusterrole-aggregation":                "only clusterrole-aggregation-controller",
		"system-namespaces":                      "only",
		"priority-and-fairness-config-producer":  "only",
		"*,-system-namespaces":                   "!system-namespaces-controller cannot be disabled: no node is ready without the namespaces that it creates",
		"-bootstrap-roles":                       "!bootstrap-roles-controller cannot be disabled: no node is ready without the roles and bindings that it creates",
		"-priority-and-fairness-config-producer": "!priority-and-fairness-config-producer cannot be disabled: --enable-priority-and-fairness=false switches all of it off",
	} {
		var items []string
		if list != "" {
			items = strings.Split(list, ",")
		}
		names, err := Select(items)
		got := fmt.Sprint(names)
		if err != nil {
			got = "!" + err.Error()
		}
		if but, ok := strings.CutPrefix(want, "all but"); ok {
			want = selected(func(c controller) bool { return !slices.Contains(strings.Fields(but), string(c.name)) })
		} else if only, ok := strings.CutPrefix(want, "only"); ok {
			want = selected(func(c controller) bool {
				return c.needed != "" || slices.Contains(strings.Fields(only), string(c.name))
			})
		}
		if got != want {
			t.Errorf("%s: %s, want %s", list, got, want)
		}
	}
}

// TestNeeded: these run whatever a list says.
func TestNeeded(t *testing.T) {
	want := []Name{
		SystemNamespacesController, BootstrapRolesController, BootstrapPriorityClassesController,
		APIExtensionsController, ServiceIPRepairController, FlowControlController,
	}
	names, err := Select(nil)
	if err != nil || !slices.Equal(names, want) {
		t.Errorf("an empty list runs %q (%v), want %q", names, err, want)
	}
}

// selected are the names of the rows that pass.
func selected(pass func(controller) bool) string {
	var names []Name
	for _, c := range table {
		if pass(c) {
			names = append(names, c.name)
		}
	}
	return fmt.Sprint(names)
}

// TestDocs: what --controllers names is described where operators read.
func TestDocs(t *testing.T) {
	text, err := os.ReadFile("../../docs/operations.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range All {
		if !strings.Contains(string(text), fmt.Sprintf("\n| `%s` | ", n)) {
			t.Errorf("docs/operations.md, Controllers, has no row for %s", n)
		}
	}
}

// TestTable: each controller has a name, a loop and a place in the list; the reason why one
// cannot be switched off is a clause that follows a colon.
func TestTable(t *testing.T) {
	for i, c := range table {
		if c.name == "" || c.loop == nil {
			t.Errorf("row %d: %q has no name or no loop", i, c.name)
		}
		if slices.Index(All, c.name) != i {
			t.Errorf("%s: its name is that of another row", c.name)
		}
		if strings.HasSuffix(c.needed, ".") {
			t.Errorf("%s: needed %q", c.name, c.needed)
		}
	}
}

// TestManagerList: what the nodes do is left to them, and nothing else.
func TestManagerList(t *testing.T) {
	for list, want := range map[string]string{
		"*": "*,-namespace-controller,-garbage-collector-controller,-serviceaccount-controller,-root-ca-certificate-publisher-controller,-validatingadmissionpolicy-status-controller,-resourcequota-controller,-certificatesigningrequest-signing-controller,-certificatesigningrequest-approving-controller,-certificatesigningrequest-cleaner-controller,-bootstrap-signer-controller,-token-cleaner-controller,-clusterrole-aggregation-controller",
		"*,-garbage-collector,-namespace,-serviceaccount,-root-ca-certificate-publisher,-resourcequota": "*,-validatingadmissionpolicy-status-controller,-certificatesigningrequest-signing-controller,-certificatesigningrequest-approving-controller,-certificatesigningrequest-cleaner-controller,-bootstrap-signer-controller,-token-cleaner-controller,-clusterrole-aggregation-controller",
		"event-ttl,-clusterrole-aggregation": "*",
	} {
		if got, err := ManagerList(strings.Split(list, ",")); err != nil || got != want {
			t.Errorf("%s: %s (%v), want %s", list, got, err, want)
		}
	}
	if _, err := ManagerList([]string{"nonsense"}); err == nil {
		t.Error("a list that is none was taken")
	}
}
