package builtin

import (
	"fmt"

	"github.com/quorate/quorate/apiserver/objects"
	"github.com/quorate/quorate/apiserver/tree"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

var jobStrategy = objects.Strategy{Prepare: generateSelector, Validate: validateJob, Warnings: warningsForJobAt("spec")}

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
}

var validateJobTemplate = validateTemplateAt("spec", "template")

func validateJob(obj, old tree.Object) field.ErrorList {
	path := field.NewPath("spec")
	spec := tree.As(obj["spec"])
	errs := validateGeneratedSelector(obj, old, path)
	errs = append(errs, validateJobSelector(spec, path)...)
	errs = append(errs, validateIndexedJob(obj, path)...)
	errs = append(errs, validateJobTemplate(obj, old)...)
	switch policy, _ := tree.Field(spec, "template", "spec", "restartPolicy").(string); policy {
	case "", "Always":
		errs = append(errs, field.Required(path.Child("template", "spec", "restartPolicy"), `valid values: "OnFailure", "Never"`))
	case "OnFailure":
		if spec["podFailurePolicy"] != nil {
			errs = append(errs, field.Invalid(path.Child("template", "spec", "restartPolicy"), policy, `only "Never" is supported when podFailurePolicy is specified`))
		}
	}
	if old != nil {
		errs = append(errs, validateJobUpdate(spec, tree.As(old["spec"]), path, tree.As(old["status"]))...)
	}
	return errs
}

// validateGeneratedSelector checks that nothing was set that the server generates.
func validateGeneratedSelector(obj, old tree.Object, path *field.Path) (errs field.ErrorList) {
	if manualSelector(obj) || tree.Field(obj, "spec", "selector") == nil {
		return nil
	}
	meta := tree.As(obj["metadata"])
	name, uid := tree.Text(meta, "name"), tree.Text(meta, "uid")
	set := tree.As(tree.Field(obj, "spec", "template", "metadata", "labels"))
	names := []string{oldUIDLabel, oldJobNameLabel, controllerUIDLabel, jobNameLabel}
	if old != nil {
		was := tree.As(tree.Field(old, "spec", "template", "metadata", "labels"))
		if was[jobNameLabel] == nil || was[controllerUIDLabel] == nil {
			names = names[:2] // from before there were labels with a prefix
		}
	}
	expected := labels.Set{}
	labelsPath := path.Child("template", "metadata", "labels")
	for _, key := range names {
		want := uid
		if key == oldJobNameLabel || key == jobNameLabel {
			want = name
		}
		expected[key] = want
		switch got, found := set[key]; {
		case !found:
			errs = append(errs, field.Required(labelsPath.Key(key), fmt.Sprintf("must be '%s'", want)))
		case got != want:
			errs = append(errs, field.Invalid(labelsPath.Key(key), set, fmt.Sprintf("must be '%s'", want)))
		}
	}
	selector, err := selectorOf(tree.Field(obj, "spec", "selector"))
	if err == nil && !selector.Matches(expected) {
		errs = append(errs, field.Invalid(path.Child("selector"), tree.Field(obj, "spec", "selector"), "`selector` not auto-generated"))
	}
	return errs
}

func selectorOf(v any) (labels.Selector, error) {
	var s metav1.LabelSelector
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(tree.As(v), &s); err != nil {
		return nil, err
	}
	return metav1.LabelSelectorAsSelector(&s)
}

func validateJobSelector(spec tree.Object, path *field.Path) field.ErrorList {
	if spec["selector"] == nil {
		return field.ErrorList{field.Required(path.Child("selector"), "")}
	}
	selector, err := selectorOf(spec["selector"])
	if err != nil {
		return field.ErrorList{field.Invalid(path.Child("selector"), spec["selector"], "invalid label selector")}
	}
	set := labels.Set{}
	for k, v := range tree.As(tree.Field(spec, "template", "metadata", "labels")) {
		set[k], _ = v.(string)
	}
	if !selector.Matches(set) {
		return field.ErrorList{field.Invalid(path.Child("template", "metadata", "labels"), map[string]string(set), "`selector` does not match template `labels`")}
	}
	return nil
}

// maxIndexed bounds what an indexed Job runs at a time.
const maxIndexed = 100_000

