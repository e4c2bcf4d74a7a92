package kinds

import (
	"encoding/json"
	"fmt"

	"github.com/quorate/quorate/apiserver/types/tree"
	v1 "k8s.io/api/autoscaling/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	kjson "sigs.k8s.io/json"
)

// What autoscaling/v1 has no fields for stands in these annotations of its objects,
// and nowhere else: neither are they stored, nor shown by v2.
const (
	metricsNote        = "autoscaling.alpha.kubernetes.io/metrics"
	currentMetricsNote = "autoscaling.alpha.kubernetes.io/current-metrics"
	conditionsNote     = "autoscaling.alpha.kubernetes.io/conditions"
	behaviorNote       = "autoscaling.alpha.kubernetes.io/behavior"
)

var autoscalerNotes = []string{
	metricsNote, currentMetricsNote, conditionsNote, behaviorNote,
	"autoscaling.alpha.kubernetes.io/scale-down-tolerance", "autoscaling.alpha.kubernetes.io/scale-up-tolerance",
}

// defaultUtilization is the goal, in percent of what was requested, of an
// autoscaler that names no metric.
const defaultUtilization = int64(80)

// autoscalerToV2 is upstream's conversion of autoscaling/v1 to the form that is
// stored. An annotation that cannot be read counts as absent, as it does there.
func autoscalerToV2(obj map[string]any) error {
	notes := notesOf(obj)
	spec := tree.Clone(tree.As(obj["spec"]))
	var metrics []any
	if text, ok := notes[metricsNote].(string); ok {
		var sent []v1.MetricSpec
		if json.Unmarshal([]byte(text), &sent) == nil {
			for i := range sent {
				metric, err := plain(metricToV2(&sent[i]))
				if err != nil {
					return err
				}
				metrics = append(metrics, metric)
			}
		}
	}
	if goal, ok := spec["targetCPUUtilizationPercentage"]; ok && goal != nil {
		metrics = append(metrics, cpuGoal(goal))
	}
	delete(spec, "targetCPUUtilizationPercentage")
	if len(metrics) == 0 {
		metrics = []any{cpuGoal(defaultUtilization)}
	}
	spec["metrics"] = metrics
	if text, ok := notes[behaviorNote].(string); ok {
		if b, ok := behaviorToV2(text); ok {
			spec["behavior"] = b
		}
	}
	obj["spec"] = spec
	if err := autoscalerStatusToV2(obj, notes); err != nil {
		return err
	}
	dropNotes(obj)
	return nil
}

func autoscalerStatusToV2(obj, notes map[string]any) error {
	state := tree.Clone(tree.As(obj["status"]))
	if now, ok := state["currentCPUUtilizationPercentage"]; ok && now != nil {
		state["currentMetrics"] = []any{map[string]any{"type": "Resource", "resource": map[string]any{
			"name": "cpu", "current": map[string]any{"averageUtilization": now}}}}
	}
	delete(state, "currentCPUUtilizationPercentage")
	if text, ok := notes[currentMetricsNote].(string); ok {
		var sent []v1.MetricStatus
		if json.Unmarshal([]byte(text), &sent) == nil {
			metrics := make([]any, 0, len(sent))
			for i := range sent {
				metric, err := plain(metricStatusToV2(&sent[i]))
				if err != nil {
					return err
				}
				metrics = append(metrics, metric)
			}
			state["currentMetrics"] = metrics
		}
	}
	if text, ok := notes[conditionsNote].(string); ok {
		var sent []v1.HorizontalPodAutoscalerCondition
		if json.Unmarshal([]byte(text), &sent) == nil {
			conditions, err := plain(sent)
			if err != nil {
				return err
			}
			state["conditions"] = conditions
		}
	}
	if state["currentReplicas"] == int64(0) { // which v2's type leaves out
		delete(state, "currentReplicas")
	}
	if len(state) > 0 {
		// What v2's type always writes.
		if _, ok := state["currentMetrics"]; !ok {
			state["currentMetrics"] = nil
		}
		obj["status"] = state
	}
	return nil
}

