package kinds

import (
	"encoding/json"

	v1 "k8s.io/api/autoscaling/v1"
	v2 "k8s.io/api/autoscaling/v2"
	"k8s.io/apimachinery/pkg/api/resource"
)

// Metrics of autoscaling/v1 (as they stand in annotations) and of v2: two forms of
// the same, field by field. What v1 cannot leave out is zero there.

func behaviorToV2(text string) (any, bool) {
	var b v2.HorizontalPodAutoscalerBehavior
	if json.Unmarshal([]byte(text), &b) != nil || b == (v2.HorizontalPodAutoscalerBehavior{}) {
		return nil, false
	}
	out, err := plain(&b)
	return out, err == nil
}

func metricToV2(in *v1.MetricSpec) *v2.MetricSpec {
	out := &v2.MetricSpec{Type: v2.MetricSourceType(in.Type)}
	if m := in.Object; m != nil {
		target := v2.MetricTarget{Type: v2.ValueMetricType, Value: &m.TargetValue, AverageValue: m.AverageValue}
		if m.AverageValue != nil {
			target.Type = v2.AverageValueMetricType
			if m.TargetValue.IsZero() {
				target.Value = nil
			}
		}
		out.Object = &v2.ObjectMetricSource{
			DescribedObject: v2.CrossVersionObjectReference(m.Target), Target: target,
			Metric: v2.MetricIdentifier{Name: m.MetricName, Selector: m.Selector},
		}
	}
	if m := in.Pods; m != nil {
		out.Pods = &v2.PodsMetricSource{
			Metric: v2.MetricIdentifier{Name: m.MetricName, Selector: m.Selector},
			Target: v2.MetricTarget{Type: v2.AverageValueMetricType, AverageValue: &m.TargetAverageValue},
		}
	}
	if m := in.Resource; m != nil {
		out.Resource = &v2.ResourceMetricSource{Name: m.Name, Target: usage(m.TargetAverageUtilization, m.TargetAverageValue)}
	}
	if m := in.ContainerResource; m != nil {
		out.ContainerResource = &v2.ContainerResourceMetricSource{
			Name: m.Name, Container: m.Container, Target: usage(m.TargetAverageUtilization, m.TargetAverageValue),
		}
	}
	if m := in.External; m != nil {
		target := v2.MetricTarget{Type: v2.ValueMetricType, Value: m.TargetValue, AverageValue: m.TargetAverageValue}
		if m.TargetValue == nil {
			target.Type = v2.AverageValueMetricType
		}
		out.External = &v2.ExternalMetricSource{Metric: v2.MetricIdentifier{Name: m.MetricName, Selector: m.MetricSelector}, Target: target}
	}
	return out
}

// usage is the target of a metric about what is used of what was requested.
func usage(percent *int32, value *resource.Quantity) v2.MetricTarget {
	t := v2.MetricTarget{Type: v2.UtilizationMetricType, AverageUtilization: percent, AverageValue: value}
	if percent == nil {
		t.Type = v2.AverageValueMetricType
	}
	return t
}

func metricFromV2(tree any) (*v1.MetricSpec, error) {
	var in v2.MetricSpec
	if err := typedAs(tree, &in); err != nil {
		return nil, err
	}
	out := &v1.MetricSpec{Type: v1.MetricSourceType(in.Type)}
	if m := in.Object; m != nil {
		out.Object = &v1.ObjectMetricSource{
			Target: v1.CrossVersionObjectReference(m.DescribedObject), MetricName: m.Metric.Name,
			TargetValue: orZero(m.Target.Value), Selector: m.Metric.Selector, AverageValue: m.Target.AverageValue,
		}
	}
	if m := in.Pods; m != nil {
		out.Pods = &v1.PodsMetricSource{MetricName: m.Metric.Name, TargetAverageValue: orZero(m.Target.AverageValue), Selector: m.Metric.Selector}
	}
	if m := in.Resource; m != nil {
		out.Resource = &v1.ResourceMetricSource{Name: m.Name, TargetAverageUtilization: m.Target.AverageUtilization, TargetAverageValue: m.Target.AverageValue}
	}
	if m := in.ContainerResource; m != nil {
		out.ContainerResource = &v1.ContainerResourceMetricSource{
			Name: m.Name, Container: m.Container, TargetAverageUtilization: m.Target.AverageUtilization, TargetAverageValue: m.Target.AverageValue,
		}
	}
	if m := in.External; m != nil {
		out.External = &v1.ExternalMetricSource{
			MetricName: m.Metric.Name, MetricSelector: m.Metric.Selector, TargetValue: m.Target.Value, TargetAverageValue: m.Target.AverageValue,
		}
	}
	return out, nil
}

