package objects

import (
	"errors"
	"fmt"

	"github.com/quorate/quorate/apiserver/admission"
	"github.com/quorate/quorate/apiserver/storage"
	"github.com/quorate/quorate/apiserver/tree"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// AdmitPosted asks all plugins about what is posted and not stored. in is what the Creater has
// made; plugins may change it. Errors: the plugins', for the client.
func (o *Op) AdmitPosted(p *Creater, in runtime.Object) error {
	return o.admitTyped(admission.Create, p.KindOf(o).GVK(), in, func(obj tree.Object) error {
		if o.Subresource == nil {
			return nil
		}
		return o.completePosted(p, obj)
	})
}

// AdmitConnect asks all plugins about a connection to what the operation names. options are
// what the client asks for, of a kind of k8s.io/api; plugins may change them. A connection is
// no entry of the log, where the rules that decided about a write are looked at again. So this
// node first learns every rule that was there when the request came. Errors: the plugins', for
// the client; why the newest state is not known.
func (o *Op) AdmitConnect(kind schema.GroupVersionKind, options runtime.Object) error {
	if err := o.Store.Confirm(o.Context); err != nil {
		return err
	}
	return o.admitTyped(admission.Connect, kind, options, func(tree.Object) error { return nil })
}

// admitTyped asks about what is not stored. A refusal by rules that have changed meanwhile is
// decided again.
func (o *Op) admitTyped(operation admission.Operation, kind schema.GroupVersionKind, in runtime.Object, complete func(tree.Object) error) error {
	chain := o.admission()
	if chain == nil {
		return nil
	}
	for {
		err := o.askTyped(chain, operation, kind, in, complete)
		if o.refusedByPlugin = err != nil; err == nil {
			return nil
		}
		if err = o.refused(err); !errors.Is(err, ErrDecideAgain) {
			return err
		}
	}
}

func (o *Op) askTyped(chain admission.Interface, operation admission.Operation, kind schema.GroupVersionKind, in runtime.Object, complete func(tree.Object) error) error {
	a := o.attributesOf(operation, tree.Object{}, nil)
	if a.Kind = kind; !chain.Handles(a) {
		return nil
	}
	obj, err := runtime.DefaultUnstructuredConverter.ToUnstructured(in)
	if err != nil {
		return storage.Permanent{Err: err}
	}
	obj["apiVersion"], obj["kind"] = kind.GroupVersion().String(), kind.Kind
	if err := complete(obj); err != nil {
		return err
	}
	a.Object = obj
	if a.Name == "" { // as of any other create, though nothing is stored under it
		a.Name = tree.Text(a.Meta(), "name")
	}
	if err := chain.Admit(o.Context, a); err != nil {
		return err
	}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(a.Object, in); err != nil {
		return fmt.Errorf("what admission has made of a %s: %w", kind.Kind, err)
	}
	return chain.Validate(o.Context, a)
}

// completePosted fills in what is left out of what is posted to an object.
func (o *Op) completePosted(p *Creater, obj tree.Object) error {
	model, err := ModelOf(p.KindOf(o))
	if err != nil {
		return err
	}
	if _, err := model.Fit(obj); err != nil {
		return storage.Permanent{Err: err}
	}
	if err := model.Default(obj); err != nil {
		return storage.Permanent{Err: err}
	}
	meta, err := tree.Meta(obj)
	if err == nil && o.Resource.Namespaced && tree.Text(meta, "namespace") == "" {
		meta["namespace"] = o.Info.ObjectNamespace
	}
	return err
}
