package objects

import (
	"fmt"
	"runtime/debug"
	"sync"

	"github.com/quorate/quorate/internal/slots"
	"github.com/quorate/quorate/raftstore/mvcc"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// DeleteListed deletes objects of the collection that the operation is for, side by side. That
// some are gone already is no error; the first other one ends it. What is told of any of them
// besides is told of all.
func (o *Op) DeleteListed(versions []*mvcc.Version, options *metav1.DeleteOptions) error {
	var mu sync.Mutex // of the warnings
	defer slots.Waiting(o.Context)()
	return Each(versions, func(v *mvcc.Version) error {
		one := o.Listed(SplitKey(o.Resource, v.Key))
		ctx, end := slots.Fork(o.Context)
		one.Context = ctx
		err := one.deleteListed(options)
		end()
		if len(one.warnings.lines) > 0 {
			mu.Lock()
			o.warnings.merge(&one.warnings)
			mu.Unlock()
		}
		if apierrors.IsNotFound(err) {
			return nil
		}
		return err
	})
}

// deleteListed deletes one listed object. It is an operation of its own in all but the answer.
func (o *Op) deleteListed(options *metav1.DeleteOptions) (err error) {
	defer o.contain(&err) // what contains a request's panic does not reach this goroutine
	_, _, err = o.Delete(options)
	return err
}

// contain makes an error of a panic, such as that of a plugin, which must not end the process. It is deferred.
func (r *Request) contain(err *error) {
	if p := recover(); p != nil {
		r.Store.Panicked(&r.Kind)
		r.Store.panics.Error(r.Store.Log, "delete", "panic in an operation", "panic", p, "verb", r.Info.Verb, "resource", r.Resource.GroupResource(), "key", r.Key(), "stack", string(debug.Stack()))
		*err = fmt.Errorf("%s %s %s: panic", r.Info.Verb, r.Resource.GroupResource(), r.Key())
	}
}
