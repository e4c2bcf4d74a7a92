package controllers

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
)

// always are the controllers that run whatever a list says.
const always = "system-namespaces-controller bootstrap-roles-controller apiextensions-controller service-ip-repair-controller priority-and-fairness-config-producer"

func TestSelect(t *testing.T) {
	// What a list that does not name it leaves on: older lists than its name do not.
	const unlisted = "clusterrole-aggregation-controller"
	const known = "[namespace-controller garbage-collector-controller event-ttl-controller serviceaccount-controller kubernetes-service-controller " + unlisted + " " + always + "]"
	for list, want := range map[string]string{
		"*":                            "namespace-controller garbage-collector-controller event-ttl-controller serviceaccount-controller kubernetes-service-controller " + unlisted,
		"*,-garbage-collector":         "namespace-controller event-ttl-controller serviceaccount-controller kubernetes-service-controller " + unlisted,
		"-garbage-collector,*":         "namespace-controller event-ttl-controller serviceaccount-controller kubernetes-service-controller " + unlisted,
		"*,-garbagecollector":          "namespace-controller event-ttl-controller serviceaccount-controller kubernetes-service-controller " + unlisted,
		"-namespace-controller":        "garbage-collector-controller event-ttl-controller serviceaccount-controller kubernetes-service-controller " + unlisted,
		"-namespace,event-ttl":         "event-ttl-controller " + unlisted,
		"namespace":                    "namespace-controller " + unlisted,
		"namespace,event-ttl":          "namespace-controller event-ttl-controller " + unlisted,
		"":                             unlisted,
		"namespace,-namespace":         "!namespace-controller is enabled and disabled",
		"namespace,namespace":          "namespace-controller " + unlisted,
		"*,-podgc":                     `!"podgc" is not in the list of known controllers: ` + known,
		"*,-*":                         `!"*" is not in the list of known controllers: ` + known,
		"garbage-collector-controller": "garbage-collector-controller " + unlisted,
		"serviceaccount":               "serviceaccount-controller " + unlisted,
		"*,-kubernetes-service,-serviceaccount-controller": "namespace-controller garbage-collector-controller event-ttl-controller " + unlisted,

		"*,-clusterrole-aggregation":             "namespace-controller garbage-collector-controller event-ttl-controller serviceaccount-controller kubernetes-service-controller",
		"-clusterrole-aggregation-controller":    "namespace-controller garbage-collector-controller event-ttl-controller serviceaccount-controller kubernetes-service-controller",
		"namespace,-clusterrole-aggregation":     "namespace-controller",
		"clusterrole-aggregation":                unlisted,
		"system-namespaces":                      unlisted,
		"*,-system-namespaces":                   "!system-namespaces-controller cannot be disabled: no node is ready without the namespaces that it creates",
		"-bootstrap-roles":                       "!bootstrap-roles-controller cannot be disabled: no node is ready without the roles and bindings that it creates",
		"-priority-and-fairness-config-producer": "!priority-and-fairness-config-producer cannot be disabled: --enable-priority-and-fairness=false switches all of it off",
	} {
		var items []string
		if list != "" {
			items = strings.Split(list, ",")
		}
		names, err := Select(items)
		got := strings.Trim(fmt.Sprint(names), "[]")
		if err != nil {
			got = "!" + err.Error()
		} else {
			want = strings.TrimSpace(want + " " + always)
		}
		if got != want {
			t.Errorf("%s: %s, want %s", list, got, want)
		}
	}
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
		if c.name == "" || c.run == nil {
			t.Errorf("row %d: %q has no name or no loop", i, c.name)
		}
		if slices.Index(All, c.name) != i {
			t.Errorf("%s: its name is that of another row", c.name)
		}
		if strings.HasSuffix(c.needed, ".") || c.needed != "" && c.unlisted {
			t.Errorf("%s: needed %q, unlisted %t", c.name, c.needed, c.unlisted)
		}
	}
}