func metricStatusToV2(in *v1.MetricStatus) *v2.MetricStatus {
	out := &v2.MetricStatus{Type: v2.MetricSourceType(in.Type)}
	if m := in.Object; m != nil {
		out.Object = &v2.ObjectMetricStatus{
			Metric:          v2.MetricIdentifier{Name: m.MetricName, Selector: m.Selector},
			Current:         v2.MetricValueStatus{Value: &m.CurrentValue, AverageValue: m.AverageValue},
			DescribedObject: v2.CrossVersionObjectReference(m.Target),
		}
	}
	if m := in.Pods; m != nil {
		out.Pods = &v2.PodsMetricStatus{
			Metric: v2.MetricIdentifier{Name: m.MetricName, Selector: m.Selector}, Current: v2.MetricValueStatus{AverageValue: &m.CurrentAverageValue},
		}
	}
	if m := in.Resource; m != nil {
		out.Resource = &v2.ResourceMetricStatus{Name: m.Name, Current: v2.MetricValueStatus{AverageUtilization: m.CurrentAverageUtilization, AverageValue: &m.CurrentAverageValue}}
	}
	if m := in.ContainerResource; m != nil {
		out.ContainerResource = &v2.ContainerResourceMetricStatus{
			Name: m.Name, Container: m.Container,
			Current: v2.MetricValueStatus{AverageUtilization: m.CurrentAverageUtilization, AverageValue: &m.CurrentAverageValue},
		}
	}
	if m := in.External; m != nil {
		out.External = &v2.ExternalMetricStatus{
			Metric: v2.MetricIdentifier{Name: m.MetricName, Selector: m.MetricSelector}, Current: v2.MetricValueStatus{Value: &m.CurrentValue, AverageValue: m.CurrentAverageValue},
		}
	}
	return out
}

func metricStatusFromV2(tree any) (*v1.MetricStatus, error) {
	var in v2.MetricStatus
	if err := typedAs(tree, &in); err != nil {
		return nil, err
	}
	out := &v1.MetricStatus{Type: v1.MetricSourceType(in.Type)}
	if m := in.Object; m != nil {
		out.Object = &v1.ObjectMetricStatus{
			Target: v1.CrossVersionObjectReference(m.DescribedObject), MetricName: m.Metric.Name,
			CurrentValue: orZero(m.Current.Value), Selector: m.Metric.Selector, AverageValue: m.Current.AverageValue,
		}
	}
	if m := in.Pods; m != nil {
		out.Pods = &v1.PodsMetricStatus{MetricName: m.Metric.Name, CurrentAverageValue: orZero(m.Current.AverageValue), Selector: m.Metric.Selector}
	}
	if m := in.Resource; m != nil {
		out.Resource = &v1.ResourceMetricStatus{Name: m.Name, CurrentAverageUtilization: m.Current.AverageUtilization, CurrentAverageValue: orZero(m.Current.AverageValue)}
	}
	if m := in.ContainerResource; m != nil {
		out.ContainerResource = &v1.ContainerResourceMetricStatus{
			Name: m.Name, Container: m.Container, CurrentAverageUtilization: m.Current.AverageUtilization, CurrentAverageValue: orZero(m.Current.AverageValue),
		}
	}
	if m := in.External; m != nil {
		out.External = &v1.ExternalMetricStatus{
			MetricName: m.Metric.Name, MetricSelector: m.Metric.Selector, CurrentValue: orZero(m.Current.Value), CurrentAverageValue: m.Current.AverageValue,
		}
	}
	return out, nil
}

func orZero(q *resource.Quantity) resource.Quantity {
	if q == nil {
		return resource.Quantity{}
	}
	return *q
}
