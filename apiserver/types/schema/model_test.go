package schema

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/quorate/quorate/internal/must"
)

// noted is a form that says what it was asked.
type noted struct{ asked *[]string }

var errNoted = errors.New("noted")

func (n noted) note(name string) error {
	*n.asked = append(*n.asked, name)
	return errNoted
}

func (n noted) Fit(map[string]any) ([]string, error)       { return []string{"fit"}, n.note("Fit") }
func (n noted) FitMerged(map[string]any) ([]string, error) { return nil, n.note("FitMerged") }
func (n noted) DropNulls(map[string]any)                   { _ = n.note("DropNulls") }
func (n noted) Default(map[string]any) error               { return n.note("Default") }

// TestForm: a model of a form is its form, and has no zeros.
func TestForm(t *testing.T) {
	var asked []string
	m := NewModel("example.com/v1.Kind", noted{&asked})
	obj := map[string]any{"a": nil}
	if unknown, err := m.Fit(obj); err != errNoted || !cmp.Equal(unknown, []string{"fit"}) {
		t.Errorf("Fit: %v, %v", unknown, err)
	}
	if unknown, err := m.FitKeeping(obj); err != nil || unknown != nil {
		t.Errorf("FitKeeping: %v, %v", unknown, err)
	}
	if err := m.FitMerged(obj, nil); err != errNoted {
		t.Errorf("FitMerged: %v", err)
	}
	if err := m.Default(obj); err != errNoted {
		t.Errorf("Default: %v", err)
	}
	m.Fill(obj)
	if m.FillKeeping(obj) || len(m.Zero()) > 0 || !cmp.Equal(obj, map[string]any{"a": nil}) {
		t.Errorf("a form is filled: %v, %v", obj, m.Zero())
	}
	if d := cmp.Diff(asked, []string{"Fit", "FitMerged", "Default"}); d != "" {
		t.Error(d)
	}
}

// TestFitKeeping: what is applied keeps its zeros; what was merged, and what is sent, does not.
func TestFitKeeping(t *testing.T) {
	m, err := Lookup("io.k8s.api.core.v1.Container")
	must.OK(t, err)
	sent := func() map[string]any {
		return map[string]any{"stdin": false, "args": []any{}, "image": "", "workingDir": nil, "ports": []any{map[string]any{"hostPort": 0.0}}}
	}
	kept := sent()
	if _, err := m.FitKeeping(kept); err != nil {
		t.Fatal(err)
	}
	want := map[string]any{"stdin": false, "args": []any{}, "image": "", "ports": []any{map[string]any{"hostPort": int64(0)}}}
	if d := cmp.Diff(want, kept); d != "" {
		t.Errorf("FitKeeping: %s", d)
	}
	merged := sent()
	must.OK(t, m.FitMerged(merged, nil))
	if d := cmp.Diff(map[string]any{"ports": []any{map[string]any{}}}, merged); d != "" {
		t.Errorf("FitMerged: %s", d)
	}
	if err := m.FitMerged(map[string]any{"args": 1.5}, nil); err == nil {
		t.Error("FitMerged has no error")
	}
}

// TestFillLeavesMetadata: what is at the top is given by who stores the object; what is in a template
// is of the template.
func TestFillLeavesMetadata(t *testing.T) {
	m, err := Lookup("io.k8s.api.core.v1.PodTemplate")
	must.OK(t, err)
	obj := map[string]any{"template": map[string]any{}}
	m.Fill(obj)
	want := map[string]any{"template": map[string]any{"metadata": map[string]any{}, "spec": map[string]any{"containers": nil}}}
	if d := cmp.Diff(want, obj); d != "" {
		t.Error(d)
	}
}

// TestEmptyListsThatStay: upstream stores definitions in JSON, where an empty list is another thing than
// null; and policies without one are refused, not forgotten.
func TestEmptyListsThatStay(t *testing.T) {
	for name, field := range map[string]string{
		"io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.CustomResourceDefinitionSpec": "versions",
		scalingRules: "policies",
	} {
		m, err := Lookup(name)
		must.OK(t, err)
		obj := map[string]any{field: []any{}}
		if m.Fill(obj); !cmp.Equal(obj[field], any([]any{})) {
			t.Errorf("%s: %v", name, obj)
		}
		if m.FillKeeping(obj) {
			t.Errorf("%s: something is kept that Fill would make null", name)
		}
	}
}

// TestIsZero: which values are as good as none.
func TestIsZero(t *testing.T) {
	for _, v := range []any{"", false, int64(0), 0.0, []any{}, map[string]any{}} {
		if !isZero(v) {
			t.Errorf("%#v", v)
		}
	}
	for _, v := range []any{nil, "x", true, int64(1), 0.5, []any{nil}, map[string]any{"a": nil}} {
		if isZero(v) {
			t.Errorf("%#v", v)
		}
	}
}

// TestLookupOfNoModel: a name that no model has is an error, at all times.
func TestLookupOfNoModel(t *testing.T) {
	for _, name := range []string{"", "Pod", ".Pod", "v1.Pod", "io.k8s.api.core.v1.", "io.k8s.api.core.v1.Pods"} {
		for range 2 {
			if _, err := Lookup(name); !errors.Is(err, ErrUnknownModel) {
				t.Errorf("%q: %v", name, err)
			}
		}
		if raw, ok := Raw(name); ok || raw != nil {
			t.Errorf("%q has a schema", name)
		}
	}
}
