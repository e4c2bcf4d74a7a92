package controllers

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/quorate/quorate/apiserver/objects"
	"github.com/quorate/quorate/apiserver/objects/builtin"
	"github.com/quorate/quorate/apiserver/types/kinds"
	"github.com/quorate/quorate/apiserver/types/tree"
	"github.com/quorate/quorate/apiserver/wire/codec"
	"github.com/quorate/quorate/proto"
	"github.com/quorate/quorate/raftstore/mvcc"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// content is what is left in a terminating namespace.
type content struct {
	held       int
	resources  map[string]int // by plural.group
	finalizers map[string]int
	errs       []error
	unknown    []string // versions of groups of which it is not known what there may be
}

// emptyNamespace deletes what is in a terminating namespace, says in its status what is
// left, and lets it go if that is nothing. It returns how many objects are still held.
// Objects are deleted in the way of an ordinary delete: finalizers and grace periods are
// respected. Those that end
// gracefully go first, alone: what runs may need the rest until it has ended. Once a
// namespace terminates nothing can be created in it, so that nothing left is final. What aggregated
// API servers have in it goes with the rest, beside it. Unless it may be slow, it ends
// with errSlow instead of waiting for what admission says.
func (e *emptier) emptyNamespace(ctx context.Context, namespace string, slow bool) (held int, err error) {
	if err := e.objects.Confirm(ctx); err != nil {
		return 0, fmt.Errorf("empty namespace %s: %w", namespace, err)
	}
	ns, err := e.objects.Current(objects.NamespacesTable, namespace)
	if err != nil || ns == nil || ns.Flags&proto.FlagTerminating == 0 {
		return 0, err
	}
	left := &content{resources: map[string]int{}, finalizers: map[string]int{}}
	waits, failed := false, error(nil)
	for _, graceful := range [...]bool{true, false} {
		if !graceful {
			waits = e.remote.look(namespace, ns.UID, left)
		}
		here := &content{resources: left.resources, finalizers: left.finalizers}
		for _, res := range e.inNamespaces() {
			if res.GracePeriod == graceful {
				if err := e.emptyTable(ctx, res, namespace, slow, here); err != nil {
					return 0, err
				}
			}
		}
		left.held += here.held
		left.errs = append(left.errs, here.errs...)
		if len(here.errs) > 0 {
			failed = here.errs[0]
		}
		if left.held > 0 || failed != nil {
			break
		}
	}
	if err := e.noteContent(ctx, namespace, ns.UID, left); err != nil && !apierrors.IsNotFound(err) && failed == nil {
		failed = err
	}
	switch {
	case failed != nil:
		return left.held, fmt.Errorf("empty namespace %s: %w", namespace, failed)
	case left.held > 0:
		return left.held, nil
	case waits:
		return 0, nil // what comes of it has the namespace looked at again
	}
	return 0, e.finalizeEmpty(ctx, namespace)
}

// inNamespaces are the resources whose objects lie in namespaces, one for each table.
func (e *emptier) inNamespaces() []*kinds.Resource {
	var out []*kinds.Resource
	tables := e.objects.Tables()
	for _, name := range tables.Names {
		if res := tables.ByName[name]; res.Namespaced {
			out = append(out, res)
		}
	}
	return out
}

var collectorsKeys = [...][]byte{[]byte(`"` + metav1.FinalizerDeleteDependents + `"`), []byte(`"` + metav1.FinalizerOrphanDependents + `"`)}

// emptyTable deletes a namespace's objects of one resource and notes what stays. It returns nothing but errSlow.
func (e *emptier) emptyTable(ctx context.Context, res *kinds.Resource, namespace string, slow bool, left *content) error {
	table, prefix := res.Table(), namespace+"/"
	versions, err := e.objects.Range(table, prefix)
	if err == nil && len(versions) > 0 {
		background := metav1.DeletePropagationBackground
		options := &metav1.DeleteOptions{PropagationPolicy: &background}
		var refusals refusals
		err = objects.Each(e.inTurn(slices.DeleteFunc(versions, deletionUnderWay), place{table, namespace}), func(v *mvcc.Version) error {
			o := e.objects.System(ctx, res, namespace, v.Key[len(prefix):], "delete")
			return refusals.take(o, e.deletes.delete(o, options, slow))
		})
		switch {
		case errors.Is(err, errSlow):
			return err
		case errors.Is(err, errEnough):
			e.mu.Lock()
			e.behind[place{table, namespace}] = refusals.last
			e.mu.Unlock()
			err = refusals.err
		case err == nil:
			err = refusals.err
		}
		if err == nil {
			versions, err = e.objects.Range(table, prefix)
		}
	}
	if err != nil {
		left.errs = append(left.errs, fmt.Errorf("delete %s: %w", res.GroupResource(), err))
		return nil
	}
	for _, v := range versions {
		left.held++
		left.resources[res.Plural+"."+res.Group]++
		for _, f := range finalizersOf(v) {
			left.finalizers[f]++
		}
	}
	return nil
}

// inTurn has an attempt begin with the objects behind those that were refused in the one before, if that
// ended with them: all have their turn, however many are protected.
func (e *emptier) inTurn(versions []*mvcc.Version, at place) []*mvcc.Version {
	e.mu.Lock()
	key, ok := e.behind[at]
	delete(e.behind, at)
	e.mu.Unlock()
	if !ok {
		return versions
	}
	i := slices.IndexFunc(versions, func(v *mvcc.Version) bool { return v.Key > key })
	return slices.Concat(versions[max(i, 0):], versions[:max(i, 0)])
}

// deletionUnderWay reports whether another delete would change nothing: a deletion
// runs, and the collector has nothing to do with its dependents.
func deletionUnderWay(v *mvcc.Version) bool {
	if v.Flags&proto.FlagTerminating == 0 {
		return false
	}
	raw, err := codec.RawMetadata(v)
	return err == nil && !bytes.Contains(raw, collectorsKeys[0]) && !bytes.Contains(raw, collectorsKeys[1])
}

func finalizersOf(v *mvcc.Version) []string {
	raw, err := codec.RawMetadata(v)
	if err != nil || !bytes.Contains(raw, objects.FinalizersKey) {
		return nil
	}
	meta, err := codec.ParseMetadata(raw)
	if err != nil {
		return nil
	}
	list, _ := tree.Strings(meta["finalizers"])
	return list
}

// countContent returns how many objects are in a namespace.
func (e *emptier) countContent(namespace string) (n int, err error) {
	for _, res := range e.inNamespaces() {
		versions, err := e.objects.Range(res.Table(), namespace+"/")
		if err != nil {
			return 0, err
		}
		n += len(versions)
	}
	return n, nil
}

// finalizeEmpty lets a terminating namespace without content go. It does nothing if
// the namespace is gone or not terminating.
func (e *emptier) finalizeEmpty(ctx context.Context, name string) error {
	res, err := namespacesOf(e.objects)
	if err != nil {
		return fmt.Errorf("finalize namespace %s: %w", name, err)
	}
	v, err := e.objects.Current(res.Table(), name)
	if err != nil || v == nil || v.Flags&proto.FlagTerminating == 0 {
		return err
	}
	o := e.objects.System(ctx, res, "", name, "update")
	// From what the namespace has then: others take their finalizers away meanwhile.
	withoutOurs := func(has []string) []string {
		return slices.DeleteFunc(slices.Clone(has), func(f string) bool { return f == builtin.NamespaceFinalizer })
	}
	if _, err := builtin.SetNamespaceFinalizers(o, tree.Object{"uid": v.UID}, withoutOurs); err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("finalize namespace %s: %w", name, err)
	}
	return nil
}