// validateIndexedJob checks what goes with a completion mode.
func validateIndexedJob(obj tree.Object, path *field.Path) (errs field.ErrorList) {
	spec := tree.As(obj["spec"])
	completions, counted := tree.Int(spec["completions"])
	if tree.Text(spec, "completionMode") != "Indexed" {
		for _, name := range [...]string{"backoffLimitPerIndex", "maxFailedIndexes"} {
			if n, ok := tree.Int(spec[name]); ok {
				errs = append(errs, field.Invalid(path.Child(name), n, "requires indexed completion mode"))
			}
		}
		if spec["successPolicy"] != nil {
			errs = append(errs, field.Invalid(path.Child("successPolicy"), spec["successPolicy"], "requires indexed completion mode"))
		}
		return errs
	}
	if !counted {
		errs = append(errs, field.Required(path.Child("completions"), "when completion mode is Indexed"))
	}
	if n, ok := tree.Int(spec["parallelism"]); ok && n > maxIndexed {
		errs = append(errs, field.Invalid(path.Child("parallelism"), n, fmt.Sprintf("must be less than or equal to %d when completion mode is Indexed", maxIndexed)))
	}
	if n, ok := tree.Int(spec["maxFailedIndexes"]); ok {
		if counted && n > completions {
			errs = append(errs, field.Invalid(path.Child("maxFailedIndexes"), n, "must be less than or equal to completions"))
		}
		if spec["backoffLimitPerIndex"] == nil {
			errs = append(errs, field.Required(path.Child("backoffLimitPerIndex"), "when maxFailedIndexes is specified"))
		}
	}
	if completions > 0 {
		name := tree.Text(tree.As(obj["metadata"]), "name")
		last := fmt.Sprintf("%s-%d", name, completions-1)
		if len(validation.IsDNS1123Label(last)) > 0 {
			errs = append(errs, field.Invalid(field.NewPath("metadata", "name"), name, "will not able to create pod with invalid DNS label: "+last))
		}
	}
	return errs
}

// validateJobUpdate lets the template of a Job change only while it is suspended and has
// never started, and completions only together with parallelism.
func validateJobUpdate(spec, old tree.Object, path *field.Path, state tree.Object) (errs field.ErrorList) {
	if !semanticEqual(spec["completions"], old["completions"]) {
		elastic := tree.Text(spec, "completionMode") == "Indexed" && semanticEqual(spec["completions"], spec["parallelism"]) && semanticEqual(old["completions"], old["parallelism"])
		switch {
		case tree.Text(spec, "completionMode") != "Indexed":
			errs = append(errs, field.Invalid(path.Child("completions"), spec["completions"], "field is immutable"))
		case !elastic:
			errs = append(errs, field.Invalid(path.Child("completions"), spec["completions"], fmt.Sprintf("can only be modified in tandem with %s", path.Child("parallelism"))))
		}
	}
	before := tree.As(old["template"])
	if old["suspend"] == true && state["startTime"] == nil {
		before = withScheduling(before, tree.As(spec["template"]))
	}
	if !semanticEqual(spec["template"], before) {
		errs = append(errs, field.Invalid(path.Child("template"), spec["template"], "field is immutable"))
	}
	return errs
}

// withScheduling is a template with the parts of another that say where pods run
// and what they ask for.
func withScheduling(template, from tree.Object) tree.Object {
	out, meta, spec := tree.Clone(template), tree.Clone(template["metadata"]), tree.Clone(template["spec"])
	copyFields(meta, tree.As(from["metadata"]), "labels", "annotations")
	fromSpec := tree.As(from["spec"])
	copyFields(spec, fromSpec, "nodeSelector", "tolerations", "schedulingGates", "affinity")
	for _, name := range [...]string{"containers", "initContainers"} {
		spec[name] = withResources(tree.List(spec[name]), tree.List(fromSpec[name]))
		if len(tree.List(spec[name])) == 0 {
			delete(spec, name)
		}
	}
	out["metadata"], out["spec"] = meta, spec
	if template["metadata"] == nil && from["metadata"] == nil {
		delete(out, "metadata")
	}
	return out
}

func withResources(containers, from []any) any {
	out := make([]any, len(containers))
	for i, c := range containers {
		out[i] = c
		if i < len(from) {
			changed := tree.Clone(c)
			copyFields(changed, tree.As(from[i]), "resources")
			out[i] = changed
		}
	}
	return out
}
