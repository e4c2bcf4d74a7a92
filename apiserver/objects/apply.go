package objects

import (
	"errors"
	"strings"

	"github.com/quorate/quorate/apiserver/objects/storage"
	"github.com/quorate/quorate/apiserver/types/fieldmanager"
	"github.com/quorate/quorate/apiserver/types/kinds"
	"github.com/quorate/quorate/apiserver/types/schema"
	"github.com/quorate/quorate/apiserver/types/tree"
	"github.com/quorate/quorate/apiserver/wire/status"
	"github.com/quorate/quorate/raftstore/mvcc"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
)

// Apply merges a configuration into the object (server-side apply, KEP-555).
type Apply struct {
	// Tree is the target's configuration, Model the object's.
	Tree    tree.Object
	Model   *schema.Model
	Manager *fieldmanager.Manager
	// body is what was sent. wrong is why nothing can be made of it, which is said only of an object
	// that may be applied to: upstream looks into the body when it has read the object.
	body  tree.Object
	wrong error
}

// canonical is a configuration with its values in the form in which they are
// stored, so that to apply "1000m" where there is "1" is no conflict; upstream
// compares the texts. What does not fit is left to the merge, which names it, as are
// nulls in lists; nulls of fields are left as they are: they say that a field is there. Errors: schema.ErrTooDeep.
func canonical(sent tree.Object, model *schema.Model) (tree.Object, error) {
	fitted := runtime.DeepCopyJSON(sent)
	dropNulls(fitted)
	switch unknown, err := model.FitKeeping(fitted); {
	case errors.Is(err, schema.ErrTooDeep):
		return nil, err
	case err != nil || len(unknown) > 0 || hasNullItem(sent):
		return sent, nil
	}
	addNulls(fitted, sent)
	if meta := tree.As(fitted["metadata"]); meta != nil { // the merge looks at what was sent
		tree.CopyField(meta, tree.As(sent["metadata"]), "managedFields")
	}
	return fitted, nil
}

// hasNullItem reports whether a list in a value has a null.
func hasNullItem(v any) bool {
	switch v := v.(type) {
	case tree.Object:
		for _, x := range v {
			if hasNullItem(x) {
				return true
			}
		}
	case []any:
		for _, x := range v {
			if x == nil || hasNullItem(x) {
				return true
			}
		}
	}
	return false
}

// dropNulls takes the fields that are null out of an object.
func dropNulls(v any) {
	switch v := v.(type) {
	case tree.Object:
		for k, x := range v {
			if x == nil {
				delete(v, k)
				continue
			}
			dropNulls(x)
		}
	case []any:
		for _, x := range v {
			dropNulls(x)
		}
	}
}

// addNulls gives an object the fields that are null in from, which has the same
// lists.
func addNulls(v, from any) {
	switch from := from.(type) {
	case tree.Object:
		to, ok := v.(tree.Object)
		if !ok {
			return
		}
		for k, x := range from {
			if x == nil {
				to[k] = nil
			} else if y, ok := to[k]; ok {
				addNulls(y, x)
			}
		}
	case []any:
		to, ok := v.([]any)
		if !ok || len(to) != len(from) {
			return
		}
		for i, x := range from {
			addNulls(to[i], x)
		}
	}
}

// insert creates the object that is applied.
func (a Apply) insert(o *Op) (Change, error) {
	if a.wrong != nil {
		return Change{}, storage.Permanent{Err: a.wrong}
	}
	merged, err := a.Manager.Apply(a.Manager.Nothing(), a.Tree, o.Options.FieldManager, o.Options.Forced())
	if err != nil {
		return Change{}, storage.Permanent{Err: applyError(err)}
	}
	if err := a.fit(o, merged); err != nil {
		return Change{}, storage.Permanent{Err: err}
	}
	obj, meta, err := tree.WithOwnMeta(merged)
	if err != nil {
		return Change{}, storage.Permanent{Err: err}
	}
	if tree.Text(meta, "uid") != "" {
		return Change{}, status.UIDPrecondition(o.Resource.GroupResource(), o.Info.Name, o.keyPath(), tree.Text(meta, "uid"), "")
	}
	return o.decideInsert(obj, meta)
}