// autoscalerFromV2 is upstream's conversion of the stored form to autoscaling/v1.
func autoscalerFromV2(obj map[string]any) error {
	dropNotes(obj)
	spec, state := tree.Clone(tree.As(obj["spec"])), tree.Clone(tree.As(obj["status"]))
	var others []*v1.MetricSpec
	for _, x := range tree.List(spec["metrics"]) {
		if goal := cpuGoalOf(x, "target"); goal != nil {
			if spec["targetCPUUtilizationPercentage"] == nil {
				spec["targetCPUUtilizationPercentage"] = goal
			}
			continue
		}
		metric, err := metricFromV2(x)
		if err != nil {
			return err
		}
		others = append(others, metric)
	}
	var states []*v1.MetricStatus
	for _, x := range tree.List(state["currentMetrics"]) {
		if now := cpuGoalOf(x, "current"); now != nil {
			state["currentCPUUtilizationPercentage"] = now
		}
		metric, err := metricStatusFromV2(x)
		if err != nil {
			return err
		}
		states = append(states, metric)
	}
	var conditions []v1.HorizontalPodAutoscalerCondition
	if err := typedAs(state["conditions"], &conditions); err != nil {
		return err
	}
	add := noter{obj: obj}
	add.note(metricsNote, len(others) > 0, others)
	add.note(currentMetricsNote, len(states) > 0, states)
	if b, ok := spec["behavior"]; ok && b != nil {
		// Upstream writes its internal type here, which has other names.
		var rules behavior
		if err := typedAs(b, &rules); err != nil {
			return err
		}
		add.note(behaviorNote, true, &rules)
	}
	add.note(conditionsNote, len(conditions) > 0, conditions)
	for _, name := range [...]string{"metrics", "behavior"} {
		delete(spec, name)
	}
	for _, name := range [...]string{"currentMetrics", "conditions"} {
		delete(state, name)
	}
	obj["spec"] = spec
	if obj["status"] != nil {
		// What v1's type always writes.
		for _, name := range [...]string{"currentReplicas", "desiredReplicas"} {
			if _, ok := state[name]; !ok {
				state[name] = int64(0)
			}
		}
		obj["status"] = state
	}
	return add.err
}

// noter writes annotations, until one fails.
type noter struct {
	obj map[string]any
	err error
}

func (n *noter) note(name string, wanted bool, v any) {
	if !wanted || n.err != nil {
		return
	}
	text, err := json.Marshal(v)
	if err != nil {
		n.err = fmt.Errorf("annotation %s: %w", name, err)
		return
	}
	meta, _ := n.obj["metadata"].(map[string]any)
	if meta == nil {
		meta = map[string]any{}
		n.obj["metadata"] = meta
	}
	notes, _ := meta["annotations"].(map[string]any)
	if notes == nil {
		notes = map[string]any{}
		meta["annotations"] = notes
	}
	notes[name] = string(text)
}

func notesOf(obj map[string]any) map[string]any {
	return tree.As(tree.As(obj["metadata"])["annotations"])
}

func dropNotes(obj map[string]any) {
	notes := notesOf(obj)
	for _, name := range autoscalerNotes {
		delete(notes, name)
	}
	if meta := tree.As(obj["metadata"]); notes != nil && len(notes) == 0 {
		delete(meta, "annotations")
	}
}

// cpuGoal is the metric that v1 has a field for.
func cpuGoal(percent any) map[string]any {
	return map[string]any{"type": "Resource", "resource": map[string]any{
		"name": "cpu", "target": map[string]any{"type": "Utilization", "averageUtilization": percent}}}
}

// cpuGoalOf is the utilization of a metric of that kind, or nil.
func cpuGoalOf(metric any, where string) any {
	m := tree.As(metric)
	r := tree.As(m["resource"])
	if m["type"] != "Resource" || r["name"] != "cpu" {
		return nil
	}
	return tree.As(r[where])["averageUtilization"]
}

// behavior is how upstream writes autoscaling/v2's behavior into an annotation:
// without names for JSON.
type behavior struct{ ScaleUp, ScaleDown *scalingRules }

type scalingRules struct {
	StabilizationWindowSeconds *int32
	SelectPolicy               *string
	Policies                   []scalingPolicy
	Tolerance                  *resource.Quantity
}

type scalingPolicy struct {
	Type                 string
	Value, PeriodSeconds int32
}

// typedAs reads a tree into a type, whatever the case of names.
func typedAs(tree, into any) error {
	if tree == nil {
		return nil
	}
	text, err := json.Marshal(tree)
	if err != nil {
		return err
	}
	return json.Unmarshal(text, into)
}

// plain is a value as a tree.
func plain(v any) (any, error) {
	text, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	var out any
	err = kjson.UnmarshalCaseSensitivePreserveInts(text, &out)
	return out, err
}
