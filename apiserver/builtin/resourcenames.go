package builtin

import (
	"fmt"
	"slices"
	"strings"

	"github.com/quorate/quorate/apiserver/tree"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	helpers "k8s.io/component-helpers/resource"
)

var containerResources = []string{"cpu", "memory", "ephemeral-storage"}

func isHugePages(name string) bool { return strings.HasPrefix(name, corev1.ResourceHugePagesPrefix) }

// isNative is true of resources in *kubernetes.io/, where those without a prefix are too.
func isNative(name string) bool {
	return !strings.Contains(name, "/") || strings.Contains(name, corev1.ResourceDefaultNamespacePrefix)
}

// isExtended is true of others' resources: those that a quota can name "requests.NAME".
func isExtended(name string) bool {
	const requests = corev1.DefaultResourceRequestsPrefix
	return !isNative(name) && !strings.HasPrefix(name, requests) && len(validation.IsQualifiedName(requests+name)) == 0
}

// mayOvercommit says whether the limit of a resource may be above its request.
func mayOvercommit(name string) bool { return isNative(name) && !isHugePages(name) }

func validateResourceName(name string, at *field.Path) (errs field.ErrorList) {
	for _, why := range validation.IsQualifiedName(name) {
		errs = append(errs, field.Invalid(at, name, why))
	}
	if len(errs) > 0 || strings.Contains(name, "/") || standardQuotaResource(name) || name == string(corev1.ResourceStorage) {
		return errs
	}
	return field.ErrorList{field.Invalid(at, name, "must be a standard resource type or fully qualified")}
}

// validateContainerResourceName is validateResourceName of what containers can ask for.
func validateContainerResourceName(name string, at *field.Path) field.ErrorList {
	errs := validateResourceName(name, at)
	switch {
	case !strings.Contains(name, "/"):
		if !slices.Contains(containerResources, name) && !isHugePages(name) {
			errs = append(errs, field.Invalid(at, name, "must be a standard resource for containers"))
		}
	case !isNative(name) && !isExtended(name):
		errs = append(errs, field.Invalid(at, name, "doesn't follow extended resource name standard"))
	}
	return errs
}

// validatePodResourceName is validateResourceName of what a Pod as a whole can ask for.
func validatePodResourceName(name string, at *field.Path) field.ErrorList {
	errs := validateResourceName(name, at)
	if len(errs) == 0 && !helpers.IsSupportedPodLevelResource(corev1.ResourceName(name)) {
		errs = append(errs, field.NotSupported(at, corev1.ResourceName(name), sets.List(helpers.SupportedPodLevelResources())))
	}
	return errs
}

// validateAmount checks how much of a resource there may be.
func validateAmount(name string, q resource.Quantity, at *field.Path) (errs field.ErrorList) {
	if q.Sign() < 0 {
		errs = append(errs, field.Invalid(at, q.String(), apivalidation.IsNegativeErrorMsg))
	}
	if wholeQuotaResource(name) && q.MilliValue()%1000 != 0 {
		errs = append(errs, field.Invalid(at, q, "must be an integer"))
	}
	return errs
}

// validatePages checks that huge pages are whole pages, of the size that the name of the resource has.
func validatePages(name string, q resource.Quantity, at *field.Path) field.ErrorList {
	if !isHugePages(name) {
		return nil
	}
	size, err := tree.ParseQuantity(strings.TrimPrefix(name, corev1.ResourceHugePagesPrefix))
	if err != nil || size.Sign() <= 0 || size.MilliValue()%1000 != 0 || size.Value() == 0 || q.Value()%size.Value() != 0 {
		return field.ErrorList{field.Invalid(at, q.String(), fmt.Sprintf("%s is not positive integer multiple of %s", q.String(), name))}
	}
	return nil
}

// quantitiesOf decodes a list of resources. What is no quantity is left out: the schema refuses it.
func quantitiesOf(v any) map[string]resource.Quantity {
	list := tree.As(v)
	if len(list) == 0 {
		return nil
	}
	out := make(map[string]resource.Quantity, len(list))
	for name, v := range list {
		if q, err := tree.ParseQuantity(tree.Scalar(v)); err == nil {
			out[name] = q
		}
	}
	return out
}
