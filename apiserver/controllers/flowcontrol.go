package controllers

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/quorate/quorate/apiserver/access/fairness"
	"github.com/quorate/quorate/apiserver/objects"
	"github.com/quorate/quorate/apiserver/types/kinds"
	"github.com/quorate/quorate/apiserver/types/tree"
	"github.com/quorate/quorate/apiserver/wire/codec"
	"github.com/quorate/quorate/raftstore/mvcc"
	flowcontrol "k8s.io/api/flowcontrol/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/apis/flowcontrol/bootstrap"
)

// The resources that configure priority and fairness.
var (
	flowSchemas    = flowcontrol.SchemeGroupVersion.WithResource("flowschemas")
	priorityLevels = flowcontrol.SchemeGroupVersion.WithResource("prioritylevelconfigurations")
)

// flowControlPeriod is how often the initial objects are looked at, also without a change.
const flowControlPeriod = time.Minute

// flowControlSync makes the FlowSchemas and PriorityLevelConfigurations that every cluster has, restores those that nobody has
// taken over, and says in each FlowSchema's status whether its level exists. What the objects say is put in force by each node:
// fairness.Controller.Follow.
type flowControlSync struct {
	base
	view *fairness.View
}

func (s *flowControlSync) run(ctx context.Context) error {
	return s.keep(ctx, fairness.Tables[:], flowControlPeriod, "cannot sync flow control objects, retrying", s.sync)
}

func (s *flowControlSync) sync(ctx context.Context) error {
	if err := s.objects.Confirm(ctx); err != nil {
		return err
	}
	var errs []error
	for _, p := range bootstrap.MandatoryPriorityLevelConfigurations {
		errs = append(errs, syncInitial(ctx, s.objects, priorityLevels, p.Name, &p.Spec, true))
	}
	for _, p := range bootstrap.SuggestedPriorityLevelConfigurations {
		errs = append(errs, syncInitial(ctx, s.objects, priorityLevels, p.Name, &p.Spec, false))
	}
	for _, f := range bootstrap.MandatoryFlowSchemas {
		errs = append(errs, syncInitial(ctx, s.objects, flowSchemas, f.Name, &f.Spec, true))
	}
	for _, f := range bootstrap.SuggestedFlowSchemas {
		errs = append(errs, syncInitial(ctx, s.objects, flowSchemas, f.Name, &f.Spec, false))
	}
	return errors.Join(append(errs, s.markDangling(ctx))...)
}

func flowResource(s *objects.Store, of schema.GroupVersionResource) (*kinds.Resource, error) {
	res := s.Kinds().Lookup(of)
	if res == nil {
		return nil, fmt.Errorf("the registry has no %s", of.Resource)
	}
	return res, nil
}

// syncInitial makes an initial object, or brings it back to what it should be. A mandatory one is always
// kept, a suggested one only as long as its annotation or its generation says that nobody has changed it.
func syncInitial[Spec any](ctx context.Context, s *objects.Store, of schema.GroupVersionResource, name string, want *Spec, mandatory bool) error {
	res, err := flowResource(s, of)
	if err != nil {
		return err
	}
	raw, err := json.Marshal(map[string]any{"spec": want})
	if err != nil {
		return err
	}
	body, err := codec.Decode(codec.JSON, raw, res)
	if err != nil {
		return fmt.Errorf("%s %s: %w", of.Resource, name, err)
	}
	spec := tree.As(body.Object["spec"])
	o := s.System(ctx, res, "", name, "update")
	cur, err := s.Current(res.Table(), name)
	switch {
	case err != nil:
		return err
	case cur == nil:
		_, err = o.Create(tree.Object{
			"kind": res.Kind, "apiVersion": of.GroupVersion().String(), "spec": spec,
			"metadata": tree.Object{"name": name, "annotations": tree.Object{flowcontrol.AutoUpdateAnnotationKey: "true"}},
		})
		if apierrors.IsAlreadyExists(err) {
			err = nil
		}
	default:
		_, err = o.GuaranteedUpdate(name, func(cur *mvcc.Version) (objects.Change, error) { return restore(o, cur, spec, want, mandatory) })
		if apierrors.IsNotFound(err) {
			err = nil
		}
	}
	if err != nil {
		return fmt.Errorf("keep %s %s: %w", of.Resource, name, err)
	}
	return nil
}

// restore decides on an initial object that exists: its annotation says whether
// the server keeps its spec, or, without one, that nobody has changed it yet.
func restore[Spec any](o *objects.Op, cur *mvcc.Version, spec tree.Object, want *Spec, mandatory bool) (objects.Change, error) {
	if cur == nil {
		return objects.Change{}, o.NotFound()
	}
	old, obj, meta, err := o.Editable(cur)
	if err != nil {
		return objects.Change{}, err
	}
	annotations := tree.Clone(meta["annotations"])
	keep, err := strconv.ParseBool(tree.Text(annotations, flowcontrol.AutoUpdateAnnotationKey))
	if err != nil {
		generation, _ := tree.Int(meta["generation"])
		keep = generation == 1
	}
	keep = keep || mandatory
	annotations[flowcontrol.AutoUpdateAnnotationKey] = strconv.FormatBool(keep)
	meta["annotations"] = annotations
	have := new(Spec)
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
func (s *flowControlSync) markDangling(ctx context.Context) error {
	stored := s.view.Get()
	res, err := flowResource(s.objects, flowSchemas)
	if err != nil {
		return err
	}
	exists := map[string]bool{}
	for _, p := range stored.Levels {
		exists[p.Name] = true
	}
	var errs []error
	for _, f := range stored.Schemas {
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
