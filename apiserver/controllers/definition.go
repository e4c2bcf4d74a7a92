package controllers

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/quorate/quorate/apiserver/objects"
	"github.com/quorate/quorate/apiserver/types/crd"
	"github.com/quorate/quorate/apiserver/types/kinds"
	"github.com/quorate/quorate/apiserver/types/tree"
	"github.com/quorate/quorate/raftstore/mvcc"
	apiextensions "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apischema "k8s.io/apimachinery/pkg/runtime/schema"
)

// Bounds of the time until a round is tried again whose objects are held by
// finalizers, or that failed.
const (
	definitionFirst = 100 * time.Millisecond
	definitionMost  = 10 * time.Second
)

// definitionSync gives definitions their names and deletes the objects of those that are being deleted.
type definitionSync struct {
	base
	definitions *crd.Registry
}

func (s *definitionSync) run(ctx context.Context) error {
	changed, stop, err := s.objects.WatchTable(crd.Table)
	if err != nil {
		return err
	}
	defer stop()
	wait := definitionFirst
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-changed:
			wait = definitionFirst
		case <-timer.C:
		}
		pending, err := s.sync(ctx)
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		s.reports.tried("cannot sync custom resource definitions, retrying", err, "retry", wait)
		if pending {
			timer.Reset(wait)
			wait = min(2*wait, definitionMost)
		} else {
			wait = definitionFirst
		}
	}
}

var definitionsGVR = apischema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}

// sync gives definitions their names and conditions, and deletes the
// objects of those that are being deleted. pending says that objects are still held.
// Names are decided by one node, the leader, from a state that is confirmed
// to be current, each on the condition that the definition has not changed. What a
// node serves follows from what was written alone, so all serve the same.
func (s *definitionSync) sync(ctx context.Context) (pending bool, err error) {
	if err := s.objects.Confirm(ctx); err != nil {
		return true, fmt.Errorf("sync definitions: %w", err)
	}
	res := s.objects.Kinds().Lookup(definitionsGVR)
	if res == nil {
		return false, nil // switched off
	}
	definitions := s.definitions.Definitions()
	var failed []error
	for _, d := range crd.AcceptNames(definitions, s.objects.Now()) {
		if err := s.write(ctx, res, d.For, &d.Status, false); err != nil {
			failed = append(failed, err)
		}
	}
	for _, d := range definitions {
		if d.Terminating() && slices.Contains(d.Metadata.Finalizers, crd.Finalizer) {
			held, err := s.end(ctx, res, d)
			pending = pending || held
			if err != nil {
				failed = append(failed, fmt.Errorf("delete definition %s: %w", d.Metadata.Name, err))
			}
		}
	}
	return pending || len(failed) > 0, errors.Join(failed...)
}

// end deletes a definition's objects and, when none is left, lets it go.
func (s *definitionSync) end(ctx context.Context, res *kinds.Resource, d *crd.Definition) (held bool, err error) {
	state := d.Status.DeepCopy()
	if !d.Established() {
		crd.SetCondition(state, crd.TerminatingNever, s.objects.Now())
		return false, s.write(ctx, res, d, state, true)
	}
	if !crd.Deleting(state) {
		// The next round finds it written.
		crd.SetCondition(state, crd.TerminatingNow, s.objects.Now())
		return true, s.write(ctx, res, d, state, false)
	}
	remaining, err := s.deleteObjects(ctx, d.Storage())
	switch {
	case err != nil:
		if crd.SetCondition(state, crd.TerminatingFailed(err), s.objects.Now()) && ctx.Err() == nil {
			err = errors.Join(err, s.write(ctx, res, d, state, false))
		}
		return true, err
	case remaining > 0:
		if s.objects.Now().Sub(crd.TerminatingSince(state)) >= heldInstances && crd.SetCondition(state, crd.TerminatingCheck, s.objects.Now()) {
			return true, s.write(ctx, res, d, state, false)
		}
		return true, nil
	}
	crd.SetCondition(state, crd.TerminatingDone, s.objects.Now())
	return false, s.write(ctx, res, d, state, true)
}

// heldInstances is how long instances may be held by their finalizers before the
// definition's condition says so.
const heldInstances = 5 * time.Second

// deleteObjects deletes all objects of a resource, in the way of an ordinary delete,
// and returns how many are still there.
func (s *definitionSync) deleteObjects(ctx context.Context, res *kinds.Resource) (remaining int, err error) {
	if res == nil {
		return 0, nil
	}
	versions, err := s.objects.Range(res.Table(), "")
	if err != nil {
		return 0, err
	}
	background := metav1.DeletePropagationBackground
	options := &metav1.DeleteOptions{PropagationPolicy: &background}
	for _, v := range versions {
		namespace, name := objects.SplitKey(res, v.Key)
		o := s.objects.System(ctx, res, namespace, name, "delete")
		w, err := o.DeleteAs(objects.AsServer, options)
		switch {
		case apierrors.IsNotFound(err):
		case err != nil:
			return 0, fmt.Errorf("delete %s %s: %w", res.GroupResource(), v.Key, err)
		case !w.Deleted:
			remaining++
		}
	}
	return remaining, nil
}

// write writes a definition's status, and takes our finalizer off if it is done, unless it has changed since
// it was decided on: then the next round decides again.
func (s *definitionSync) write(
	ctx context.Context, res *kinds.Resource, d *crd.Definition, state *apiextensions.CustomResourceDefinitionStatus, done bool,
) error {
	shown, err := crd.StatusTree(state)
	if err != nil {
		return err
	}
	_, err = s.writeStatus(ctx, res, "status", "", d.Metadata.Name, func(cur *mvcc.Version, obj, meta tree.Object) (bool, error) {
		if cur.Revision != d.Stored.Revision {
			return false, nil
		}
		if obj["status"] = shown; done {
			list, _ := tree.Strings(meta["finalizers"])
			tree.SetFinalizers(meta, slices.DeleteFunc(slices.Clone(list), func(f string) bool { return f == crd.Finalizer }))
		}
		return true, nil
	})
	return err
}
