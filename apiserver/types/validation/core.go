package validation

import (
	"strings"

	"github.com/quorate/quorate/apiserver/types/tree"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/validation/field"
	podutil "k8s.io/kubernetes/pkg/api/pod"
	"k8s.io/kubernetes/pkg/apis/core"
	"k8s.io/kubernetes/pkg/apis/core/helper"
	v1 "k8s.io/kubernetes/pkg/apis/core/v1"
	"k8s.io/kubernetes/pkg/apis/core/validation"
	upstreamevents "k8s.io/kubernetes/pkg/apis/events/v1"
	volumevalidation "k8s.io/kubernetes/pkg/volume/validation"
)

var coreKinds = map[string]Kind{
	"configmaps": rules[corev1.ConfigMap, core.ConfigMap]{
		convert: v1.Convert_v1_ConfigMap_To_core_ConfigMap,
		plain:   plainConfigMap,
		create:  validation.ValidateConfigMap,
		update:  validation.ValidateConfigMapUpdate,
	},
	//lint:ignore SA1019 it is served
	"endpoints": rules[corev1.Endpoints, core.Endpoints]{
		convert: v1.Convert_v1_Endpoints_To_core_Endpoints,
		create:  validation.ValidateEndpointsCreate,
		update:  validation.ValidateEndpointsUpdate,
	},
	// Events of the core group have looser rules than those of events.k8s.io, which is
	// another version of them.
	"events": rules[corev1.Event, core.Event]{
		convert: v1.Convert_v1_Event_To_core_Event,
		create: func(e *core.Event) field.ErrorList {
			return validation.ValidateEventCreate(e, corev1.SchemeGroupVersion)
		},
		update: func(e, old *core.Event) field.ErrorList {
			return validation.ValidateEventUpdate(e, old, corev1.SchemeGroupVersion)
		},
	},
	"events.events.k8s.io": rules[eventsv1.Event, core.Event]{
		convert: upstreamevents.Convert_v1_Event_To_core_Event,
		create: func(e *core.Event) field.ErrorList {
			return validation.ValidateEventCreate(e, eventsv1.SchemeGroupVersion)
		},
		update: func(e, old *core.Event) field.ErrorList {
			return validation.ValidateEventUpdate(e, old, eventsv1.SchemeGroupVersion)
		},
	},
	"limitranges": rules[corev1.LimitRange, core.LimitRange]{
		convert: v1.Convert_v1_LimitRange_To_core_LimitRange,
		create:  validation.ValidateLimitRange,
		update:  func(l, _ *core.LimitRange) field.ErrorList { return validation.ValidateLimitRange(l) },
	},
	"namespaces": rules[corev1.Namespace, core.Namespace]{
		convert: v1.Convert_v1_Namespace_To_core_Namespace,
		create:  validation.ValidateNamespace,
		update: func(ns, old *core.Namespace) field.ErrorList {
			return append(validation.ValidateNamespace(ns), validation.ValidateNamespaceUpdate(ns, old)...)
		},
		parts: map[string]func(ns, old *core.Namespace) field.ErrorList{
			"status":   validation.ValidateNamespaceStatusUpdate,
			"finalize": validation.ValidateNamespaceFinalizeUpdate,
		},
	},
	"nodes": rules[corev1.Node, core.Node]{
		convert: v1.Convert_v1_Node_To_core_Node,
		warn:    nodeWarnings,
		create:  validation.ValidateNode,
		update: func(n, old *core.Node) field.ErrorList {
			return append(validation.ValidateNode(n), validation.ValidateNodeUpdate(n, old)...)
		},
		parts: map[string]func(n, old *core.Node) field.ErrorList{"status": validation.ValidateNodeUpdate},
	},
	"persistentvolumeclaims": rules[corev1.PersistentVolumeClaim, core.PersistentVolumeClaim]{
		convert: v1.Convert_v1_PersistentVolumeClaim_To_core_PersistentVolumeClaim,
		warn:    claimWarnings,
		fixed:   fixedClaim,
		create: func(c *core.PersistentVolumeClaim) field.ErrorList {
			return validation.ValidatePersistentVolumeClaim(c, validation.ValidationOptionsForPersistentVolumeClaim(c, nil))
		},
		update: func(c, old *core.PersistentVolumeClaim) field.ErrorList {
			return validation.ValidatePersistentVolumeClaimUpdate(c, old, validation.ValidationOptionsForPersistentVolumeClaim(c, old))
		},
		parts: map[string]func(c, old *core.PersistentVolumeClaim) field.ErrorList{
			"status": func(c, old *core.PersistentVolumeClaim) field.ErrorList {
				return validation.ValidatePersistentVolumeClaimStatusUpdate(c, old, validation.ValidationOptionsForPersistentVolumeClaim(c, old))
			},
		},
	},
	"persistentvolumes": rules[corev1.PersistentVolume, core.PersistentVolume]{
		convert: v1.Convert_v1_PersistentVolume_To_core_PersistentVolume,
		warn:    volumeWarnings,
		fixed:   fixedVolume,
		create: func(pv *core.PersistentVolume) field.ErrorList {
			return volume(pv, validation.ValidationOptionsForPersistentVolume(pv, nil))
		},
		update: func(pv, old *core.PersistentVolume) field.ErrorList {
			opts := validation.ValidationOptionsForPersistentVolume(pv, old)
			return append(volume(pv, opts), validation.ValidatePersistentVolumeUpdate(pv, old, opts)...)
		},
		parts: map[string]func(pv, old *core.PersistentVolume) field.ErrorList{
			"status": validation.ValidatePersistentVolumeStatusUpdate,
		},
	},
	"pods": rules[corev1.Pod, core.Pod]{
		convert: v1.Convert_v1_Pod_To_core_Pod,
		warn:    podWarnings,
		fixed:   fixedPod,
		create: func(p *core.Pod) field.ErrorList {
			opts := podutil.GetValidationOptionsFromPodSpecAndMeta(&p.Spec, nil, &p.ObjectMeta, nil)
			opts.ResourceIsPod = true
			return validation.ValidatePodCreate(p, opts)
		},
		update: podUpdate(withOldPod(validation.ValidatePodUpdate)),
		parts: map[string]func(p, old *core.Pod) field.ErrorList{
			"status":              podUpdate(withOldPod(validation.ValidatePodStatusUpdate)),
			"ephemeralcontainers": podUpdate(validation.ValidatePodEphemeralContainersUpdate),
			"resize":              podUpdate(validation.ValidatePodResize),
		},
	},
	"podtemplates": rules[corev1.PodTemplate, core.PodTemplate]{
		convert: v1.Convert_v1_PodTemplate_To_core_PodTemplate,
		warn:    podTemplateWarnings,
		create: func(t *core.PodTemplate) field.ErrorList {
			return validation.ValidatePodTemplate(t, podutil.GetValidationOptionsFromPodTemplate(&t.Template, nil))
		},
		update: func(t, old *core.PodTemplate) field.ErrorList {
			return validation.ValidatePodTemplateUpdate(t, old, podutil.GetValidationOptionsFromPodTemplate(&t.Template, &old.Template))
		},
	},
	"replicationcontrollers": rules[corev1.ReplicationController, core.ReplicationController]{
		convert: v1.Convert_v1_ReplicationController_To_core_ReplicationController,
		warn:    replicationControllerWarnings,
		create: func(rc *core.ReplicationController) field.ErrorList {
			return validation.ValidateReplicationController(rc, podutil.GetValidationOptionsFromPodTemplate(rc.Spec.Template, nil))
		},
		update: replicationControllerUpdate,
		parts: map[string]func(rc, old *core.ReplicationController) field.ErrorList{
			"status": validation.ValidateReplicationControllerStatusUpdate,
		},
	},
	"resourcequotas": rules[corev1.ResourceQuota, core.ResourceQuota]{
		convert: v1.Convert_v1_ResourceQuota_To_core_ResourceQuota,
		warn:    quotaWarnings,
		create:  validation.ValidateResourceQuota,
		update:  validation.ValidateResourceQuotaUpdate,
		parts: map[string]func(q, old *core.ResourceQuota) field.ErrorList{
			"status": validation.ValidateResourceQuotaStatusUpdate,
		},
	},
	"secrets": rules[corev1.Secret, core.Secret]{
		convert: v1.Convert_v1_Secret_To_core_Secret,
		warn:    secretWarnings,
		create:  validation.ValidateSecret,
		update:  validation.ValidateSecretUpdate,
	},
	"serviceaccounts": rules[corev1.ServiceAccount, core.ServiceAccount]{
		convert: v1.Convert_v1_ServiceAccount_To_core_ServiceAccount,
		create:  validation.ValidateServiceAccount,
		update:  validation.ValidateServiceAccountUpdate,
	},
	"services": rules[corev1.Service, core.Service]{
		convert: v1.Convert_v1_Service_To_core_Service,
		warn:    serviceWarnings,
		create:  validation.ValidateServiceCreate,
		update:  withOldService(validation.ValidateServiceUpdate),
		parts: map[string]func(s, old *core.Service) field.ErrorList{
			"status": withOldService(validation.ValidateServiceStatusUpdate),
		},
	},
}

