package validation

import (
	"github.com/quorate/quorate/apiserver/types/tree"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/kubernetes/pkg/apis/autoscaling"
	upstreamautoscalingv1 "k8s.io/kubernetes/pkg/apis/autoscaling/v1"
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

var scales = rules[autoscalingv1.Scale, autoscaling.Scale]{
	convert: upstreamautoscalingv1.Convert_v1_Scale_To_autoscaling_Scale,
	create:  validation.ValidateScale,
}

// Scale is what is wrong with a Scale of a built-in kind. Its managedFields are not looked at: they
// are those of the object, whatever a client sends.
func Scale(obj tree.Object) (errs field.ErrorList) {
	defer contain(&errs)
	in, err := scales.decode(obj)
	if err != nil {
		return undecodable(err)
	}
	return scales.create(in)
}
