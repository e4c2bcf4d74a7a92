package objects

import (
	"fmt"
	"strings"

	"github.com/quorate/quorate/apiserver/patch"
	"github.com/quorate/quorate/apiserver/request"
	"github.com/quorate/quorate/apiserver/schema"
	"github.com/quorate/quorate/apiserver/status"
	"github.com/quorate/quorate/apiserver/tree"
	"github.com/quorate/quorate/raftstore/mvcc"
	apischema "k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Patched applies a patch to the current version and returns the decoded
// version and the patched object, which has metadata of its own and names the
// same object.
func (o *Op) Patched(cur *mvcc.Version, p *patch.Patch, model *schema.Model) (old, obj tree.Object, err error) {
	if old, err = o.Decode(cur); err != nil {
		return nil, nil, err
	}
	result, err := p.Apply(old, model.PatchMeta())
	if err != nil {
		return nil, nil, err
	}
	if _, err := CheckKind(result, o.Resource.GVK()); err != nil {
		return nil, nil, err
	}
	unknown, err := model.Fit(result)
	if err != nil {
		return nil, nil, o.UnfitPatch(p, err)
	}
	if err := o.PatchFindings(p, unknown); err != nil {
		return nil, nil, err
	}
	obj, meta, err := tree.WithOwnMeta(result)
	if err != nil {
		return nil, nil, err
	}
	if err := o.MatchPath(obj); err != nil {
		return nil, nil, err
	}
	// Another uid is an attempt to change it, which validation refuses; a PUT of an
	// object with another uid is about another object.
	return old, obj, o.checkRevision(meta, cur)
}

// UnfitPatch is the answer to a patch whose result has a value of the wrong type.
func (o *Op) UnfitPatch(p *patch.Patch, err error) error {
	return status.Invalid(apischema.GroupKind{}, "", field.ErrorList{
		field.Invalid(field.NewPath("patch"), string(p.Raw), err.Error()),
	})
}

// PatchFindings deals with unknown and duplicate fields of a patch. What is
// stored has none, so the result's are the patch's.
func (o *Op) PatchFindings(p *patch.Patch, unknown []string) error {
	findings := Findings(p.Duplicates, unknown)
	if len(findings) == 0 {
		return nil
	}
	switch o.Options.Strictness() {
	case request.StrictFields:
		return status.Invalid(apischema.GroupKind{}, "", field.ErrorList{
			field.Invalid(field.NewPath("patch"), string(p.Raw), fmt.Sprintf("strict decoding error: %s", JoinFindings(findings))),
		})
	case request.WarnFields:
		o.Warn(findings)
	}
	return nil
}

// CheckKind refuses a body of another kind than the path's; what it does not
// say is taken from the path.
func CheckKind(obj tree.Object, want apischema.GroupVersionKind) (apischema.GroupVersionKind, error) {
	got, err := SentKind(tree.Text(obj, "kind"), tree.Text(obj, "apiVersion"), want)
	if err == nil {
		obj["kind"], obj["apiVersion"] = want.Kind, want.GroupVersion().String()
	}
	return got, err
}

// SentKind is checkKind for what a body says of itself.
func SentKind(kind, apiVersion string, want apischema.GroupVersionKind) (apischema.GroupVersionKind, error) {
	got := want
	if kind != "" {
		got.Kind = kind
	}
	if apiVersion != "" {
		gv, err := apischema.ParseGroupVersion(apiVersion)
		if err != nil {
			return got, status.BadRequest("%v", err)
		}
		got.Group, got.Version = gv.Group, gv.Version
	}
	switch {
	case got.Kind != want.Kind:
		return got, status.CannotBeHandled(got, want.Kind, fmt.Errorf("the path is one of %s", want.GroupVersion().WithKind(want.Kind)))
	case got.GroupVersion() != want.GroupVersion():
		return got, status.VersionMismatch(got.GroupVersion().String(), want.GroupVersion().String())
	}
	return got, nil
}

// Findings words what strict decoding finds.
func Findings(duplicates, unknown []string) []string {
	if len(unknown) == 0 {
		return duplicates
	}
	findings := append([]string(nil), duplicates...)
	for _, path := range unknown {
		findings = append(findings, fmt.Sprintf("unknown field %q", path))
	}
	return findings
}

func JoinFindings(findings []string) string { return strings.Join(findings, ", ") }
