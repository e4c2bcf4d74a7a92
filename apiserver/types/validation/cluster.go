package validation

import (
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	certificatesv1 "k8s.io/api/certificates/v1"
	certificatesv1beta1 "k8s.io/api/certificates/v1beta1"
	coordinationv1 "k8s.io/api/coordination/v1"
	coordinationv1beta1 "k8s.io/api/coordination/v1beta1"
	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	nodev1 "k8s.io/api/node/v1"
	policyv1 "k8s.io/api/policy/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/kubernetes/pkg/apis/autoscaling"
	upstreamautoscaling "k8s.io/kubernetes/pkg/apis/autoscaling/v2"
	autoscalingvalidation "k8s.io/kubernetes/pkg/apis/autoscaling/validation"
	"k8s.io/kubernetes/pkg/apis/certificates"
	upstreamcertificates "k8s.io/kubernetes/pkg/apis/certificates/v1"
	upstreambundles "k8s.io/kubernetes/pkg/apis/certificates/v1beta1"
	certificatesvalidation "k8s.io/kubernetes/pkg/apis/certificates/validation"
	"k8s.io/kubernetes/pkg/apis/coordination"
	upstreamcoordination "k8s.io/kubernetes/pkg/apis/coordination/v1"
	upstreamcandidates "k8s.io/kubernetes/pkg/apis/coordination/v1beta1"
	coordinationvalidation "k8s.io/kubernetes/pkg/apis/coordination/validation"
	"k8s.io/kubernetes/pkg/apis/flowcontrol"
	upstreamflowcontrol "k8s.io/kubernetes/pkg/apis/flowcontrol/v1"
	flowcontrolvalidation "k8s.io/kubernetes/pkg/apis/flowcontrol/validation"
	"k8s.io/kubernetes/pkg/apis/node"
	upstreamnode "k8s.io/kubernetes/pkg/apis/node/v1"
	nodevalidation "k8s.io/kubernetes/pkg/apis/node/validation"
	"k8s.io/kubernetes/pkg/apis/policy"
	upstreampolicy "k8s.io/kubernetes/pkg/apis/policy/v1"
	policyvalidation "k8s.io/kubernetes/pkg/apis/policy/validation"
	"k8s.io/kubernetes/pkg/apis/scheduling"
	upstreamscheduling "k8s.io/kubernetes/pkg/apis/scheduling/v1"
	schedulingvalidation "k8s.io/kubernetes/pkg/apis/scheduling/validation"
)