// podValidation is what upstream's functions for updates of Pods are.
type podValidation = func(p, old *core.Pod, opts validation.PodValidationOptions) field.ErrorList

// podUpdate gives a validation of an update the options that follow from what the Pod was.
func podUpdate(validate podValidation) func(p, old *core.Pod) field.ErrorList {
	return func(p, old *core.Pod) field.ErrorList {
		opts := podutil.GetValidationOptionsFromPodSpecAndMeta(&p.Spec, &old.Spec, &p.ObjectMeta, &old.ObjectMeta)
		opts.ResourceIsPod = true
		return validate(p, old, opts)
	}
}

func volume(pv *core.PersistentVolume, opts validation.PersistentVolumeSpecValidationOptions) field.ErrorList {
	return append(validation.ValidatePersistentVolume(pv, opts), volumevalidation.ValidatePersistentVolume(pv)...)
}

// replicationControllerUpdate adds that a selector which another version could not have said
// stays as it is.
func replicationControllerUpdate(rc, old *core.ReplicationController) field.ErrorList {
	errs := validation.ValidateReplicationControllerUpdate(rc, old, podutil.GetValidationOptionsFromPodTemplate(rc.Spec.Template, old.Spec.Template))
	for key, value := range helper.NonConvertibleFields(old.Annotations) {
		_, broken, ok := strings.Cut(key, "/")
		switch {
		case !ok || strings.Contains(broken, "/"):
		case !strings.Contains(broken, "selector"):
			errs = append(errs, &field.Error{Type: field.ErrorTypeNotFound, BadValue: value, Field: broken, Detail: "unknown non-convertible field"})
		case !apiequality.Semantic.DeepEqual(old.Spec.Selector, rc.Spec.Selector):
			errs = append(errs, field.Invalid(field.NewPath("spec", "selector"), rc.Spec.Selector, "cannot update non-convertible selector"))
		}
	}
	return errs
}

// ServiceAddresses is what is wrong with what a Service says of its addresses and their families,
// before it is given any. old is nil for a new one. Upstream asks this first, and nothing else if
// anything is wrong.
func ServiceAddresses(obj, old tree.Object) field.ErrorList {
	r := coreKinds["services"].(rules[corev1.Service, core.Service])
	var in, was *core.Service
	var err error
	if old == nil {
		in, err = r.decode(obj)
	} else {
		in, was, err = r.decodeBoth(obj, old)
	}
	if err != nil {
		return undecodable(err)
	}
	return validation.ValidateServiceClusterIPsRelatedFields(in, was)
}
