package builtin

import (
	"fmt"
	"slices"
	"strings"

	"github.com/quorate/quorate/apiserver/objects"
	"github.com/quorate/quorate/apiserver/tree"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/util/webhook"
)

// webhookStrategy is that of both kinds of webhook configurations. static: names with the suffix
// of what comes from files cannot be written; otherwise they are warned of.
func webhookStrategy(static bool) *objects.Strategy {
	return &objects.Strategy{ValidateWith: func(o *objects.Op, obj, old tree.Object) (field.ErrorList, error) {
		errs, err := checkExpressions(o, obj, old, "webhooks", func() field.ErrorList { return validateWebhooks(obj, old) })
		return append(errs, reservedName(o, old, static)...), err
	}}
}

// reviewVersions are the versions of AdmissionReview that a server of this API speaks.
var reviewVersions = []string{"v1", "v1beta1"}

// quietSideEffects are the side effects that a webhook may have: such as dry runs can avoid.
var quietSideEffects = []string{"None", "NoneOnDryRun"}

// leniency says which faults a stored configuration has already, so that its update
// is not refused for them.
type leniency struct {
	sideEffects, versions, names, selectors bool
	conditions                              bool            // no condition is new
	known                                   map[string]bool // expressions that are stored
}

// validateWebhooks checks the hooks of both kinds of configurations; a mutating one is a
// validating one for all that is checked here.
func validateWebhooks(obj, old tree.Object) field.ErrorList {
	now, err := webhooksOf(obj)
	if err != nil {
		return field.ErrorList{field.InternalError(field.NewPath("webhooks"), err)}
	}
	before, err := webhooksOf(old)
	if err != nil {
		before = nil
	}
	may := leniencyFor(now, before)
	var errs field.ErrorList
	names := map[string]bool{}
	for i := range now {
		h, path := &now[i], field.NewPath("webhooks").Index(i)
		errs = append(errs, validateWebhook(h, &may, path)...)
		errs = append(errs, validateReviewVersions(h.AdmissionReviewVersions, &may, path.Child("admissionReviewVersions"))...)
		if names[h.Name] && h.Name != "" && !may.names {
			errs = append(errs, field.Duplicate(path.Child("name"), h.Name))
		}
		names[h.Name] = true
	}
	return errs
}

func webhooksOf(obj tree.Object) ([]admissionv1.ValidatingWebhook, error) {
	if obj == nil {
		return nil, nil
	}
	var c admissionv1.ValidatingWebhookConfiguration
	err := runtime.DefaultUnstructuredConverter.FromUnstructured(tree.Object{"webhooks": obj["webhooks"]}, &c)
	return c.Webhooks, err
}

func leniencyFor(now, old []admissionv1.ValidatingWebhook) leniency {
	may := leniency{known: map[string]bool{}, conditions: len(now) == len(old) && len(old) > 0}
	names := map[string]bool{}
	for i := range old {
		h := &old[i]
		may.sideEffects = may.sideEffects || h.SideEffects == nil || !slices.Contains(quietSideEffects, string(*h.SideEffects))
		may.versions = may.versions || len(h.AdmissionReviewVersions) > 0 && !slices.ContainsFunc(h.AdmissionReviewVersions, knownReviewVersion)
		may.names = may.names || names[h.Name]
		names[h.Name] = true
		strict := metav1validation.LabelSelectorValidationOptions{}
		may.selectors = may.selectors || len(metav1validation.ValidateLabelSelector(h.NamespaceSelector, strict, nil)) > 0 ||
			len(metav1validation.ValidateLabelSelector(h.ObjectSelector, strict, nil)) > 0
		for _, c := range h.MatchConditions {
			may.known[c.Expression] = true
		}
		may.conditions = may.conditions && slices.Equal(now[i].MatchConditions, h.MatchConditions)
	}
	return may
}

func knownReviewVersion(version string) bool { return slices.Contains(reviewVersions, version) }

func validateReviewVersions(versions []string, may *leniency, path *field.Path) (errs field.ErrorList) {
	if len(versions) == 0 {
		return field.ErrorList{field.Required(path, "must specify one of "+strings.Join(reviewVersions, ", "))}
	}
	seen := map[string]bool{}
	for i, v := range versions {
		if seen[v] {
			errs = append(errs, field.Invalid(path.Index(i), v, "duplicate version"))
			continue
		}
		seen[v] = true
		for _, msg := range validation.IsDNS1035Label(v) {
			errs = append(errs, field.Invalid(path.Index(i), v, msg))
		}
	}
	if !may.versions && !slices.ContainsFunc(versions, knownReviewVersion) {
		errs = append(errs, field.Invalid(path, versions, "must include at least one of "+strings.Join(reviewVersions, ", ")))
	}
	return errs
}

