package builtin_test

import (
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/quorate/quorate/apiserver/objects"
	"github.com/quorate/quorate/apiserver/objects/builtin"
	"github.com/quorate/quorate/apiserver/types/kinds"
	"github.com/quorate/quorate/apiserver/types/tree"
	"github.com/quorate/quorate/internal/must"
	kjson "sigs.k8s.io/json"
)

// TestTables runs testdata/*.txt: what strategies prepare. What they refuse and warn of is package
// validation's. A case is
//
//	== title
//	resource code-name, as configmaps or jobs.batch
//	old {...}       the stored object; without it, a create
//	new {...}       the object that is written
//	> {...}         the object after Prepare, where it matters
func TestTables(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no tables: %v", err)
	}
	for _, f := range files {
		raw, err := os.ReadFile(f)
		must.OK(t, err)
		for _, block := range strings.Split("\n"+string(raw), "\n== ")[1:] {
			title, body, _ := strings.Cut(block, "\n")
			t.Run(strings.TrimSuffix(filepath.Base(f), ".txt")+"/"+title, func(t *testing.T) { runCase(t, body) })
		}
	}
}

func runCase(t *testing.T, body string) {
	var old, obj, prepared tree.Object
	var resource string
	for _, line := range strings.Split(body, "\n") {
		word, rest, _ := strings.Cut(line, " ")
		switch word {
		case "resource":
			resource = rest
		case "old":
			old = treeOf(t, rest)
		case "new":
			obj = treeOf(t, rest)
		case ">":
			prepared = treeOf(t, rest)
		case "", "#":
		default:
			t.Fatalf("what is %q?", line)
		}
	}
	r := builtin.Strategies(builtin.Config{})[resource]
	if r == nil || obj == nil {
		t.Fatalf("no strategy of %q, or nothing to write", resource)
	}
	if r.Prepare != nil {
		r.Prepare(obj, old)
	}
	if prepared != nil && !slices.Equal(bytesOf(t, prepared), bytesOf(t, obj)) {
		t.Errorf("prepared: %s\nwant: %s", bytesOf(t, obj), bytesOf(t, prepared))
	}
}

func treeOf(t *testing.T, text string) tree.Object {
	t.Helper()
	var out tree.Object
	if err := kjson.UnmarshalCaseSensitivePreserveInts([]byte(text), &out); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	return out
}

func bytesOf(t *testing.T, obj any) []byte {
	t.Helper()
	out, err := json.Marshal(obj)
	must.OK(t, err)
	return out
}

// TestStrategiesFitTheData: a strategy is of a kind that is there, and what is said of a kind's
// subresources here and in its data is the same. Status and scale need no code, and what leads to nodes and Pods is
// no object.
func TestStrategiesFitTheData(t *testing.T) {
	all := builtin.Strategies(builtin.Config{Tokens: testTokens{}})
	registry, err := kinds.Available()
	must.OK(t, err)
	served := map[string]bool{}
	for _, res := range registry.All() {
		served[res.CodeName()] = true
		h := all[res.CodeName()]
		if h == nil {
			h = &objects.Strategy{}
		}
		coded := map[string]bool{"status": true, "scale": true}
		for _, names := range [...][]string{slices.Collect(maps.Keys(h.Posts)), slices.Collect(maps.Keys(h.Parts))} {
			for _, name := range names {
				coded[name] = true
				if res.Subresource(name) == nil {
					t.Errorf("the strategy of %s has the subresource %s, and its entry in kinds/data has not", res.CodeName(), name)
				}
			}
		}
		for _, sub := range res.Subresources {
			if !coded[sub.Name] && !sub.Connects {
				t.Errorf("the data of %s have the subresource %s, and neither Parts nor Posts of its strategy (strategies.go) have it", res.CodeName(), sub.Name)
			}
		}
	}
	for name := range all {
		if !served[name] {
			t.Errorf("there is a strategy of %s, which is no kind", name)
		}
	}
}