// clusterKinds are those of the groups with one or two kinds.
var clusterKinds = map[string]Kind{
	// Objects of autoscaling/v1 are validated as those of v2, in whose form they are stored.
	"horizontalpodautoscalers.autoscaling": rules[autoscalingv2.HorizontalPodAutoscaler, autoscaling.HorizontalPodAutoscaler]{
		convert: upstreamautoscaling.Convert_v2_HorizontalPodAutoscaler_To_autoscaling_HorizontalPodAutoscaler,
		create: func(a *autoscaling.HorizontalPodAutoscaler) field.ErrorList {
			return autoscalingvalidation.ValidateHorizontalPodAutoscaler(a, autoscalerOptions(a, nil))
		},
		update: func(a, old *autoscaling.HorizontalPodAutoscaler) field.ErrorList {
			return autoscalingvalidation.ValidateHorizontalPodAutoscalerUpdate(a, old, autoscalerOptions(a, old))
		},
		parts: map[string]func(a, old *autoscaling.HorizontalPodAutoscaler) field.ErrorList{
			"status": autoscalingvalidation.ValidateHorizontalPodAutoscalerStatusUpdate,
		},
	},
	"certificatesigningrequests.certificates.k8s.io": rules[certificatesv1.CertificateSigningRequest, certificates.CertificateSigningRequest]{
		convert: upstreamcertificates.Convert_v1_CertificateSigningRequest_To_certificates_CertificateSigningRequest,
		create:  certificatesvalidation.ValidateCertificateSigningRequestCreate,
		update:  certificatesvalidation.ValidateCertificateSigningRequestUpdate,
		parts: map[string]func(r, old *certificates.CertificateSigningRequest) field.ErrorList{
			"status":   certificatesvalidation.ValidateCertificateSigningRequestStatusUpdate,
			"approval": certificatesvalidation.ValidateCertificateSigningRequestApprovalUpdate,
		},
	},
	"clustertrustbundles.certificates.k8s.io": rules[certificatesv1beta1.ClusterTrustBundle, certificates.ClusterTrustBundle]{
		convert: upstreambundles.Convert_v1beta1_ClusterTrustBundle_To_certificates_ClusterTrustBundle,
		create: func(b *certificates.ClusterTrustBundle) field.ErrorList {
			return certificatesvalidation.ValidateClusterTrustBundle(b, certificatesvalidation.ValidateClusterTrustBundleOptions{})
		},
		update: certificatesvalidation.ValidateClusterTrustBundleUpdate,
	},
	"leases.coordination.k8s.io": rules[coordinationv1.Lease, coordination.Lease]{
		convert: upstreamcoordination.Convert_v1_Lease_To_coordination_Lease,
		plain:   plainLease,
		create:  coordinationvalidation.ValidateLease,
		update:  coordinationvalidation.ValidateLeaseUpdate,
	},
	"leasecandidates.coordination.k8s.io": rules[coordinationv1beta1.LeaseCandidate, coordination.LeaseCandidate]{
		convert: upstreamcandidates.Convert_v1beta1_LeaseCandidate_To_coordination_LeaseCandidate,
		create:  coordinationvalidation.ValidateLeaseCandidate,
		update:  coordinationvalidation.ValidateLeaseCandidateUpdate,
	},
	"flowschemas.flowcontrol.apiserver.k8s.io": rules[flowcontrolv1.FlowSchema, flowcontrol.FlowSchema]{
		convert: upstreamflowcontrol.Convert_v1_FlowSchema_To_flowcontrol_FlowSchema,
		create:  flowcontrolvalidation.ValidateFlowSchema,
		update: func(s, old *flowcontrol.FlowSchema) field.ErrorList {
			return flowcontrolvalidation.ValidateFlowSchemaUpdate(old, s) // in upstream's order
		},
		parts: map[string]func(s, old *flowcontrol.FlowSchema) field.ErrorList{
			"status": func(s, old *flowcontrol.FlowSchema) field.ErrorList {
				return flowcontrolvalidation.ValidateFlowSchemaStatusUpdate(old, s)
			},
		},
	},
	"prioritylevelconfigurations.flowcontrol.apiserver.k8s.io": rules[flowcontrolv1.PriorityLevelConfiguration, flowcontrol.PriorityLevelConfiguration]{
		convert: upstreamflowcontrol.Convert_v1_PriorityLevelConfiguration_To_flowcontrol_PriorityLevelConfiguration,
		create:  priorityLevel,
		update:  func(l, _ *flowcontrol.PriorityLevelConfiguration) field.ErrorList { return priorityLevel(l) },
		parts: map[string]func(l, old *flowcontrol.PriorityLevelConfiguration) field.ErrorList{
			"status": func(l, old *flowcontrol.PriorityLevelConfiguration) field.ErrorList {
				return flowcontrolvalidation.ValidatePriorityLevelConfigurationStatusUpdate(old, l)
			},
		},
	},
	"runtimeclasses.node.k8s.io": rules[nodev1.RuntimeClass, node.RuntimeClass]{
		convert: upstreamnode.Convert_v1_RuntimeClass_To_node_RuntimeClass,
		warn:    runtimeClassWarnings,
		create:  nodevalidation.ValidateRuntimeClass,
		update: func(c, old *node.RuntimeClass) field.ErrorList {
			return append(nodevalidation.ValidateRuntimeClass(c), nodevalidation.ValidateRuntimeClassUpdate(c, old)...)
		},
	},
	"poddisruptionbudgets.policy": rules[policyv1.PodDisruptionBudget, policy.PodDisruptionBudget]{
		convert: upstreampolicy.Convert_v1_PodDisruptionBudget_To_policy_PodDisruptionBudget,
		create: func(b *policy.PodDisruptionBudget) field.ErrorList {
			return policyvalidation.ValidatePodDisruptionBudget(b, policyvalidation.PodDisruptionBudgetValidationOptions{})
		},
		update: func(b, old *policy.PodDisruptionBudget) field.ErrorList {
			return policyvalidation.ValidatePodDisruptionBudget(b, policyvalidation.PodDisruptionBudgetValidationOptions{
				AllowInvalidLabelValueInSelector: metavalidation.LabelSelectorHasInvalidLabelValue(old.Spec.Selector),
			})
		},
		parts: map[string]func(b, old *policy.PodDisruptionBudget) field.ErrorList{
			"status": func(b, old *policy.PodDisruptionBudget) field.ErrorList {
				return policyvalidation.ValidatePodDisruptionBudgetStatusUpdate(b.Status, old.Status, field.NewPath("status"), policyv1.SchemeGroupVersion)
			},
		},
	},
	"priorityclasses.scheduling.k8s.io": rules[schedulingv1.PriorityClass, scheduling.PriorityClass]{
		convert: upstreamscheduling.Convert_v1_PriorityClass_To_scheduling_PriorityClass,
		create:  schedulingvalidation.ValidatePriorityClass,
		update:  schedulingvalidation.ValidatePriorityClassUpdate,
	},
}

func priorityLevel(l *flowcontrol.PriorityLevelConfiguration) field.ErrorList {
	return flowcontrolvalidation.ValidatePriorityLevelConfiguration(l, flowcontrolv1.SchemeGroupVersion, flowcontrolvalidation.PriorityLevelValidationOptions{})
}