// validateWebhook checks one hook. Enums are the schema's, but for the side effects.
func validateWebhook(h *admissionv1.ValidatingWebhook, may *leniency, path *field.Path) field.ErrorList {
	errs := validation.IsFullyQualifiedName(path.Child("name"), h.Name)
	for i := range h.Rules {
		errs = append(errs, validateWebhookRule(&h.Rules[i], path.Child("rules").Index(i))...)
	}
	allowed := quietSideEffects
	if may.sideEffects {
		allowed = []string{"None", "NoneOnDryRun", "Some", "Unknown"}
	}
	switch {
	case h.SideEffects == nil:
		errs = append(errs, field.Required(path.Child("sideEffects"), "must specify one of "+strings.Join(allowed, ", ")))
	case !slices.Contains(allowed, string(*h.SideEffects)):
		errs = append(errs, field.NotSupported(path.Child("sideEffects"), *h.SideEffects, allowed))
	}
	if t := h.TimeoutSeconds; t != nil && (*t < 1 || *t > 30) {
		errs = append(errs, field.Invalid(path.Child("timeoutSeconds"), *t, "the timeout value must be between 1 and 30 seconds"))
	}
	opts := metav1validation.LabelSelectorValidationOptions{AllowInvalidLabelValueInSelector: may.selectors}
	errs = append(errs, metav1validation.ValidateLabelSelector(h.NamespaceSelector, opts, path.Child("namespaceSelector"))...)
	errs = append(errs, metav1validation.ValidateLabelSelector(h.ObjectSelector, opts, path.Child("objectSelector"))...)
	errs = append(errs, validateClientConfig(&h.ClientConfig, path.Child("clientConfig"))...)
	if !may.conditions {
		errs = append(errs, validateMatchConditions(h.MatchConditions, may.known, path.Child("matchConditions"))...)
	}
	return errs
}

func validateClientConfig(c *admissionv1.WebhookClientConfig, path *field.Path) field.ErrorList {
	switch {
	case (c.URL == nil) == (c.Service == nil):
		return field.ErrorList{field.Required(path, "exactly one of url or service is required")}
	case c.URL != nil:
		return webhook.ValidateWebhookURL(path.Child("url"), *c.URL, true)
	}
	port := int32(443)
	if c.Service.Port != nil {
		port = *c.Service.Port
	}
	return webhook.ValidateWebhookService(path.Child("service"), c.Service.Name, c.Service.Namespace, c.Service.Path, port)
}

var hookOperations = []string{"*", "CONNECT", "CREATE", "DELETE", "UPDATE"}

func validateWebhookRule(r *admissionv1.RuleWithOperations, path *field.Path) (errs field.ErrorList) {
	if len(r.Operations) == 0 {
		errs = append(errs, field.Required(path.Child("operations"), ""))
	}
	if len(r.Operations) > 1 && slices.Contains(r.Operations, admissionv1.OperationAll) {
		errs = append(errs, field.Invalid(path.Child("operations"), r.Operations, "if '*' is present, must not specify other operations"))
	}
	for i, op := range r.Operations {
		if !slices.Contains(hookOperations, string(op)) {
			errs = append(errs, field.NotSupported(path.Child("operations").Index(i), op, hookOperations))
		}
	}
	errs = append(errs, validateWildcard(r.APIGroups, path.Child("apiGroups"), "API groups")...)
	errs = append(errs, validateWildcard(r.APIVersions, path.Child("apiVersions"), "API versions")...)
	for i, v := range r.APIVersions {
		if v == "" {
			errs = append(errs, field.Required(path.Child("apiVersions").Index(i), ""))
		}
	}
	return append(errs, validateRuleResources(r.Resources, path.Child("resources"))...)
}

// validateWildcard checks a list of names, or of nothing but a star.
func validateWildcard(names []string, path *field.Path, what string) field.ErrorList {
	switch {
	case len(names) == 0:
		return field.ErrorList{field.Required(path, "")}
	case len(names) > 1 && slices.Contains(names, "*"):
		return field.ErrorList{field.Invalid(path, names, fmt.Sprintf("if '*' is present, must not specify other %s", what))}
	}
	return nil
}

// validateRuleResources checks that no entry of the list is part of another one before it.
func validateRuleResources(all []string, path *field.Path) (errs field.ErrorList) {
	if len(all) == 0 {
		errs = append(errs, field.Required(path, ""))
	}
	allSubs, allResources := map[string]bool{}, map[string]bool{} // of x/*, of */x
	star, plain := false, false
	for i, entry := range all {
		if entry == "" {
			errs = append(errs, field.Required(path.Index(i), ""))
			continue
		}
		star = star || entry == "*"
		resource, sub, ok := strings.Cut(entry, "/")
		if !ok {
			plain = entry != "*" // upstream goes by the last one, too
			continue
		}
		if allSubs[resource] {
			errs = append(errs, field.Invalid(path.Index(i), entry, fmt.Sprintf("if '%s/*' is present, must not specify %s", resource, entry)))
		}
		if allResources[sub] {
			errs = append(errs, field.Invalid(path.Index(i), entry, fmt.Sprintf("if '*/%s' is present, must not specify %s", sub, entry)))
		}
		allSubs[resource] = allSubs[resource] || sub == "*"
		allResources[sub] = allResources[sub] || resource == "*"
	}
	if len(all) > 1 && slices.Contains(all, "*/*") {
		errs = append(errs, field.Invalid(path, all, "if '*/*' is present, must not specify other resources"))
	}
	if star && plain {
		errs = append(errs, field.Invalid(path, all, "if '*' is present, must not specify other resources without subresources"))
	}
	return errs
}
