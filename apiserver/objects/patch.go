package objects

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/quorate/quorate/apiserver/objects/patch"
	"github.com/quorate/quorate/apiserver/types/schema"
	"github.com/quorate/quorate/apiserver/types/tree"
	"github.com/quorate/quorate/apiserver/wire/codec"
	"github.com/quorate/quorate/apiserver/wire/request"
	"github.com/quorate/quorate/apiserver/wire/status"
	"github.com/quorate/quorate/raftstore/mvcc"
	"k8s.io/apimachinery/pkg/runtime"
	apischema "k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Patch applies a patch to what the target shows.
type Patch struct{ *patch.Patch }

func (p Patch) insert(o *Op) (Change, error) { return Change{}, o.NotFound() }

func (p Patch) wanted(o *Op, on Target, cur *mvcc.Version) (sent, old tree.Object, err error) {
	if old, err = o.Decode(cur); err != nil {
		return nil, nil, err
	}
	sent, err = on.patched(o, p.Patch, old, cur)
	return sent, old, err
}

// keepTexts keeps what a patch has made of an object as texts, for the fields that are kept as they
// were sent.
func (o *Op) keepTexts(p *patch.Patch, from tree.Object, model *schema.Model, cur *mvcc.Version) {
	if !model.HasRaw() {
		return
	}
	if o.sent = p.Texts(model.WithRaw(from, model.RawTexts(cur.Value()))); o.sent == nil {
		o.sent = p.Raw
	}
}

// fitPatched makes what a patch has made fit the model, and checks that it is the object that
// the path names.
func (o *Op) fitPatched(p *patch.Patch, patched tree.Object, model *schema.Model) error {
	unknown, err := o.fit(model, patched, p.Numbers())
	if err == nil && model.Name == o.Resource.Model {
		err = o.fitKind(patched)
	}
	if err != nil {
		why := err.Error()
		if p.Type != types.StrategicMergePatchType {
			return invalidPatch(string(p.Raw), why)
		}
		if mismatch := (*schema.MismatchError)(nil); errors.As(err, &mismatch) {
			why = mismatch.Unstructured()
		}
		return invalidPatch(p.Merged(), why)
	}
	if err := o.patchFindings(p, unknown); err != nil {
		return err
	}
	return o.MatchPath(patched)
}

// saysText refuses what a JSON or a merge patch has made of an object whose kind or apiVersion is no
// text. What a strategic merge patch has made is held against the schema.
func saysText(p *patch.Patch, patched tree.Object) error {
	if p.Type == types.StrategicMergePatchType {
		return nil
	}
	if err := codec.CheckType(patched); err != nil {
		return invalidPatch(string(p.Raw), "couldn't get version/kind; json parse error: "+err.Error())
	}
	return nil
}

// saysVersion refuses what a JSON or a merge patch has made of an object that does not say of which
// version it is: upstream takes it for one of its internal version, in which none of its fields is
// called so, not even the metadata with the name.
func (r *Request) saysVersion(p *patch.Patch, patched tree.Object, want apischema.GroupVersionKind) error {
	if p.Type == types.StrategicMergePatchType || r.Resource.Custom || !internalVersion(tree.Text(patched, "apiVersion"), want.Group) {
		return nil
	}
	if kind := tree.Text(patched, "kind"); kind != "" && kind != want.Kind {
		return nil // which is refused as another kind
	}
	var unknown []string
	for _, name := range slices.Sorted(maps.Keys(patched)) {
		if name != "kind" && name != "apiVersion" {
			unknown = append(unknown, name)
		}
	}
	if err := r.patchFindings(p, unknown); err != nil {
		return err
	}
	return tree.MatchName(tree.Object{}, r.Info.Name)
}

// internalVersion reports whether an apiVersion is that of upstream's internal objects of a group.
func internalVersion(apiVersion, group string) bool {
	gv, err := apischema.ParseGroupVersion(apiVersion)
	if err != nil {
		return false
	}
	return gv.Version == runtime.APIVersionInternal && gv.Group == group || gv.Version == "" && (gv.Group == "" || gv.Group == group)
}

// invalidPatch refuses a patch for what it makes of an object.
func invalidPatch(shown, why string) error {
	return status.Invalid(apischema.GroupKind{}, "", field.ErrorList{field.Invalid(field.NewPath("patch"), shown, why)})
}

// patchFindings deals with unknown and duplicate fields of a patch. What is
// stored has none, so the result's are the patch's.
func (r *Request) patchFindings(p *patch.Patch, unknown []string) error {
	found := findings(p.Duplicates, unknown)
	if len(found) == 0 {
		return nil
	}
	switch r.Options.Strictness() {
	case request.StrictFields:
		return invalidPatch(string(p.Raw), fmt.Sprintf("strict decoding error: %s", joinFindings(found)))
	case request.WarnFields:
		r.Warn(found)
	}
	return nil
}

// CheckKind refuses a body of another kind than the path's; what it does not
// say is taken from the path.
func CheckKind(obj tree.Object, want apischema.GroupVersionKind) (apischema.GroupVersionKind, error) {
	got, err := sentKind(tree.Text(obj, "kind"), tree.Text(obj, "apiVersion"), want)
	if err == nil {
		obj["kind"], obj["apiVersion"] = want.Kind, want.GroupVersion().String()
	}
	return got, err
}

// sentKind is CheckKind for what a body says of itself.
func sentKind(kind, apiVersion string, want apischema.GroupVersionKind) (apischema.GroupVersionKind, error) {
	got := want
	if kind != "" {
		got.Kind = kind
	}
	if apiVersion != "" {
		gv, err := apischema.ParseGroupVersion(apiVersion)
		if err != nil {
			return got, status.BadRequest("%v", err)
		}
		if !gv.Empty() { // "/" says nothing
			got.Group, got.Version = gv.Group, gv.Version
		}
	}
	switch {
	case got.Kind != want.Kind:
		return got, status.CannotBeHandled(got, want.Kind, fmt.Errorf("the path is one of %s", want.GroupVersion().WithKind(want.Kind)))
	case got.GroupVersion() != want.GroupVersion():
		return got, status.VersionMismatch(got.GroupVersion().String(), want.GroupVersion().String())
	}
	return got, nil
}

// findings words what strict decoding finds.
func findings(duplicates, unknown []string) []string {
	if len(unknown) == 0 {
		return duplicates
	}
	found := append([]string(nil), duplicates...)
	for _, path := range unknown {
		found = append(found, fmt.Sprintf("unknown field %q", path))
	}
	return found
}

func joinFindings(found []string) string { return strings.Join(found, ", ") }
