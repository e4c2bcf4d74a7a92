package builtin

import (
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/quorate/quorate/apiserver/kinds"
	"github.com/quorate/quorate/apiserver/objects"
	"github.com/quorate/quorate/apiserver/quota"
	"github.com/quorate/quorate/apiserver/tree"
	"github.com/quorate/quorate/proto"
	corev1 "k8s.io/api/core/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

var (
	resourceClaimStrategy = objects.Strategy{Usage: usageOf(quota.ResourceClaims)}
	resourceQuotaStrategy = objects.Strategy{ValidateWith: validateResourceQuota, ValidatesAll: true, Warnings: warningsForQuota, Limits: quotaLimits}
)

// usageOf is what objects of a resource use of what quotas bound.
func usageOf(gr schema.GroupResource) func(tree.Object, time.Time) *proto.Usage {
	return func(obj tree.Object, now time.Time) *proto.Usage {
		u, _ := quota.Of(gr, obj, now)
		return u.Entry()
	}
}

func quotaLimits(obj tree.Object) []*proto.Limit { return quota.LimitsOf(obj, tableOf) }

// builtinTables are the tables of all built-in resources, whether they are served or not.
var builtinTables = sync.OnceValue(func() map[schema.GroupResource]string {
	out := map[schema.GroupResource]string{}
	if all, err := kinds.Available(); err == nil { // else nothing starts
		for _, r := range all.All() {
			out[r.GroupResource()] = r.Table()
		}
	}
	return out
})

// tableOf is where the objects of a resource are, or will be once it is defined.
func tableOf(gr schema.GroupResource) string {
	if table, ok := builtinTables()[gr]; ok {
		return table
	}
	return (&kinds.Resource{Group: gr.Group, Plural: gr.Resource, Custom: true}).Table()
}

// What one quota may say: every write in its namespace is held against all of it.
const (
	maxQuotaBounds = 1000
	maxQuotaValues = 1000 // in all scopes together
)

// validateResourceQuota checks a quota and its status, in upstream's words.
func validateResourceQuota(_ *objects.Op, obj, old tree.Object) (errs field.ErrorList, _ error) {
	path, spec := field.NewPath("spec"), tree.As(obj["spec"])
	errs = validateQuotaList(tree.As(spec["hard"]), path.Child("hard"))
	if n := len(tree.As(spec["hard"])); n > maxQuotaBounds {
		errs = append(errs, field.TooMany(path.Child("hard"), n, maxQuotaBounds))
	}
	errs = append(errs, validateQuotaScopes(spec, path)...)
	errs = append(errs, validateScopeSelector(spec, path)...)
	status := tree.As(obj["status"])
	errs = append(errs, validateQuotaList(tree.As(status["hard"]), field.NewPath("status", "hard"))...)
	errs = append(errs, validateQuotaList(tree.As(status["used"]), field.NewPath("status", "used"))...)
	if old != nil {
		now, was := quotaScopes(spec), quotaScopes(tree.As(old["spec"]))
		if !maps.Equal(setOf(now), setOf(was)) {
			errs = append(errs, field.Invalid(path.Child("scopes"), now, apivalidation.FieldImmutableErrorMsg))
		}
	}
	return errs, nil
}

func quotaScopes(spec tree.Object) []corev1.ResourceQuotaScope {
	var out []corev1.ResourceQuotaScope
	for _, s := range tree.List(spec["scopes"]) {
		out = append(out, corev1.ResourceQuotaScope(tree.Scalar(s)))
	}
	return out
}

func setOf[T comparable](list []T) map[T]bool {
	out := make(map[T]bool, len(list))
	for _, v := range list {
		out[v] = true
	}
	return out
}

// standardQuotaResources are the names without a slash that quotas may bound.
var standardQuotaResources = setOf([]string{
	"cpu", "memory", "ephemeral-storage", "requests.cpu", "requests.memory", "requests.storage", "requests.ephemeral-storage",
	"limits.cpu", "limits.memory", "limits.ephemeral-storage", "pods", "resourcequotas", "services", "replicationcontrollers",
	"secrets", "persistentvolumeclaims", "configmaps", "services.nodeports", "services.loadbalancers",
})

// wholeQuotaResources are numbers of things.
var wholeQuotaResources = setOf([]string{
	"pods", "resourcequotas", "services", "replicationcontrollers", "secrets", "configmaps", "persistentvolumeclaims",
	"services.nodeports", "services.loadbalancers",
})

func standardQuotaResource(name string) bool {
	return standardQuotaResources[name] || strings.HasPrefix(name, corev1.ResourceHugePagesPrefix) || strings.HasPrefix(name, corev1.ResourceRequestsHugePagesPrefix)
}

// wholeQuotaResource also finds the resources of nodes that Kubernetes does not know.
func wholeQuotaResource(name string) bool {
	return wholeQuotaResources[name] || isExtended(name)
}

func validateQuotaList(list tree.Object, path *field.Path) (errs field.ErrorList) {
	for _, name := range slices.Sorted(maps.Keys(list)) {
		at := path.Key(name)
		errs = append(errs, validateQuotaResource(name, at)...)
		q, err := tree.ParseQuantity(tree.Scalar(list[name]))
		if err != nil {
			errs = append(errs, field.Invalid(at, list[name], err.Error()))
			continue
		}
		errs = append(errs, validateAmount(name, q, at)...)
	}
	return errs
}

func validateQuotaResource(name string, at *field.Path) (errs field.ErrorList) {
	for _, msg := range validation.IsQualifiedName(name) {
		errs = append(errs, field.Invalid(at, corev1.ResourceName(name), msg))
	}
	if strings.Contains(name, "/") || standardQuotaResource(name) {
		return errs
	}
	if len(errs) == 0 && name != string(corev1.ResourceStorage) {
		errs = append(errs, field.Invalid(at, corev1.ResourceName(name), "must be a standard resource type or fully qualified"))
	}
	return append(errs, field.Invalid(at, corev1.ResourceName(name), "must be a standard resource for quota"))
}

var (
	podScopeResources         = setOf([]string{"pods", "cpu", "memory", "limits.cpu", "limits.memory", "requests.cpu", "requests.memory"})
	bestEffortScopeResources  = setOf([]string{"pods"})
	volumeClassScopeResources = setOf([]string{"persistentvolumeclaims", "requests.storage"})
	// scopeResources are the standard resources that each scope is about.
	scopeResources = map[corev1.ResourceQuotaScope]map[string]bool{
		corev1.ResourceQuotaScopeTerminating:               podScopeResources,
		corev1.ResourceQuotaScopeNotTerminating:            podScopeResources,
		corev1.ResourceQuotaScopeNotBestEffort:             podScopeResources,
		corev1.ResourceQuotaScopePriorityClass:             podScopeResources,
		corev1.ResourceQuotaScopeCrossNamespacePodAffinity: podScopeResources,
		corev1.ResourceQuotaScopeBestEffort:                bestEffortScopeResources,
		corev1.ResourceQuotaScopeVolumeAttributesClass:     volumeClassScopeResources,
	}
)

// outOfScope counts the resources of a quota that a scope is not about.
func outOfScope(spec tree.Object, scope corev1.ResourceQuotaScope) (n int) {
	about, known := scopeResources[scope]
	for name := range tree.As(spec["hard"]) {
		if known && standardQuotaResource(name) && !about[name] {
			n++
		}
	}
	return n
}

func conflictingScopes(scopes map[corev1.ResourceQuotaScope]bool) (n int) {
	if scopes[corev1.ResourceQuotaScopeBestEffort] && scopes[corev1.ResourceQuotaScopeNotBestEffort] {
		n++
	}
	if scopes[corev1.ResourceQuotaScopeTerminating] && scopes[corev1.ResourceQuotaScopeNotTerminating] {
		n++
	}
	return n
}

func validateQuotaScopes(spec tree.Object, path *field.Path) (errs field.ErrorList) {
	scopes, at := quotaScopes(spec), path.Child("scopes")
	if len(scopes) > maxQuotaValues {
		return field.ErrorList{field.TooMany(at, len(scopes), maxQuotaValues)}
	}
	refuse := func(n int, why string) {
		for range n {
			errs = append(errs, field.Invalid(at, scopes, why))
		}
	}
	for _, s := range scopes {
		if scopeResources[s] == nil {
			refuse(1, "unsupported scope")
		}
		refuse(outOfScope(spec, s), "unsupported scope applied to resource")
	}
	refuse(conflictingScopes(setOf(scopes)), "conflicting scopes")
	return errs
}

const scopeMustExist = "must be 'Exists' when scope is any of ResourceQuotaScopeTerminating, ResourceQuotaScopeNotTerminating, " +
	"ResourceQuotaScopeBestEffort, ResourceQuotaScopeNotBestEffort or ResourceQuotaScopeCrossNamespacePodAffinity"

// scopeSelector is a selector as upstream's errors print it.
type scopeSelector struct{ MatchExpressions []scopeExpression }

type scopeExpression struct {
	ScopeName corev1.ResourceQuotaScope
	Operator  corev1.ScopeSelectorOperator
	Values    []string
}

func validateScopeSelector(spec tree.Object, path *field.Path) (errs field.ErrorList) {
	at := path.Child("scopeSelector", "matchExpressions")
	var all scopeSelector
	values, seen := 0, map[corev1.ResourceQuotaScope]bool{}
	for _, e := range tree.List(tree.Field(spec, "scopeSelector", "matchExpressions")) {
		list, _ := tree.Strings(tree.As(e)["values"])
		values += 1 + len(list)
		all.MatchExpressions = append(all.MatchExpressions, scopeExpression{
			corev1.ResourceQuotaScope(tree.Text(tree.As(e), "scopeName")), corev1.ScopeSelectorOperator(tree.Text(tree.As(e), "operator")), list,
		})
	}
	if values > maxQuotaValues {
		return field.ErrorList{field.TooMany(at, values, maxQuotaValues)}
	}
	for _, e := range all.MatchExpressions {
		if scopeResources[e.ScopeName] == nil {
			errs = append(errs, field.Invalid(at.Child("scopeName"), e.ScopeName, "unsupported scope"))
		}
		for range outOfScope(spec, e.ScopeName) {
			errs = append(errs, field.Invalid(at, &all, "unsupported scope applied to resource"))
		}
		errs = append(errs, validateScopeOperator(e, at)...)
		seen[e.ScopeName] = true
	}
	for range conflictingScopes(seen) {
		errs = append(errs, field.Invalid(at, quotaScopes(spec), "conflicting scopes"))
	}
	return errs
}

func validateScopeOperator(e scopeExpression, at *field.Path) (errs field.ErrorList) {
	switch e.ScopeName {
	case corev1.ResourceQuotaScopePriorityClass, corev1.ResourceQuotaScopeVolumeAttributesClass:
	default:
		if scopeResources[e.ScopeName] != nil && e.Operator != corev1.ScopeSelectorOpExists {
			errs = append(errs, field.Invalid(at.Child("operator"), e.Operator, scopeMustExist))
		}
	}
	switch e.Operator {
	case corev1.ScopeSelectorOpIn, corev1.ScopeSelectorOpNotIn:
		if len(e.Values) == 0 {
			errs = append(errs, field.Required(at.Child("values"), "must be at least one value when `operator` is 'In' or 'NotIn' for scope selector"))
		}
	case corev1.ScopeSelectorOpExists, corev1.ScopeSelectorOpDoesNotExist:
		if len(e.Values) != 0 {
			errs = append(errs, field.Invalid(at.Child("values"), e.Values, "must be no value when `operator` is 'Exist' or 'DoesNotExist' for scope selector"))
		}
	default:
		errs = append(errs, field.Invalid(at.Child("operator"), e.Operator, "not a valid selector operator"))
	}
	return errs
}