// wanted is the whole object, whatever the target shows: fields are those of objects.
func (a Apply) wanted(o *Op, on Target, cur *mvcc.Version) (merged, old tree.Object, err error) {
	if a.wrong != nil {
		return nil, nil, a.wrong
	}
	if old, err = o.Decode(cur); err != nil {
		return nil, nil, err
	}
	live := old
	if on == Scale && hasReplicas(old, o.Subresource) {
		live = a.Manager.BeforeFirstApply(old, o.Subresource.SpecReplicas)
	}
	if merged, err = a.Manager.Apply(live, a.Tree, o.Options.FieldManager, o.Options.Forced()); err != nil {
		if on == Scale {
			err = conflictOfScale(err, o.Resource.GroupVersion().String(), o.Subresource.SpecReplicas)
		}
		return nil, nil, applyError(err)
	}
	if err := a.fit(o, merged); err != nil {
		return nil, nil, err
	}
	if on == Scale { // take compares the rest
		if replicas, there := tree.As(a.body["spec"])["replicas"]; there && replicas == nil {
			if err := a.noReplicas(o, merged); err != nil {
				return nil, nil, err
			}
		}
		if err := fitsScale(o, a.body); err != nil { // of its times
			return nil, nil, err
		}
		return merged, old, validScale(o, a.body)
	}
	// Another uid is an attempt to change it, which validation refuses.
	meta, err := tree.Meta(merged)
	if err != nil {
		return nil, nil, err
	}
	return merged, old, o.checkRevision(meta, cur)
}

// noReplicas takes back the default of the object for the replicas that a Scale says are null: a Scale
// has none.
func (a Apply) noReplicas(o *Op, merged tree.Object) error {
	var none any
	if !o.Resource.Custom {
		none = int64(0)
	}
	return tree.Set(merged, o.Subresource.SpecReplicas, none)
}

// hasReplicas reports whether a Scale of the object says how many replicas it wants: none are left out.
func hasReplicas(obj tree.Object, scale *kinds.Subresource) bool {
	n, ok := tree.Int(tree.Lookup(obj, scale.SpecReplicas))
	return ok && n != 0
}

// conflictOfScale names in a conflict the version of Scales, in which upstream shows the managers
// of the object, and their field: version and replicas are the object's.
func conflictOfScale(err error, version, replicas string) error {
	conflict := (*apierrors.StatusError)(nil)
	if !errors.As(err, &conflict) || conflict.ErrStatus.Details == nil {
		return err
	}
	conflict = &apierrors.StatusError{ErrStatus: *conflict.ErrStatus.DeepCopy()}
	replicas = "." + strings.TrimPrefix(replicas, ".")
	shown := func(s string) string {
		return strings.ReplaceAll(s, "using "+version, "using "+scaleKind.GroupVersion().String())
	}
	lines := strings.Split(shown(conflict.ErrStatus.Message), "\n")
	for i, l := range lines { // each ends with a field, if with any
		if before, ok := strings.CutSuffix(l, " "+replicas); ok {
			lines[i] = before + " .spec.replicas"
		}
	}
	conflict.ErrStatus.Message = strings.Join(lines, "\n")
	for i := range conflict.ErrStatus.Details.Causes {
		c := &conflict.ErrStatus.Details.Causes[i]
		c.Message = shown(c.Message)
		if c.Field == replicas {
			c.Field = ".spec.replicas"
		}
	}
	return conflict
}

// fit brings what an apply has made, whose values are as the client wrote them, into the
// form in which they are stored, and checks that it is the object that the path names.
func (a Apply) fit(o *Op, merged tree.Object) error {
	o.emptied = schema.Emptied{}
	if err := a.Model.FitMerged(merged, &o.emptied); err != nil {
		return status.CannotBeHandled(o.Resource.GVK(), o.Resource.Kind, err)
	}
	return o.MatchPath(merged)
}

// applyError words what the merge refuses. Upstream answers 500 for a
// configuration that does not fit the schema; it is the client's mistake.
func applyError(err error) error {
	if _, ok := err.(apierrors.APIStatus); ok {
		return err
	}
	return status.BadRequest("%v", err)
}
