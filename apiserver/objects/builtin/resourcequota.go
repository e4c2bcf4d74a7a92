package builtin

import (
	"sync"
	"time"

	"github.com/quorate/quorate/apiserver/objects"
	"github.com/quorate/quorate/apiserver/types/kinds"
	"github.com/quorate/quorate/apiserver/types/quota"
	"github.com/quorate/quorate/apiserver/types/tree"
	"github.com/quorate/quorate/apiserver/types/validation"
	"github.com/quorate/quorate/proto"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

var (
	resourceQuotaStrategy = objects.Strategy{Validation: boundedQuota{validation.Of("resourcequotas")}, Limits: quotaLimits, SameRule: sameQuota}
)

// usageOf is what objects of a resource use of what quotas bound.
func usageOf(gr schema.GroupResource) func(tree.Object, time.Time) *proto.Usage {
	return func(obj tree.Object, now time.Time) *proto.Usage {
		u, _ := quota.Of(gr, obj, now)
		return u.Entry()
	}
}

// sameQuota: the plugin decides by the spec. The status changes by every object that is counted, and what
// is used the state machine knows by itself.
func sameQuota(obj, old tree.Object) bool { return tree.Equal(obj["spec"], old["spec"]) }

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

// boundedQuota refuses what would make every write in the namespace slow, before anything looks
// at each of it.
type boundedQuota struct{ objects.Validation }

func (v boundedQuota) Create(obj tree.Object, namespaced bool, warnings *[]string) field.ErrorList {
	if errs := quotaBounds(obj); len(errs) > 0 {
		return errs
	}
	return v.Validation.Create(obj, namespaced, warnings)
}

func (v boundedQuota) Update(subresource string, obj, old tree.Object, namespaced bool, warnings *[]string) field.ErrorList {
	if errs := quotaBounds(obj); len(errs) > 0 {
		return errs
	}
	return v.Validation.Update(subresource, obj, old, namespaced, warnings)
}

func quotaBounds(obj tree.Object) (errs field.ErrorList) {
	path, spec := field.NewPath("spec"), tree.As(obj["spec"])
	if n := len(tree.As(spec["hard"])); n > maxQuotaBounds {
		errs = append(errs, field.TooMany(path.Child("hard"), n, maxQuotaBounds))
	}
	if n := len(tree.List(spec["scopes"])); n > maxQuotaValues {
		errs = append(errs, field.TooMany(path.Child("scopes"), n, maxQuotaValues))
	}
	values := 0
	for _, x := range tree.List(tree.Field(spec, "scopeSelector", "matchExpressions")) {
		values += 1 + len(tree.List(tree.As(x)["values"]))
	}
	if values > maxQuotaValues {
		errs = append(errs, field.TooMany(path.Child("scopeSelector", "matchExpressions"), values, maxQuotaValues))
	}
	return errs
}
