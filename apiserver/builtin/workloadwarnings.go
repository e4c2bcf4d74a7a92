package builtin

import (
	"fmt"
	"strings"

	"github.com/quorate/quorate/apiserver/tree"
	"k8s.io/apimachinery/pkg/util/validation"
)

// warningsForNewPod: an update of a Pod is not looked at, as upstream: it is mostly a
// controller's.
func warningsForNewPod(obj, old tree.Object) []string {
	if old != nil {
		return nil
	}
	return append(warningsForHostname(obj, "this is used in the Pod's hostname"), warningsForPod("", obj)...)
}

// warningsForHostname is about names of objects that become hostnames.
func warningsForHostname(obj tree.Object, what string) []string {
	if msgs := validation.IsDNS1123Label(tree.Text(tree.As(obj["metadata"]), "name")); len(msgs) > 0 {
		return []string{fmt.Sprintf("metadata.name: %s, which can result in surprising behavior; a DNS label is recommended: %v", what, msgs)}
	}
	return nil
}

const podNames = "this is used in Pod names and hostnames"

// warningsForTemplateAt is about the template of Pods at a path of field names. An update that
// leaves the first of them as it was is not looked at.
func warningsForTemplateAt(names ...string) func(obj, old tree.Object) []string {
	at := strings.Join(names, ".") + "."
	return func(obj, old tree.Object) []string {
		if old != nil && semanticEqual(obj[names[0]], old[names[0]]) {
			return nil
		}
		return warningsForPod(at, tree.As(tree.Field(obj, names...)))
	}
}

// withHostname adds what there is to say of the name of a new object whose Pods are named by it.
func withHostname(warnings func(obj, old tree.Object) []string) func(obj, old tree.Object) []string {
	return func(obj, old tree.Object) []string {
		if old != nil {
			return warnings(obj, old)
		}
		return append(warningsForHostname(obj, podNames), warnings(obj, old)...)
	}
}

// What Indexed Jobs may have and still be kept track of.
const (
	maxTrackedCompletions = 100_000
	maxTrackedParallelism = 10_000
)

// warningsForJobAt is about the spec of a Job at a path of field names.
func warningsForJobAt(names ...string) func(obj, old tree.Object) []string {
	template := withHostname(func(obj, old tree.Object) (out []string) {
		if old != nil && semanticEqual(obj["spec"], old["spec"]) {
			return nil
		}
		spec := tree.As(tree.Field(obj, names...))
		completions, _ := tree.Int(spec["completions"])
		parallelism, _ := tree.Int(spec["parallelism"])
		if tree.Text(spec, "completionMode") == "Indexed" && completions > maxTrackedCompletions && parallelism > maxTrackedParallelism {
			out = append(out, strings.Join(names, ".")+": In Indexed Jobs with a number of completions higher than 10^5 and a parallelism higher than 10^4, "+
				"Kubernetes might not be able to track completedIndexes when a big number of indexes fail")
		}
		return append(out, warningsForPod(strings.Join(names, ".")+".template.", tree.As(spec["template"]))...)
	})
	return template
}

// warningsForCronJob: the field is called so by upstream.
func warningsForCronJob(obj, old tree.Object) []string {
	out := warningsForCronJobSpec(obj, old)
	if old != nil && strings.Contains(tree.Text(tree.As(obj["spec"]), "schedule"), "TZ") {
		out = append(out, "cannot use TZ or CRON_TZ in spec.spec.schedule, use timeZone instead, "+
			"see https://kubernetes.io/docs/concepts/workloads/controllers/cron-jobs/ for more details")
	}
	return out
}

var (
	warningsForCronJobSpec = warningsForJobAt("spec", "jobTemplate", "spec")
	warningsForTemplate    = warningsForTemplateAt("spec", "template")
)

// warningsForDeployment: annotations are part of its generation, by which upstream goes.
func warningsForDeployment(obj, old tree.Object) []string {
	if old != nil && !semanticEqual(tree.Field(obj, "metadata", "annotations"), tree.Field(old, "metadata", "annotations")) {
		old = nil
	}
	return warningsForTemplate(obj, old)
}

// warningsForDaemonSet: an update that leaves the template as it was is not looked at.
func warningsForDaemonSet(obj, old tree.Object) []string {
	if old != nil && semanticEqual(tree.Field(obj, "spec", "template"), tree.Field(old, "spec", "template")) {
		return nil
	}
	return warningsForTemplate(obj, nil)
}

func warningsForStatefulSet(obj, old tree.Object) []string {
	out := warningsForTemplate(obj, old)
	spec, name := tree.As(obj["spec"]), ""
	if old != nil {
		name = ".Spec" // so upstream spells it there
	}
	for i, claim := range tree.List(spec["volumeClaimTemplates"]) {
		out = append(out, warningsForClaimSpec(tree.As(tree.As(claim)["spec"]), func() string { return fmt.Sprintf("spec.volumeClaimTemplates[%d]%s", i, name) })...)
	}
	if n, _ := tree.Int(spec["revisionHistoryLimit"]); n < 0 {
		out = append(out, "spec.revisionHistoryLimit: a negative value retains all historical revisions; a value >= 0 is recommended")
	}
	return out
}
