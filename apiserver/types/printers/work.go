package printers

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/quorate/quorate/apiserver/types/tree"
	"k8s.io/apimachinery/pkg/util/duration"
)

func jobStatus(v any) any {
	conditions := items(v, "status", "conditions")
	switch {
	case conditionTrue(conditions, "Complete"):
		return "Complete"
	case conditionTrue(conditions, "Failed"):
		return "Failed"
	case get(v, "metadata", "deletionTimestamp") != nil:
		return "Terminating"
	case conditionTrue(conditions, "Suspended"):
		return "Suspended"
	case conditionTrue(conditions, "FailureTarget"):
		return "FailureTarget"
	case conditionTrue(conditions, "SuccessCriteriaMet"):
		return "SuccessCriteriaMet"
	}
	return "Running"
}

func jobCompletions(v any) any {
	done := integer(get(v, "status", "succeeded"))
	if c := get(v, "spec", "completions"); c != nil {
		return fmt.Sprintf("%d/%d", done, integer(c))
	}
	if p := integer(get(v, "spec", "parallelism")); p > 1 {
		return fmt.Sprintf("%d/1 of %d", done, p)
	}
	return fmt.Sprintf("%d/1", done)
}

func jobDuration(v any) any {
	start, ok := timestamp(get(v, "status", "startTime"))
	if !ok {
		return ""
	}
	if end, ok := timestamp(get(v, "status", "completionTime")); ok {
		return duration.HumanDuration(end.Sub(start))
	}
	return Ageing{Since: start}
}

func controllerOf(v any) any {
	for _, r := range items(v) {
		if get(r, "controller") != true {
			continue
		}
		kind := tree.Scalar(get(r, "kind"))
		if group, _, ok := strings.Cut(tree.Scalar(get(r, "apiVersion")), "/"); ok {
			kind += "." + group
		}
		return strings.ToLower(kind) + "/" + tree.Scalar(get(r, "name"))
	}
	return none
}

func claimState(v any) any {
	var states []string
	deleted := get(v, "metadata", "deletionTimestamp") != nil
	if deleted {
		states = append(states, "deleted")
	}
	switch {
	case get(v, "status", "allocation") != nil:
		states = append(states, "allocated")
		if len(items(v, "status", "reservedFor")) > 0 {
			states = append(states, "reserved")
		}
	case !deleted:
		states = append(states, "pending")
	}
	return strings.Join(states, ",")
}

// quota lists used and hard of each resource: limits, or everything else.
func quota(v any, limits bool) any {
	hard, _ := get(v, "hard").(map[string]any)
	var out []string
	for _, name := range sortedKeys(hard) {
		if strings.HasPrefix(name, "limits.") != limits {
			continue
		}
		used := tree.Scalar(get(v, "used", name))
		if used == "" {
			used = "0"
		}
		out = append(out, name+": "+used+"/"+tree.Scalar(hard[name]))
	}
	return strings.Join(out, ", ")
}

// metricTargets lists current and wanted value of an autoscaler's metrics.
func metricTargets(v any) any {
	specs, current := items(v, "spec", "metrics"), items(v, "status", "currentMetrics")
	if len(specs) == 0 {
		return none
	}
	var out []string
	for i, spec := range specs {
		var now any
		if i < len(current) {
			now = current[i]
		}
		out = append(out, metricTarget(spec, now))
	}
	if len(out) > 2 {
		return strings.Join(out[:2], ", ") + " + " + strconv.Itoa(len(out)-2) + " more..."
	}
	return strings.Join(out, ", ")
}

// metricSources are the fields that metrics of a type live in.
var metricSources = map[string]string{
	"ContainerResource": "containerResource", "External": "external", "Object": "object", "Pods": "pods", "Resource": "resource",
}

// nothing is how upstream shows a quantity that is not there.
const nothing = "<nil>"

func metricTarget(spec, current any) string {
	kind := tree.Scalar(get(spec, "type"))
	source := metricSources[kind]
	if source == "" {
		return "<unknown type>"
	}
	target, now := get(spec, source, "target"), get(current, source, "current")
	average := get(target, "averageValue") != nil
	// show is a field of what is wanted and of what is, which is told to be unknown or, if there is some of the source, nothing.
	show := func(field string, unknownIfNothing bool) string {
		was := unknown
		if get(current, source) != nil && !unknownIfNothing {
			was = nothing
		}
		if x := tree.Scalar(get(now, field)); x != "" {
			was = x
		}
		return was + "/" + tree.Scalar(textElse(get(target, field), nothing))
	}
	switch {
	case kind == "Pods":
		return show("averageValue", false)
	case kind == "External" || kind == "Object":
		if average {
			return show("averageValue", true) + " (avg)"
		}
		return show("value", false)
	}
	name := tree.Scalar(get(spec, source, "name")) + ": "
	if average {
		return name + show("averageValue", false)
	}
	percent := func(v any, absent string) string {
		if v == nil {
			return absent
		}
		return tree.Scalar(v) + "%"
	}
	return name + percent(get(now, "averageUtilization"), unknown) + "/" + percent(get(target, "averageUtilization"), "<auto>")
}
