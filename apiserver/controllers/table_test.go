package controllers

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/quorate/quorate/internal/facts"
	"github.com/quorate/quorate/internal/must"
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

// TestDocs: what --controllers names is described where operators read, in the order of the table.
func TestDocs(t *testing.T) {
	text, err := os.ReadFile("../../docs/operations.md")
	must.OK(t, err)
	_, section, ok := strings.Cut(string(text), "\n### Controllers\n")
	if !ok {
		t.Fatal("docs/operations.md has no section Controllers")
	}
	section, _, _ = strings.Cut(section, "\n### ")
	var rows []string
	for line := range strings.Lines(section) {
		if strings.HasPrefix(line, "| `") {
			rows = append(rows, line)
		}
	}
	for i, n := range All {
		if want := fmt.Sprintf("| `%s` | ", n); i >= len(rows) || !strings.HasPrefix(rows[i], want) {
			t.Fatalf("docs/operations.md, Controllers: row %d must begin with %q: the rows of table.go in their order", i, want)
		}
	}
	for _, row := range rows[len(All):] {
		t.Errorf("docs/operations.md, Controllers: table.go has no such controller: %s", row)
	}
}

// TestTable: each controller has a name, a loop and a place in the list; the reason why one
// cannot be switched off is a clause that follows a colon. The manual says that these are the last.
func TestTable(t *testing.T) {
	needed := false
	for i, c := range table {
		if c.name == "" || c.loop == nil {
			t.Errorf("row %d of table in table.go: %q has no name or no loop", i, c.name)
		}
		if slices.Index(All, c.name) != i {
			t.Errorf("%s in table.go: its name is that of another row", c.name)
		}
		if strings.HasSuffix(c.needed, ".") {
			t.Errorf("%s in table.go: needed %q ends with a full stop", c.name, c.needed)
		}
		if needed && c.needed == "" {
			t.Errorf("%s in table.go: it must be before the rows that have needed", c.name)
		}
		needed = c.needed != ""
	}
}

// TestManager: which names are kube-controller-manager's.
func TestManager(t *testing.T) {
	file := filepath.Join(facts.Sources(t, "k8s.io/kubernetes"), "cmd/kube-controller-manager/names/controller_names.go")
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range table {
		if theirs := strings.Contains(string(text), fmt.Sprintf("= %q\n", c.name)); c.manager != theirs {
			t.Errorf("%s in table.go: manager must be %t, as %s has it", c.name, theirs, file)
		}
	}
}

// TestManagerList: what the nodes do is left to them, and nothing else.
func TestManagerList(t *testing.T) {
	for list, left := range map[string]func(Name) bool{
		"*":                                  func(Name) bool { return true },
		"*,-garbage-collector,-namespace":    func(n Name) bool { return n != GarbageController && n != NamespaceController },
		"event-ttl,-clusterrole-aggregation": func(Name) bool { return false },
	} {
		want := "*"
		for _, c := range table {
			if c.manager && left(c.name) {
				want += ",-" + string(c.name)
			}
		}
		if got, err := ManagerList(strings.Split(list, ",")); err != nil || got != want {
			t.Errorf("%s: %s (%v), want %s", list, got, err, want)
		}
	}
	if _, err := ManagerList([]string{"nonsense"}); err == nil {
		t.Error("an unknown name was accepted")
	}
}
