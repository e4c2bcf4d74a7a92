package validation

import (
	"k8s.io/kubernetes/pkg/apis/autoscaling"
	"k8s.io/kubernetes/pkg/apis/autoscaling/validation"
	"k8s.io/utils/ptr"
)

// autoscalerOptions let an autoscaler keep what it had before it was checked: no replicas at
// least, and references without a valid version. The core group has one kind that can be
// scaled, ReplicationController; only metrics may be of others without a group.
func autoscalerOptions(a, old *autoscaling.HorizontalPodAutoscaler) validation.HorizontalPodAutoscalerSpecValidationOptions {
	opts := validation.HorizontalPodAutoscalerSpecValidationOptions{
		MinReplicasLowerBound:          1,
		ObjectMetricsValidationOptions: validation.CrossVersionObjectReferenceValidationOptions{AllowEmptyAPIGroup: true},
	}
	target := a.Spec.ScaleTargetRef
	if old == nil {
		opts.ScaleTargetRefValidationOptions.AllowEmptyAPIGroup = target.Kind == "ReplicationController"
		return opts
	}
	if was := old.Spec.ScaleTargetRef; was.APIVersion == target.APIVersion && was.Kind == target.Kind {
		opts.ScaleTargetRefValidationOptions.AllowInvalidAPIVersion = true
	} else {
		opts.ScaleTargetRefValidationOptions.AllowEmptyAPIGroup = target.Kind == "ReplicationController"
	}
	if ptr.Deref(old.Spec.MinReplicas, 1) == 0 {
		opts.MinReplicasLowerBound = 0
	}
	for _, m := range old.Spec.Metrics {
		if m.Type == autoscaling.ObjectMetricSourceType && m.Object != nil &&
			validation.ValidateAPIVersion(m.Object.DescribedObject, opts.ObjectMetricsValidationOptions) != nil {
			opts.ObjectMetricsValidationOptions.AllowInvalidAPIVersion = true
			break
		}
	}
	return opts
}
