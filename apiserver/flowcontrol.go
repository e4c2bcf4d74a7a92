package apiserver

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/quorate/quorate/apiserver/codec"
	"github.com/quorate/quorate/apiserver/fairness"
	"github.com/quorate/quorate/apiserver/kinds"
	"github.com/quorate/quorate/apiserver/objects"
	"github.com/quorate/quorate/apiserver/tree"
	"github.com/quorate/quorate/raftstore/mvcc"
	flowcontrol "k8s.io/api/flowcontrol/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// The resources that configure priority and fairness.
var (
	flowSchemas    = flowcontrol.SchemeGroupVersion.WithResource("flowschemas")
	priorityLevels = flowcontrol.SchemeGroupVersion.WithResource("prioritylevelconfigurations")
)

const (
	// digestAfter lets several changes be one.
	digestAfter = 50 * time.Millisecond
	// keepEvery is how often the initial objects are looked at, also without a change.
	keepEvery = time.Minute
)

// FollowFlowControl gives Config.Fairness what FlowSchemas and
// PriorityLevelConfigurations say, as this node's state has them, until ctx ends.
// Every node does this.
func (s *Server) FollowFlowControl(ctx context.Context) error {
	return s.onFlowControl(ctx, 0, func() error {
		schemas, levels, err := s.flowControl()
		if err == nil {
			s.cfg.Fairness.Digest(schemas, levels)
		}
		return err
	})
}

// KeepFlowControl makes the FlowSchemas and PriorityLevelConfigurations that every
// cluster has, restores those that nobody has taken over, and says
// in each FlowSchema's status whether its level exists. The leader's node does this
// until ctx ends.
func (s *Server) KeepFlowControl(ctx context.Context) error {
	return s.onFlowControl(ctx, keepEvery, func() error { return s.keepFlowControl(ctx) })
}

// onFlowControl calls f at once, after each change of the objects, and from time
// to time if every is not zero. Failures are logged and tried again.
func (s *Server) onFlowControl(ctx context.Context, every time.Duration, f func() error) error {
	var wakes [2]<-chan struct{}
	for i, resource := range []schema.GroupVersionResource{flowSchemas, priorityLevels} {
		w, err := s.cfg.Store.Watch(kinds.BuiltinTable(resource.GroupResource()), s.cfg.Store.State().Applied(), mvcc.Interest{})
		if err != nil {
			return fmt.Errorf("watch %s: %w", resource.Resource, err)
		}
		defer w.Close()
		wakes[i] = w.Wake()
	}
	timer := time.NewTimer(0)
	defer timer.Stop()
	due := true // the timer stands for a change already
	soon := func() {
		if !due {
			due = true
			timer.Reset(digestAfter)
		}
	}
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-wakes[0]:
			soon()
			continue
		case <-wakes[1]:
			soon()
			continue
		case <-timer.C:
			due = false
		}
		err := f()
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil:
			s.cfg.Log.Warn("cannot sync flow control objects, retrying", "err", err)
			due = true
			timer.Reset(time.Second)
		case every > 0:
			timer.Reset(every)
		}
	}
}

// flowControl reads the objects of this node's state. Those that cannot be read
// are left out.
func (s *Server) flowControl() (schemas []*flowcontrol.FlowSchema, levels []*flowcontrol.PriorityLevelConfiguration, err error) {
	read := func(resource schema.GroupVersionResource, into func() any) error {
		versions, err := s.objects.Range(kinds.BuiltinTable(resource.GroupResource()), "")
		for _, v := range versions {
			if err := json.Unmarshal(v.Value, into()); err != nil {
				s.cfg.Log.Warn("an object of flow control cannot be read", "resource", resource.Resource, "name", v.Key, "err", err)
			}
		}
		return err
	}
	err = errors.Join(
		read(flowSchemas, func() any { schemas = append(schemas, &flowcontrol.FlowSchema{}); return schemas[len(schemas)-1] }),
		read(priorityLevels, func() any {
			levels = append(levels, &flowcontrol.PriorityLevelConfiguration{})
			return levels[len(levels)-1]
		}))
	return schemas, levels, err
}

func (s *Server) keepFlowControl(ctx context.Context) error {
	if err := s.objects.Confirm(ctx); err != nil {
		return err
	}
	objects := fairness.Objects()
	var errs []error
	for _, i := range objects.Levels {
		errs = append(errs, s.keepObject(ctx, priorityLevels, i, &flowcontrol.PriorityLevelConfigurationSpec{}, &flowcontrol.PriorityLevelConfigurationSpec{}))
	}
	for _, i := range objects.Schemas {
		errs = append(errs, s.keepObject(ctx, flowSchemas, i, &flowcontrol.FlowSchemaSpec{}, &flowcontrol.FlowSchemaSpec{}))
	}
	return errors.Join(append(errs, s.markDangling(ctx))...)
}

func (s *Server) flowResource(of schema.GroupVersionResource) (*kinds.Resource, error) {
	res := s.cfg.Kinds().Lookup(of)
	if res == nil {
		return nil, fmt.Errorf("the registry has no %s", of.Resource)
	}
	return res, nil
}

