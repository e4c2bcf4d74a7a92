package objects

import (
	"errors"

	"github.com/quorate/quorate/apiserver/fieldmanager"
	"github.com/quorate/quorate/apiserver/schema"
	"github.com/quorate/quorate/apiserver/status"
	"github.com/quorate/quorate/apiserver/storage"
	"github.com/quorate/quorate/apiserver/tree"
	"github.com/quorate/quorate/raftstore/mvcc"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
)

// Applied is a configuration that a client applies.
type Applied struct {
	Tree    tree.Object
	Model   *schema.Model
	Manager *fieldmanager.Manager
}

// Canonical is a configuration with its values in the form in which they are
// stored, so that to apply "1000m" where there is "1" is no conflict; upstream
// compares the texts. What does not fit is left to the merge, which names it, and
// nulls are left as they are: they say that a field is there. Errors: schema.ErrTooDeep.
func Canonical(sent tree.Object, model *schema.Model) (tree.Object, error) {
	fitted := runtime.DeepCopyJSON(sent)
	dropNulls(fitted)
	switch unknown, err := model.FitKeeping(fitted); {
	case errors.Is(err, schema.ErrTooDeep):
		return nil, err
	case err != nil || len(unknown) > 0:
		return sent, nil
	}
	addNulls(fitted, sent)
	return fitted, nil
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

// ApplyNew creates the object that is applied.
func (o *Op) ApplyNew(a Applied) (Change, error) {
	obj, err := a.Manager.Apply(a.Manager.Nothing(), a.Tree, o.Options.FieldManager, o.Options.Forced())
	if err != nil {
		return Change{}, storage.Permanent{Err: applyError(err)}
	}
	obj, meta, err := o.fitMerged(a, obj)
	if err != nil {
		return Change{}, storage.Permanent{Err: err}
	}
	if tree.Text(meta, "uid") != "" {
		return Change{}, status.UIDPrecondition(o.Resource.GroupResource(), o.Info.Name, o.keyPath(), tree.Text(meta, "uid"), "")
	}
	return o.decideInsert(obj, meta)
}

// Merged merges a configuration into the current version.
func (o *Op) Merged(cur *mvcc.Version, a Applied) (old, obj tree.Object, err error) {
	if old, err = o.Decode(cur); err != nil {
		return nil, nil, err
	}
	result, err := a.Manager.Apply(old, a.Tree, o.Options.FieldManager, o.Options.Forced())
	if err != nil {
		return nil, nil, applyError(err)
	}
	obj, meta, err := o.fitMerged(a, result)
	if err != nil {
		return nil, nil, err
	}
	return old, obj, o.CheckIdentity(meta, cur)
}

// fitMerged brings the result of an apply, whose values are as the client wrote
// them, into the form in which they are stored.
func (o *Op) fitMerged(a Applied, result tree.Object) (obj, meta tree.Object, err error) {
	if _, err := a.Model.Fit(result); err != nil {
		return nil, nil, status.CannotBeHandled(o.Resource.GVK(), o.Resource.Kind, err)
	}
	if obj, meta, err = tree.WithOwnMeta(result); err != nil {
		return nil, nil, err
	}
	return obj, meta, o.MatchPath(obj)
}

// applyError words what the merge refuses. Upstream answers 500 for a
// configuration that does not fit the schema; it is the client's mistake.
func applyError(err error) error {
	if _, ok := err.(apierrors.APIStatus); ok {
		return err
	}
	return status.BadRequest("%v", err)
}
