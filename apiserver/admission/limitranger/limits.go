package limitranger

import (
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	helpers "k8s.io/component-helpers/resource"
)

// checkPod is what of a Pod's resources a range does not allow.
func checkPod(r *corev1.LimitRange, pod *corev1.Pod) (errs []error) {
	for i := range r.Spec.Limits {
		switch item := &r.Spec.Limits[i]; item.Type {
		case corev1.LimitTypeContainer:
			for _, list := range [...][]corev1.Container{pod.Spec.Containers, pod.Spec.InitContainers} {
				for j := range list {
					errs = append(errs, check(item, list[j].Resources.Requests, list[j].Resources.Limits)...)
				}
			}
		case corev1.LimitTypePod:
			errs = append(errs, check(item, helpers.PodRequests(pod, helpers.PodResourcesOptions{}), helpers.PodLimits(pod, helpers.PodResourcesOptions{}))...)
		}
	}
	return errs
}

// checkClaim is what of the storage that a claim asks for a range does not allow.
func checkClaim(r *corev1.LimitRange, requests corev1.ResourceList) (errs []error) {
	for i := range r.Spec.Limits {
		item := &r.Spec.Limits[i]
		if item.Type != corev1.LimitTypePersistentVolumeClaim {
			continue
		}
		errs = append(errs, each(item.Min, func(name string, q resource.Quantity) error { return checkMin(item.Type, name, q, requests, nil) })...)
		errs = append(errs, each(item.Max, func(name string, q resource.Quantity) error { return checkMaxRequest(item.Type, name, q, requests) })...)
	}
	return errs
}

func check(item *corev1.LimitRangeItem, requests, limits corev1.ResourceList) (errs []error) {
	for _, rule := range [...]struct {
		list  corev1.ResourceList
		check func(corev1.LimitType, string, resource.Quantity, corev1.ResourceList, corev1.ResourceList) error
	}{{item.Min, checkMin}, {item.Max, checkMax}, {item.MaxLimitRequestRatio, checkRatio}} {
		errs = append(errs, each(rule.list, func(name string, q resource.Quantity) error { return rule.check(item.Type, name, q, requests, limits) })...)
	}
	return errs
}

// each collects errors in the order of the resources' names: upstream's is random.
func each(list corev1.ResourceList, check func(name string, q resource.Quantity) error) (errs []error) {
	for _, name := range slices.Sorted(maps.Keys(list)) {
		if err := check(string(name), list[name]); err != nil {
			errs = append(errs, err)
		}
	}
	return errs
}

// comparable returns three quantities as numbers of one precision: in thousandths if they are
// small enough for that.
func comparable(a, b, c resource.Quantity) (int64, int64, int64) {
	x, y, z := a.Value(), b.Value(), c.Value()
	if x <= resource.MaxMilliValue && y <= resource.MaxMilliValue && z <= resource.MaxMilliValue {
		return a.MilliValue(), b.MilliValue(), c.MilliValue()
	}
	return x, y, z
}

func checkMin(of corev1.LimitType, name string, bound resource.Quantity, requests, limits corev1.ResourceList) error {
	request, asked := requests[corev1.ResourceName(name)]
	limit, limited := limits[corev1.ResourceName(name)]
	r, l, b := comparable(request, limit, bound)
	switch {
	case !asked:
		return fmt.Errorf("minimum %s usage per %s is %s.  No request is specified", name, of, bound.String())
	case r < b:
		return fmt.Errorf("minimum %s usage per %s is %s, but request is %s", name, of, bound.String(), request.String())
	case limited && l < b:
		return fmt.Errorf("minimum %s usage per %s is %s, but limit is %s", name, of, bound.String(), limit.String())
	}
	return nil
}

func checkMax(of corev1.LimitType, name string, bound resource.Quantity, requests, limits corev1.ResourceList) error {
	request, asked := requests[corev1.ResourceName(name)]
	limit, limited := limits[corev1.ResourceName(name)]
	r, l, b := comparable(request, limit, bound)
	switch {
	case !limited:
		return fmt.Errorf("maximum %s usage per %s is %s.  No limit is specified", name, of, bound.String())
	case l > b:
		return fmt.Errorf("maximum %s usage per %s is %s, but limit is %s", name, of, bound.String(), limit.String())
	case asked && r > b:
		return fmt.Errorf("maximum %s usage per %s is %s, but request is %s", name, of, bound.String(), request.String())
	}
	return nil
}

// checkMaxRequest is checkMax for what has no limits: claims.
func checkMaxRequest(of corev1.LimitType, name string, bound resource.Quantity, requests corev1.ResourceList) error {
	request, asked := requests[corev1.ResourceName(name)]
	r, _, b := comparable(request, resource.Quantity{}, bound)
	switch {
	case !asked:
		return fmt.Errorf("maximum %s usage per %s is %s.  No request is specified", name, of, bound.String())
	case r > b:
		return fmt.Errorf("maximum %s usage per %s is %s, but request is %s", name, of, bound.String(), request.String())
	}
	return nil
}

func checkRatio(of corev1.LimitType, name string, bound resource.Quantity, requests, limits corev1.ResourceList) error {
	request, asked := requests[corev1.ResourceName(name)]
	limit, limited := limits[corev1.ResourceName(name)]
	r, l, _ := comparable(request, limit, bound)
	switch {
	case !asked || r == 0:
		return fmt.Errorf("%s max limit to request ratio per %s is %s, but no request is specified or request is 0", name, of, bound.String())
	case !limited || l == 0:
		return fmt.Errorf("%s max limit to request ratio per %s is %s, but no limit is specified or limit is 0", name, of, bound.String())
	}
	ratio := float64(l) / float64(r)
	has, most := ratio, float64(bound.Value())
	if bound.Value() <= resource.MaxMilliValue {
		has, most = ratio*1000, float64(bound.MilliValue())
	}
	if has > most {
		return fmt.Errorf("%s max limit to request ratio per %s is %s, but provided ratio is %f", name, of, bound.String(), ratio)
	}
	return nil
}
