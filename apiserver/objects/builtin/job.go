package builtin

import (
	"github.com/quorate/quorate/apiserver/objects"
	"github.com/quorate/quorate/apiserver/types/tree"
)

var jobStrategy = objects.Strategy{Complete: labelJob, Prepare: inOrder(prepareTemplate, generateSelector), Allocate: labelByTemplate}

// Labels that tie pods to their Job; the names without a prefix are the older ones.
const (
	jobNameLabel       = "batch.kubernetes.io/job-name"
	controllerUIDLabel = "batch.kubernetes.io/controller-uid"
	oldJobNameLabel    = "job-name"
	oldUIDLabel        = "controller-uid"
)

func manualSelector(obj tree.Object) bool { return tree.Field(obj, "spec", "manualSelector") == true }

// generateSelector gives a new Job's pods labels that no other Job's pods have,
// and the Job the selector for them. A label that is there already stays, for
// validation to refuse.
func generateSelector(obj, old tree.Object) {
	if old != nil || manualSelector(obj) {
		return
	}
	meta := tree.As(obj["metadata"])
	name, uid := tree.Text(meta, "name"), tree.Text(meta, "uid")
	shared := labelledByTemplate(obj)
	spec, template, templateMeta := tree.Clone(obj["spec"]), tree.Clone(tree.Field(obj, "spec", "template")), tree.Clone(tree.Field(obj, "spec", "template", "metadata"))
	set := tree.Clone(templateMeta["labels"])
	for key, value := range map[string]string{jobNameLabel: name, oldJobNameLabel: name, controllerUIDLabel: uid, oldUIDLabel: uid} {
		if _, found := set[key]; !found {
			set[key] = value
		}
	}
	selector := tree.Clone(spec["selector"])
	match := tree.Clone(selector["matchLabels"])
	if _, found := match[controllerUIDLabel]; !found {
		match[controllerUIDLabel] = uid
	}
	selector["matchLabels"] = match
	templateMeta["labels"], template["metadata"] = set, templateMeta
	spec["template"], spec["selector"] = template, selector
	obj["spec"] = spec
	if meta != nil && shared {
		meta["labels"] = set // what a Job without labels gets from its template
	}
}
