package reads

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/quorate/quorate/internal/must"
	"k8s.io/apimachinery/pkg/apis/meta/internalversion"
	"k8s.io/apimachinery/pkg/apis/meta/internalversion/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// The parameters of reads, and the values that each has in the table. "-" stands
// for an absent one.
var matrixParameters = []struct {
	name   string
	values []string
}{
	{"rv", []string{"-", "0", "old", "current", "future", "below"}},
	{"match", []string{"-", "Exact", "NotOlderThan", "Sideways"}},
	{"limit", []string{"-", "2"}},
	{"continue", []string{"-", "valid", "latest", "expired", "garbage"}},
	{"sie", []string{"-", "true", "false"}},
	{"bookmarks", []string{"-", "true"}},
}

var matrixVerbs = []string{"get", "list", "watch", "create", "update", "patch", "delete", "delete-body", "collection"}

// cell is one combination of a verb and values, by the names in the table.
type cell struct {
	verb                                    string
	rv, match, limit, token, sie, bookmarks string
}

func (c cell) value(parameter string) string {
	switch parameter {
	case "rv":
		return c.rv
	case "match":
		return c.match
	case "limit":
		return c.limit
	case "continue":
		return c.token
	case "sie":
		return c.sie
	}
	return c.bookmarks
}

func (c cell) String() string {
	s := c.verb
	for _, p := range matrixParameters {
		if v := c.value(p.name); v != "-" {
			s += " " + p.name + "=" + v
		}
	}
	return s
}

// cellsOf returns all combinations for a verb.
func cellsOf(verb string) (cells []cell) {
	p := matrixParameters
	for _, rv := range p[0].values {
		for _, match := range p[1].values {
			for _, limit := range p[2].values {
				for _, token := range p[3].values {
					for _, sie := range p[4].values {
						for _, bookmarks := range p[5].values {
							cells = append(cells, cell{verb, rv, match, limit, token, sie, bookmarks})
						}
					}
				}
			}
		}
	}
	return cells
}

// rule is a row of matrix.txt.
type rule struct {
	line    int
	verbs   []string
	values  map[string][]string
	outcome string
	used    bool
}

func (r *rule) applies(c cell) bool {
	if !slices.Contains(r.verbs, c.verb) {
		return false
	}
	for name, values := range r.values {
		if !slices.Contains(values, c.value(name)) {
			return false
		}
	}
	return true
}

// readMatrix reads matrix.txt and decides every cell by it.
func readMatrix(t *testing.T) map[cell]string {
	t.Helper()
	rules := readRules(t, "testdata/matrix.txt")
	outcomes := map[cell]string{}
	for _, verb := range matrixVerbs {
		for _, c := range cellsOf(verb) {
			outcomes[c] = decide(rules, c)
			if outcomes[c] == "" {
				t.Errorf("matrix.txt: no row for %s", c)
			}
		}
	}
	for _, r := range rules {
		if !r.used {
			t.Errorf("matrix.txt:%d: decides nothing", r.line)
		}
	}
	return outcomes
}

func readRules(t *testing.T, file string) (rules []*rule) {
	t.Helper()
	raw, err := os.ReadFile(file)
	must.OK(t, err)
	for i, line := range strings.Split(string(raw), "\n") {
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		conditions, outcome, ok := strings.Cut(line, " => ")
		words := strings.Fields(conditions)
		if !ok || len(words) == 0 {
			t.Fatalf("%s:%d: not a row: %s", file, i+1, line)
		}
		r := &rule{line: i + 1, verbs: strings.Split(words[0], ","), values: map[string][]string{}, outcome: outcome}
		for _, w := range words[1:] {
			name, values, _ := strings.Cut(w, "=")
			r.values[name] = strings.Split(values, ",")
			r.check(t, file, name)
		}
		rules = append(rules, r)
	}
	return rules
}

// check refuses words that are in no cell.
func (r *rule) check(t *testing.T, file, name string) {
	t.Helper()
	for _, v := range r.verbs {
		if !slices.Contains(matrixVerbs, v) {
			t.Fatalf("%s:%d: no such verb: %s", file, r.line, v)
		}
	}
	for _, p := range matrixParameters {
		if p.name != name {
			continue
		}
		for _, v := range r.values[name] {
			if !slices.Contains(p.values, v) {
				t.Fatalf("%s:%d: no such value: %s=%s", file, r.line, name, v)
			}
		}
		return
	}
	t.Fatalf("%s:%d: no such parameter: %s", file, r.line, name)
}

// decide returns what the rows say about a cell, or "".
func decide(rules []*rule, c cell) string {
	var invalid []string
	for _, r := range rules {
		if text, ok := strings.CutPrefix(r.outcome, "422 "); ok && r.applies(c) {
			r.used = true
			invalid = append(invalid, text)
		}
	}
	if len(invalid) > 0 {
		return "422 " + invalidText(invalid)
	}
	for _, r := range rules {
		if !strings.HasPrefix(r.outcome, "422 ") && r.applies(c) {
			r.used = true
			return r.outcome
		}
	}
	return ""
}

// invalidText is how several reasons make one message: each once, in brackets.
func invalidText(reasons []string) string {
	reasons = slices.Compact(reasons)
	text := reasons[0]
	if len(reasons) > 1 {
		text = "[" + strings.Join(reasons, ", ") + "]"
	}
	return `ListOptions.meta.k8s.io "" is invalid: ` + text
}

// TestMatrixAgreesWithUpstream asks upstream's own validation about every cell:
// the table's 422s are exactly its refusals.
func TestMatrixAgreesWithUpstream(t *testing.T) {
	for c, outcome := range readMatrix(t) {
		if !slices.Contains([]string{"list", "watch", "collection"}, c.verb) {
			continue
		}
		o := internalversion.ListOptions{Watch: c.verb == "watch"}
		if c.rv != "-" {
			o.ResourceVersion = c.rv
		}
		if c.match != "-" {
			o.ResourceVersionMatch = metav1.ResourceVersionMatch(c.match)
		}
		if c.token != "-" {
			o.Continue = c.token
		}
		if c.sie != "-" {
			yes := c.sie == "true"
			o.SendInitialEvents = &yes
		}
		internalversion.SetListOptionsDefaults(&o, true)
		want := ""
		if errs := validation.ValidateListOptions(&o, true); len(errs) > 0 {
			want = fmt.Sprintf(`422 ListOptions.meta.k8s.io "" is invalid: %v`, errs.ToAggregate())
		}
		if got := outcome; want != "" && got != want || want == "" && strings.HasPrefix(got, "422 ") {
			t.Errorf("%s:\n got %s\nwant %s", c, got, want)
		}
	}
}