// keepObject makes an initial object or brings it back to its spec. want and have
// are empty specs of its type.
func (s *Server) keepObject(ctx context.Context, of schema.GroupVersionResource, i fairness.Initial, want, have any) error {
	res, err := s.flowResource(of)
	if err != nil {
		return err
	}
	raw, err := json.Marshal(map[string]any{"spec": i.Spec})
	if err != nil {
		return err
	}
	body, err := codec.Decode(codec.JSON, raw, res)
	if err != nil {
		return fmt.Errorf("%s %s: %w", of.Resource, i.Name, err)
	}
	spec := tree.As(body.Object["spec"])
	if err := convert(spec, want); err != nil {
		return fmt.Errorf("%s %s: %w", of.Resource, i.Name, err)
	}
	o := s.objects.System(ctx, res, "", i.Name, "update")
	cur, err := s.objects.Current(res.Table(), i.Name)
	switch {
	case err != nil:
		return err
	case cur == nil:
		_, err = o.Create(tree.Object{
			"kind": res.Kind, "apiVersion": of.GroupVersion().String(), "spec": spec,
			"metadata": tree.Object{"name": i.Name, "annotations": tree.Object{fairness.AutoUpdate: "true"}},
		})
		if apierrors.IsAlreadyExists(err) {
			err = nil
		}
	default:
		_, err = o.GuaranteedUpdate(i.Name, func(cur *mvcc.Version) (objects.Change, error) { return restore(o, cur, i, spec, want, have) })
		if apierrors.IsNotFound(err) {
			err = nil
		}
	}
	if err != nil {
		return fmt.Errorf("keep %s %s: %w", of.Resource, i.Name, err)
	}
	return nil
}

// restore decides on an initial object that exists: its annotation says whether
// the server keeps its spec, or, without one, that nobody has changed it yet.
func restore(o *objects.Op, cur *mvcc.Version, i fairness.Initial, spec tree.Object, want, have any) (objects.Change, error) {
	if cur == nil {
		return objects.Change{}, o.NotFound()
	}
	old, obj, meta, err := o.Editable(cur)
	if err != nil {
		return objects.Change{}, err
	}
	annotations := tree.Clone(meta["annotations"])
	keep, err := strconv.ParseBool(tree.Text(annotations, fairness.AutoUpdate))
	if err != nil {
		generation, _ := tree.Int(meta["generation"])
		keep = generation == 1
	}
	keep = keep || i.Mandatory
	annotations[fairness.AutoUpdate] = strconv.FormatBool(keep)
	meta["annotations"] = annotations
	if err := convert(old["spec"], have); err != nil {
		return objects.Change{}, err
	}
	if keep && !equality.Semantic.DeepEqual(want, have) {
		obj["spec"] = spec
	}
	return o.Replace(cur, obj, old)
}

func convert(from, to any) error {
	raw, err := json.Marshal(from)
	if err != nil {
		return err
	}
	return json.Unmarshal(raw, to)
}

// markDangling keeps the condition of each FlowSchema that says whether its level
// exists.
func (s *Server) markDangling(ctx context.Context) error {
	schemas, levels, err := s.flowControl()
	if err != nil {
		return err
	}
	res, err := s.flowResource(flowSchemas)
	if err != nil {
		return err
	}
	exists := map[string]bool{}
	for _, p := range levels {
		exists[p.Name] = true
	}
	var errs []error
	for _, f := range schemas {
		level := f.Spec.PriorityLevelConfiguration.Name
		want := danglingCondition(level, exists[level])
		if sameCondition(f, want) {
			continue
		}
		o := s.objects.System(ctx, res, "", f.Name, "update")
		if _, err := o.GuaranteedUpdate(f.Name, func(cur *mvcc.Version) (objects.Change, error) { return setCondition(o, cur, want) }); err != nil && !apierrors.IsNotFound(err) {
			errs = append(errs, fmt.Errorf("status of FlowSchema %s: %w", f.Name, err))
		}
	}
	return errors.Join(errs...)
}

const dangling = string(flowcontrol.FlowSchemaConditionDangling)

func danglingCondition(level string, exists bool) tree.Object {
	if exists {
		return tree.Object{"type": dangling, "status": "False", "reason": "Found",
			"message": fmt.Sprintf("This FlowSchema references the PriorityLevelConfiguration object named %q and it exists", level)}
	}
	return tree.Object{"type": dangling, "status": "True", "reason": "NotFound",
		"message": fmt.Sprintf("This FlowSchema references the PriorityLevelConfiguration object named %q but there is no such object", level)}
}

func sameCondition(f *flowcontrol.FlowSchema, want tree.Object) bool {
	for _, c := range f.Status.Conditions {
		if c.Type == flowcontrol.FlowSchemaConditionDangling {
			return string(c.Status) == tree.Text(want, "status") && c.Reason == tree.Text(want, "reason") && c.Message == tree.Text(want, "message")
		}
	}
	return false
}

// setCondition sets a condition of the status.
func setCondition(o *objects.Op, cur *mvcc.Version, want tree.Object) (objects.Change, error) {
	if cur == nil {
		return objects.Change{}, o.NotFound()
	}
	old, obj, _, err := o.Editable(cur)
	if err != nil {
		return objects.Change{}, err
	}
	state := tree.Clone(old["status"])
	state["conditions"] = tree.SetCondition(state["conditions"], want, o.Store.Now())
	obj["status"] = state
	return o.Replace(cur, obj, old)
}
