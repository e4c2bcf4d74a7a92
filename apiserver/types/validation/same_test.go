package validation

import (
	"crypto/sha256"
	"fmt"
	"go/ast"
	"go/format"
	"go/parser"
	"go/token"
	"maps"
	"math/rand/v2"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/quorate/quorate/apiserver/types/schema"
	"github.com/quorate/quorate/apiserver/types/tree"
	"github.com/quorate/quorate/internal/must"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// asUpstream are Create and Update as upstream has them: everything is decoded by the converter,
// nothing is shared, and every function is asked.
type asUpstream interface {
	createAsUpstream(obj tree.Object, namespaced bool) field.ErrorList
	updateAsUpstream(subresource string, obj, old tree.Object, namespaced bool) field.ErrorList
}

func (r rules[V, I]) converted(obj tree.Object) (*I, error) {
	var v V
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(obj, &v); err != nil {
		return nil, fmt.Errorf("decode a %T: %w", v, err)
	}
	return r.internal(&v, nil)
}

func (r rules[V, I]) createAsUpstream(obj tree.Object, namespaced bool) (errs field.ErrorList) {
	defer contain(&errs)
	in, err := r.converted(obj)
	if err != nil {
		return undecodable(err)
	}
	if errs = r.create(in); len(errs) > 0 {
		return errs
	}
	return apivalidation.ValidateObjectMetaAccessor(metaOf(in), namespaced, tree.PathSegmentName, metadataPath)
}

func (r rules[V, I]) updateAsUpstream(subresource string, obj, old tree.Object, namespaced bool) (errs field.ErrorList) {
	defer contain(&errs)
	in, err := r.converted(obj)
	if err != nil {
		return undecodable(err)
	}
	was, err := r.converted(old)
	if err != nil {
		return undecodable(err)
	}
	if metaOf(in).GetResourceVersion() == "" {
		metaOf(in).SetResourceVersion(metaOf(was).GetResourceVersion())
	}
	validate := r.update
	if part := r.parts[subresource]; part != nil {
		validate = part
	}
	errs = apivalidation.ValidateObjectMetaAccessor(metaOf(in), namespaced, tree.PathSegmentName, metadataPath)
	errs = append(errs, apivalidation.ValidateObjectMetaAccessorUpdate(metaOf(in), metaOf(was), metadataPath)...)
	return append(errs, validate(in, was)...)
}

// TestAsUpstream: what is saved changes no answer. Objects and their updates are changed at random
// and validated both ways. Of each kind some are valid and some are not.
func TestAsUpstream(t *testing.T) {
	of := samples(t)
	rounds := 100
	if testing.Short() {
		rounds = 60
	}
	for _, name := range Kinds() {
		t.Run(name, func(t *testing.T) {
			s := of[name]
			model, err := schema.Lookup(s.res.Model)
			must.OK(t, err)
			rules := all[name].(interface {
				Kind
				asUpstream
				subresources() []string
			})
			begin := runtime.DeepCopyJSON(s.obj)
			prepare(name, begin)
			ways := append([]string{""}, rules.subresources()...)
			valid, wrong := 0, 0
			for seed := range rounds {
				m := mutator{rand.New(rand.NewPCG(uint64(seed), 7))}
				old := runtime.DeepCopyJSON(begin)
				tree.As(old["metadata"])["resourceVersion"] = "7"
				tree.As(old["metadata"])["managedFields"] = []any{tree.Object{"manager": "m", "operation": "Update", "apiVersion": "v1", "fieldsType": "FieldsV1", "fieldsV1": tree.Object{"f:a": tree.Object{}}}}
				for range m.IntN(2) {
					m.change(old)
				}
				obj := runtime.DeepCopyJSON(old)
				if m.IntN(2) == 0 { // as a patch does
					obj = maps.Clone(old)
					for k, v := range obj {
						if m.IntN(2) == 0 {
							obj[k] = runtime.DeepCopyJSONValue(v)
						}
					}
					obj["metadata"] = runtime.DeepCopyJSONValue(obj["metadata"])
				}
				if m.IntN(4) > 0 {
					own := runtime.DeepCopyJSON(obj)
					m.change(own)
					for k, v := range own {
						if !tree.Equal(v, obj[k]) {
							obj[k] = v
						}
					}
				}
				if _, err := model.Fit(old); err != nil {
					continue
				}
				if _, err := model.Fit(obj); err != nil {
					continue
				}
				part := ways[m.IntN(len(ways))]
				created, objBefore, oldBefore := runtime.DeepCopyJSON(obj), runtime.DeepCopyJSON(obj), runtime.DeepCopyJSON(old)
				delete(tree.As(created["metadata"]), "resourceVersion")
				got, want := rules.Update(part, obj, old, s.res.Namespaced, nil), rules.updateAsUpstream(part, objBefore, oldBefore, s.res.Namespaced)
				if a, b := words(got), words(want); a != b {
					t.Errorf("seed %d: update %s of %v\nto %v:\n%s\nupstream:\n%s", seed, part, old, obj, a, b)
				}
				if !tree.Equal(obj, objBefore) || !tree.Equal(old, oldBefore) {
					t.Errorf("seed %d: a tree was changed", seed)
				}
				if a, b := words(rules.Create(created, s.res.Namespaced, nil)), words(rules.createAsUpstream(created, s.res.Namespaced)); a != b {
					t.Errorf("seed %d: create of %v:\n%s\nupstream:\n%s", seed, created, a, b)
				}
				if len(want) == 0 {
					valid++
				} else {
					wrong++
				}
			}
			if valid < rounds/20 || wrong < rounds/20 {
				t.Errorf("%d of %d updates were valid, %d were not", valid, rounds, wrong)
			}
		})
	}
}

// words are the errors, sorted: upstream's functions range over maps.
func words(errs field.ErrorList) string {
	var out []string
	for _, e := range errs {
		out = append(out, string(e.Type)+" "+e.Error())
	}
	slices.Sort(out)
	return strings.Join(out, "\n")
}

// mutator changes one place of a tree.
type mutator struct{ *rand.Rand }

var replacements = []any{
	"", "a", "a b", "A-b.c", "-", "..", ".a", "é", strings.Repeat("x", 64), strings.Repeat("x", 300), "example.com/x", "1", "100m", "2026-01-02T03:04:05Z", "2026-01-02T03:04:05.000006Z",
	int64(0), int64(-1), int64(7), int64(1 << 40), true, false, nil,
}

func (m mutator) change(obj tree.Object) {
	type place struct {
		in  tree.Object
		of  []any
		key string
		i   int
	}
	var places []place
	var walk func(x any)
	walk = func(x any) {
		switch x := x.(type) {
		case tree.Object:
			for _, k := range slices.Sorted(maps.Keys(x)) {
				if k == "managedFields" && m.IntN(4) > 0 || k == "kind" || k == "apiVersion" {
					continue
				}
				if k != "metadata" {
					places = append(places, place{in: x, key: k})
				}
				walk(x[k])
			}
		case []any:
			for i := range x {
				places = append(places, place{of: x, i: i})
				walk(x[i])
			}
		}
	}
	walk(obj)
	switch meta := tree.As(obj["metadata"]); m.IntN(8) {
	case 0:
		meta["labels"] = tree.Object{m.text(): m.text()}
		return
	case 1:
		meta["annotations"] = tree.Object{m.text(): strings.Repeat("x", []int{1, 5000, 300_000}[m.IntN(3)])}
		return
	case 2:
		meta["finalizers"] = []any{m.text()}
		return
	case 3:
		meta[[]string{"generateName", "name", "namespace", "resourceVersion", "deletionTimestamp", "creationTimestamp"}[m.IntN(6)]] = m.text()
		return
	case 4:
		meta[[]string{"generation", "deletionGracePeriodSeconds"}[m.IntN(2)]] = int64(m.IntN(4) - 1)
		return
	}
	p := places[m.IntN(len(places))]
	var now any
	if p.in != nil {
		now = p.in[p.key]
	} else {
		now = p.of[p.i]
	}
	var to any
	switch now := now.(type) {
	case string:
		to = m.text()
	case int64:
		to = replacements[15+m.IntN(4)]
	case bool:
		to = !now
	case tree.Object:
		to = tree.Object{}
		if m.IntN(2) == 0 {
			to = maps.Clone(now)
			to.(tree.Object)[m.text()] = m.text()
		}
	case []any:
		to = []any{}
		if len(now) > 0 && m.IntN(2) == 0 {
			to = append(slices.Clone(now), now[m.IntN(len(now))])
		}
	}
	switch {
	case p.in == nil:
		p.of[p.i] = to
	case to == nil || m.IntN(6) == 0:
		delete(p.in, p.key)
	default:
		p.in[p.key] = to
	}
}

func (m mutator) text() string { return replacements[m.IntN(15)].(string) }

// TestPlain: plain.go says what these functions of upstream's accept. If one of them has changed,
// read it, and plain.go again; then write the new sum here. Ordinary objects are accepted.
func TestPlain(t *testing.T) {
	packages := map[string]map[string]string{ // by directory in the module cache, of functions
		"k8s.io/kubernetes/pkg/apis/core/validation": {
			"ValidateConfigMap":        "883980693d5ff528",
			"ValidateConfigMapUpdate":  "4e97a7dd7789f85a",
			"ValidateObjectMeta":       "8eb1b1f321057ca8",
			"ValidateObjectMetaUpdate": "f0205e2bf630d484",
		},
		"k8s.io/kubernetes/pkg/apis/coordination/validation": {
			"ValidateLease":       "62f290995086ce1d",
			"ValidateLeaseUpdate": "6564015c2ebf4030",
			"ValidateLeaseSpec":   "bede7be0cda86049",
		},
		"k8s.io/apimachinery/pkg/api/validation": {
			"ValidateObjectMetaAccessor":               "288620307cd82491",
			"ValidateObjectMetaAccessorUpdate":         "a29d39470f7c2c08",
			"validateObjectMetaAccessorWithOptsCommon": "417d7270a6e55f3d",
			"ValidateAnnotations":                      "75b4be830d273cfe",
		},
		"k8s.io/apimachinery/pkg/apis/meta/v1/validation": {
			"ValidateLabels":        "c38e2a639d5919b7",
			"ValidateManagedFields": "2ca541cb91f68ab9",
		},
	}
	args := append([]string{"list", "-f", "{{.ImportPath}} {{.Dir}}"}, slices.Sorted(maps.Keys(packages))...)
	out, err := exec.Command("go", args...).Output()
	if err != nil {
		t.Fatalf("find the sources: %v", err)
	}
	for line := range strings.Lines(string(out)) {
		pkg, dir, _ := strings.Cut(strings.TrimSpace(line), " ")
		sums := sumsOf(t, dir)
		for _, function := range slices.Sorted(maps.Keys(packages[pkg])) {
			if want := packages[pkg][function]; sums[function] != want {
				t.Errorf("%s.%s has the sum %q, not %s", pkg, function, sums[function], want)
			}
		}
		delete(packages, pkg)
	}
	if len(packages) > 0 {
		t.Errorf("not found: %v", packages)
	}
	of := samples(t)
	for name, plain := range map[string]plainFunc{"configmaps": plainConfigMap, "leases.coordination.k8s.io": plainLease} {
		obj := of[name].obj
		delete(obj, "binaryData") // few have one
		delete(obj, "immutable")
		tree.As(obj["metadata"])["managedFields"] = []any{tree.Object{"manager": "kubectl-client-side-apply", "operation": "Update", "fieldsType": "FieldsV1"}}
		if !plain(obj, nil) {
			t.Errorf("an ordinary object of %s is not plain", name)
		}
		tree.As(obj["metadata"])["resourceVersion"] = "7"
		if !plain(obj, obj) {
			t.Errorf("an ordinary update of %s is not plain", name)
		}
	}
}

// sumsOf are of the texts of a package's functions, without comments.
func sumsOf(t *testing.T, dir string) map[string]string {
	t.Helper()
	sums := map[string]string{}
	files, err := filepath.Glob(filepath.Join(dir, "*.go"))
	must.OK(t, err)
	for _, file := range files {
		fset := token.NewFileSet()
		parsed, err := parser.ParseFile(fset, file, nil, 0)
		must.OK(t, err)
		for _, d := range parsed.Decls {
			if f, ok := d.(*ast.FuncDecl); ok && f.Recv == nil {
				var text strings.Builder
				must.OK(t, format.Node(&text, fset, f))
				sums[f.Name.Name] = fmt.Sprintf("%x", sha256.Sum256([]byte(text.String())))[:16]
			}
		}
	}
	return sums
}
