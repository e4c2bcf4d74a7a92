package controllers

import (
	"bytes"
	"context"
	"fmt"
	"slices"

	"github.com/quorate/quorate/apiserver/codec"
	"github.com/quorate/quorate/apiserver/kinds"
	"github.com/quorate/quorate/apiserver/objects"
	"github.com/quorate/quorate/apiserver/tree"
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
}

// EmptyNamespace implements Namespaces. Objects are deleted in the way
// of an ordinary delete: finalizers and grace periods are respected. Those that end
// gracefully go first, alone: what runs may need the rest until it has ended. Once a
// namespace terminates nothing can be created in it, so that nothing left is final.
func (l *Loops) EmptyNamespace(ctx context.Context, namespace string) (held int, err error) {
	if err := l.objects.Confirm(ctx); err != nil {
		return 0, fmt.Errorf("empty namespace %s: %w", namespace, err)
	}
	ns, err := l.objects.Current(objects.NamespacesTable, namespace)
	if err != nil || ns == nil || ns.Flags&proto.FlagTerminating == 0 {
		return 0, err
	}
	left := &content{resources: map[string]int{}, finalizers: map[string]int{}}
	for _, graceful := range [...]bool{true, false} {
		for _, res := range l.inNamespaces() {
			if res.GracePeriod == graceful {
				l.emptyTable(ctx, res, namespace, left)
			}
		}
		if left.held > 0 || len(left.errs) > 0 {
			break
		}
	}
	if err := l.noteContent(ctx, namespace, ns.UID, left); err != nil && !apierrors.IsNotFound(err) {
		left.errs = append(left.errs, err)
	}
	switch {
	case len(left.errs) > 0:
		return left.held, fmt.Errorf("empty namespace %s: %w", namespace, left.errs[0])
	case left.held > 0:
		return left.held, nil
	}
	return 0, l.finalizeEmpty(ctx, namespace)
}

// inNamespaces are the resources whose objects lie in namespaces, one for each table.
func (l *Loops) inNamespaces() []*kinds.Resource {
	var out []*kinds.Resource
	tables := l.objects.Tables()
	for _, name := range tables.Names {
		if res := tables.ByName[name]; res.Namespaced {
			out = append(out, res)
		}
	}
	return out
}

var collectorsKeys = [...][]byte{[]byte(`"` + metav1.FinalizerDeleteDependents + `"`), []byte(`"` + metav1.FinalizerOrphanDependents + `"`)}

// emptyTable deletes a namespace's objects of one resource and notes what stays.
func (l *Loops) emptyTable(ctx context.Context, res *kinds.Resource, namespace string, left *content) {
	table, prefix := res.Table(), namespace+"/"
	versions, err := l.objects.Range(table, prefix)
	if err == nil && len(versions) > 0 {
		background := metav1.DeletePropagationBackground
		options := &metav1.DeleteOptions{PropagationPolicy: &background}
		err = objects.Each(slices.DeleteFunc(versions, settledDeletion), func(v *mvcc.Version) error {
			_, err := l.objects.System(ctx, res, namespace, v.Key[len(prefix):], "delete").DeleteAs(asNamespaceController, options)
			if apierrors.IsNotFound(err) {
				return nil
			}
			return err
		})
		if err == nil {
			versions, err = l.objects.Range(table, prefix)
		}
	}
	if err != nil {
		left.errs = append(left.errs, fmt.Errorf("delete %s: %w", res.GroupResource(), err))
		return
	}
	for _, v := range versions {
		left.held++
		left.resources[res.Plural+"."+res.Group]++
		for _, f := range finalizersOf(v) {
			left.finalizers[f]++
		}
	}
}

// settledDeletion reports whether another delete would change nothing: a deletion
// runs, and its dependents are nobody's concern.
func settledDeletion(v *mvcc.Version) bool {
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

// CountContent implements Namespaces.
func (l *Loops) CountContent(namespace string) (n int, err error) {
	for _, res := range l.inNamespaces() {
		versions, err := l.objects.Range(res.Table(), namespace+"/")
		if err != nil {
			return 0, err
		}
		n += len(versions)
	}
	return n, nil
}
