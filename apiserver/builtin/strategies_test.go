package builtin_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/quorate/quorate/apiserver/builtin"
	"github.com/quorate/quorate/apiserver/kinds"
	"github.com/quorate/quorate/apiserver/objects"
	"github.com/quorate/quorate/apiserver/tree"
	"k8s.io/apimachinery/pkg/util/validation/field"
	kjson "sigs.k8s.io/json"
)

// TestTables runs testdata/*.txt. A case is
//
//	== title
//	resource code-name, as configmaps or jobs.batch
//	old {...}       the stored object; without it, a create
//	new {...}       the object that is written
//	! text          one error, whole, with \n for a new line; none: the object is valid
//	~ text          one warning of a valid object, whole
//	> {...}         the object after Prepare, where it matters
func TestTables(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no tables: %v", err)
	}
	for _, f := range files {
		raw, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		for _, block := range strings.Split("\n"+string(raw), "\n== ")[1:] {
			title, body, _ := strings.Cut(block, "\n")
			t.Run(strings.TrimSuffix(filepath.Base(f), ".txt")+"/"+title, func(t *testing.T) { runCase(t, body) })
		}
	}
}

func runCase(t *testing.T, body string) {
	var old, obj, prepared tree.Object
	var want, warned []string
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
		case "!":
			want = append(want, rest)
		case "~":
			warned = append(warned, rest)
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
	var got []string
	with := func(obj, old tree.Object) field.ErrorList { return nil }
	// Webhook configurations need of the operation only its end and the name.
	if r.ValidatesAll || strings.HasSuffix(resource, "webhookconfigurations.admissionregistration.k8s.io") {
		with = func(obj, old tree.Object) field.ErrorList {
			errs, err := r.ValidateWith(&objects.Op{Context: t.Context()}, obj, old)
			if err != nil {
				t.Fatal(err)
			}
			return errs
		}
	}
	for _, validate := range [...]func(obj, old tree.Object) field.ErrorList{r.Validate, r.ValidateClients, with} {
		if validate == nil {
			continue
		}
		for _, e := range validate(obj, old) {
			got = append(got, strings.ReplaceAll(e.Error(), "\n", `\n`))
		}
	}
	if !slices.Equal(got, want) {
		t.Errorf("got  %s\nwant %s", strings.Join(got, "\n     "), strings.Join(want, "\n     "))
	}
	if len(got) > 0 || r.Warnings == nil {
		return
	}
	if obj["metadata"] == nil {
		obj["metadata"] = tree.Object{"name": "a"}
	}
	if told := r.Warnings(obj, old); !slices.Equal(told, warned) {
		t.Errorf("warned of  %s\nwant %s", strings.Join(told, "\n     "), strings.Join(warned, "\n     "))
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
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// TestLongLists: what is checked of lists takes no time that grows with their square: it cannot be
// interrupted, and a client that may write one object can have it done again and again.
func TestLongLists(t *testing.T) {
	const n = 50_000
	many := func(one func(i int) any) []any {
		out := make([]any, n)
		for i := range out {
			out[i] = one(i)
		}
		return out
	}
	tolerations := many(func(i int) any { return tree.Object{"key": fmt.Sprint("k", i), "operator": "Exists"} })
	gates := many(func(i int) any { return tree.Object{"name": fmt.Sprint("example.com/g", i)} })
	reversed := func(l []any) []any {
		out := slices.Clone(l)
		slices.Reverse(out)
		return out
	}
	pods := func(tolerations, gates []any) tree.Object {
		return tree.Object{"spec": tree.Object{"tolerations": tolerations, "schedulingGates": gates}}
	}
	for _, c := range []struct {
		name     string
		resource string
		obj, old tree.Object
	}{
		{"tolerations", "pods", pods(reversed(tolerations), nil), pods(tolerations, nil)},
		{"scheduling gates", "pods", pods(nil, reversed(gates)), pods(nil, gates)},
		{"usages", "certificatesigningrequests.certificates.k8s.io",
			tree.Object{"spec": tree.Object{"usages": many(func(i int) any { return fmt.Sprint("usage ", i) })}}, nil},
		{"review versions", "validatingwebhookconfigurations.admissionregistration.k8s.io",
			tree.Object{"webhooks": []any{tree.Object{"name": "a.example.com", "admissionReviewVersions": many(func(i int) any { return fmt.Sprint("v", i) })}}}, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			began := time.Now()
			if check := builtin.Strategies(builtin.Config{})[c.resource].Validate; check != nil {
				check(c.obj, c.old)
			} else { // as those of files are checked, which need no operation
				resource, _, _ := strings.Cut(c.resource, ".")
				builtin.CheckAdmission(resource, c.obj, nil)
			}
			if took := time.Since(began); took > 20*time.Second {
				t.Errorf("took %s", took)
			}
		})
	}
}

// TestStrategiesFitTheData: a strategy is of a kind that is there, and what is said of a kind's
// subresources here and in its data is the same. Status and scale need no code.
func TestStrategiesFitTheData(t *testing.T) {
	all := builtin.Strategies(builtin.Config{Tokens: testTokens{}})
	registry, err := kinds.Available()
	if err != nil {
		t.Fatal(err)
	}
	served := map[string]bool{}
	for _, res := range registry.All() {
		served[res.CodeName()] = true
		h := all[res.CodeName()]
		if h == nil {
			h = &objects.Strategy{}
		}
		coded := map[string]bool{"status": true, "scale": true}
		for _, names := range [...][]string{slices.Collect(maps.Keys(h.Posts)), slices.Collect(maps.Keys(h.Parts)), slices.Collect(maps.Keys(h.Updates))} {
			for _, name := range names {
				coded[name] = true
				if res.Subresource(name) == nil {
					t.Errorf("the strategy of %s has a subresource %s, its data have not", res.CodeName(), name)
				}
			}
		}
		for _, sub := range res.Subresources {
			if !coded[sub.Name] {
				t.Errorf("the data of %s have a subresource %s, its strategy has not", res.CodeName(), sub.Name)
			}
		}
	}
	for name := range all {
		if !served[name] {
			t.Errorf("there is a strategy of %s, which is no kind", name)
		}
	}
}
