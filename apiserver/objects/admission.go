package objects

import (
	"errors"
	"fmt"

	"github.com/quorate/quorate/apiserver/admission"
	"github.com/quorate/quorate/apiserver/storage"
	"github.com/quorate/quorate/apiserver/tree"
	"github.com/quorate/quorate/raftstore/mvcc"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// Plugins are asked at two places of every write, and nowhere else: admit before an object is
// prepared and validated, admitFinal when it is what will be stored. Deletions come by
// admitDelete, what is posted and not stored by AdmitPosted, connections by AdmitConnect.
//
// Only what clients ask for comes here. The node's own controllers are not asked about:
// no rule of the cluster can stop what keeps it running.

// admission are the plugins, nil if none of them is to be asked.
func (o *Op) admission() admission.Interface {
	if !o.Client {
		return nil
	}
	return o.Store.Admission
}

// attributesOf begins a decision: it forgets what the one before has consulted.
func (o *Op) attributesOf(operation admission.Operation, obj, old tree.Object) *admission.Attributes {
	a := &o.attributes
	a.Reset()
	o.refusedByPlugin = false
	a.Operation, a.Kind, a.Resource, a.Subresource = operation, o.Resource.GVK(), o.Info.GVR(), o.Info.Subresource
	a.Namespace, a.Name, a.User, a.DryRun = o.Info.ObjectNamespace, o.Info.Name, o.User, o.Options.IsDryRun()
	a.FieldManager, a.FieldValidation = o.Options.FieldManager, o.Options.FieldValidation
	a.Object, a.Old, a.Told = obj, old, o
	return a
}

// Admit is admit for updates in a way of their own, which end with FinishUpdate.
func (o *Op) Admit(obj, old tree.Object) error { return o.admit(obj, old) }

// admit asks the mutating plugins about an object that is complete but for what is generated.
func (o *Op) admit(obj, old tree.Object) error {
	chain := o.admission()
	if chain == nil {
		return nil
	}
	if old == nil && o.namespaceError() != nil {
		// No plugin is asked what may be in a namespace that takes nothing.
		if err := o.Store.Confirm(o.Context); err != nil {
			return err
		}
		if err := o.namespaceError(); err != nil {
			return err
		}
	}
	a := o.attributesOf(admission.Create, obj, old)
	if old != nil {
		a.Operation = admission.Update
	}
	var err error
	if o.Subresource == nil || o.Subresource.Name != "scale" {
		err = chain.Admit(o.Context, a)
	} else {
		err = o.admitScale(chain, a, obj, old)
	}
	o.refusedByPlugin = err != nil
	return err
}

// admitScale asks about the Scale that is written, and takes its replicas.
func (o *Op) admitScale(chain admission.Interface, a *admission.Attributes, obj, old tree.Object) error {
	a.Kind = scaleKind.GVK()
	a.Object, a.Old = o.scaleOf(obj), o.scaleOf(old)
	if err := chain.Admit(o.Context, a); err != nil {
		return err
	}
	replicas, _ := tree.Int(tree.Lookup(a.Object, "spec.replicas"))
	return tree.Set(obj, o.Subresource.SpecReplicas, replicas)
}

// admitFinal asks the validating plugins about an object as it will be stored. It follows
// admit in the same decision.
func (o *Op) admitFinal(obj, old tree.Object) error {
	chain := o.admission()
	if chain == nil {
		return nil
	}
	a := &o.attributes
	a.Name, a.Object = o.Info.Name, obj
	if o.Subresource != nil && o.Subresource.Name == "scale" {
		a.Object = o.scaleOf(obj)
	}
	err := chain.Validate(o.Context, a)
	o.refusedByPlugin = err != nil
	return err
}

// admitDelete asks all plugins about the deletion of an object, as upstream does: with the
// object as it is, and none as it will be.
func (o *Op) admitDelete(options *metav1.DeleteOptions, cur *mvcc.Version) error {
	chain := o.admission()
	if chain == nil {
		return nil
	}
	a := o.attributesOf(admission.Delete, nil, nil)
	a.DeleteOptions = options
	if !chain.Handles(a) {
		return nil // the ordinary case: nothing is decoded
	}
	old, err := o.Decode(cur)
	if err != nil {
		return err
	}
	a.Old = old
	if err := chain.Admit(o.Context, a); err != nil {
		return err
	}
	return chain.Validate(o.Context, a)
}

// AdmitPosted asks all plugins about what is posted and not stored. in is what the Creater has
// made; plugins may change it. Errors: the plugins', for the client.
func (o *Op) AdmitPosted(p *Creater, in runtime.Object) error {
	chain := o.admission()
	if chain == nil {
		return nil
	}
	for {
		err := o.admitPosted(chain, p, in)
		if o.refusedByPlugin = err != nil; err == nil {
			return nil
		}
		if err = o.refused(err); !errors.Is(err, ErrDecideAgain) {
			return err
		}
	}
}

func (o *Op) admitPosted(chain admission.Interface, p *Creater, in runtime.Object) error {
	a := o.attributesOf(admission.Create, tree.Object{}, nil)
	a.Kind = p.KindOf(o).GVK()
	if !chain.Handles(a) {
		return nil
	}
	obj, err := runtime.DefaultUnstructuredConverter.ToUnstructured(in)
	if err != nil {
		return storage.Permanent{Err: err}
	}
	obj["apiVersion"], obj["kind"] = a.Kind.GroupVersion().String(), a.Kind.Kind
	a.Object = obj
	if err := chain.Admit(o.Context, a); err != nil {
		return err
	}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(a.Object, in); err != nil {
		return fmt.Errorf("what admission has made of a %s: %w", a.Kind.Kind, err)
	}
	return chain.Validate(o.Context, a)
}

// Annotate adds a note to the operation's audit event, if it has one.
func (o *Op) Annotate(key, value string) { o.Event.Annotate(key, value) }
