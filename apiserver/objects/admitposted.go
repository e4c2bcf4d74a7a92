package objects

import (
	"fmt"

	"github.com/quorate/quorate/apiserver/admission"
	"github.com/quorate/quorate/apiserver/objects/storage"
	"github.com/quorate/quorate/apiserver/types/tree"
	"github.com/quorate/quorate/apiserver/wire/status"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// PostSent does what a POST asks for that stores no object of its own. Errors are for the client.
func (o *Op) PostSent(p *Creater, contentType string, body []byte) (out Created, err error) {
	err = o.decideAgain(func() error {
		in, err := o.decodePosted(contentType, body, p)
		if err == nil {
			out, err = o.post(p, in)
		}
		return err
	})
	return out, err
}

// post does what a POST asks for. in is what the Creater has made of the body; plugins may change it.
func (o *Op) post(p *Creater, in runtime.Object) (Created, error) {
	m := in.(metav1.Object)
	o.wipeMeta(p, m)
	if !o.Resource.Namespaced {
		m.SetNamespace("")
	} else if m.GetNamespace() != "" && m.GetNamespace() != o.Info.ObjectNamespace {
		return Created{}, status.NamespaceMismatch()
	}
	begin := func(obj tree.Object) error { return o.completePosted(p, obj) }
	complete := func() error { return nil }
	if p.Complete != nil {
		complete = func() error { return p.Complete(o, in) }
	}
	if err := o.admitTyped(admission.Create, p.KindOf(o).GVK(), in, begin, complete); err != nil {
		return Created{}, err
	}
	return p.Create(o, in)
}

// wipeMeta takes out what a client cannot set of the metadata. Nobody manages the fields of what is not stored.
func (r *Request) wipeMeta(p *Creater, m metav1.Object) {
	m.SetManagedFields(nil)
	if p.KeepsMeta && r.Info.Subresource != "" {
		return
	}
	m.SetUID("")
	m.SetCreationTimestamp(metav1.Time{})
	m.SetDeletionTimestamp(nil)
	m.SetDeletionGracePeriodSeconds(nil)
	m.SetSelfLink("")
}

// AdmitConnect asks all plugins about a connection to what the operation names. options are
// what the client asks for, of a kind of k8s.io/api; plugins may change them. A connection is
// no entry of the log, where the rules that decided about a write are looked at again. So this
// node first learns every rule that was there when the request came. Errors: the plugins', for
// the client; why the newest state is not known.
func (d *decision) AdmitConnect(kind schema.GroupVersionKind, options runtime.Object) error {
	if err := d.Store.Confirm(d.Context); err != nil {
		return err
	}
	nothing := func() error { return nil }
	return d.admitTyped(admission.Connect, kind, options, func(tree.Object) error { return nothing() }, nothing)
}

// admitTyped asks about what is not stored. Mutating plugins see what begin has made of it, validating ones what complete has. A
// refusal by rules that have changed meanwhile is decided again.
func (d *decision) admitTyped(operation admission.Operation, kind schema.GroupVersionKind, in runtime.Object, begin func(tree.Object) error, complete func() error) error {
	chain := d.admission()
	if chain == nil {
		return complete()
	}
	return d.decideAgain(func() error {
		err := d.askTyped(chain, operation, kind, in, begin, complete)
		if d.refusedByPlugin = err != nil; err == nil {
			return nil
		}
		return d.refused(err)
	})
}

func (d *decision) askTyped(chain admission.Interface, operation admission.Operation, kind schema.GroupVersionKind, in runtime.Object, begin func(tree.Object) error, complete func() error) error {
	a := d.attributesOf(operation, tree.Object{}, nil)
	if a.Kind = kind; !chain.Handles(a) {
		return complete()
	}
	obj, err := treeOf(kind, in)
	if err != nil {
		return err
	}
	if err := begin(obj); err != nil {
		return err
	}
	a.Object = obj
	if a.Name == "" { // as of any other create, though nothing is stored under it
		a.Name = tree.Text(a.Meta(), "name")
	}
	if err := chain.Admit(d.Context, a); err != nil {
		return err
	}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(a.Object, in); err != nil {
		return fmt.Errorf("what admission has made of a %s: %w", kind.Kind, err)
	}
	if err := complete(); err != nil {
		return err
	}
	if obj, err = treeOf(kind, in); err != nil {
		return err
	}
	a.SetObject(obj)
	return chain.Validate(d.Context, a)
}

// treeOf is an object of a type of k8s.io/api as a tree.
func treeOf(kind schema.GroupVersionKind, in runtime.Object) (tree.Object, error) {
	obj, err := runtime.DefaultUnstructuredConverter.ToUnstructured(in)
	if err != nil {
		return nil, storage.Permanent{Err: err}
	}
	obj["apiVersion"], obj["kind"] = kind.GroupVersion().String(), kind.Kind
	return obj, nil
}

// completePosted fills in what is left out of what is posted.
func (o *Op) completePosted(p *Creater, obj tree.Object) error {
	model, err := ModelOf(p.KindOf(o))
	if err != nil {
		return err
	}
	// It has the form of its type, with the nulls that upstream's plugins see, too.
	if err := model.Default(obj); err != nil {
		return storage.Permanent{Err: err}
	}
	meta, err := tree.Meta(obj)
	if err == nil && o.Resource.Namespaced && tree.Text(meta, "namespace") == "" {
		meta["namespace"] = o.Info.ObjectNamespace
	}
	return err
}
