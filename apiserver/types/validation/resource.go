package validation

import (
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/kubernetes/pkg/apis/resource"
	v1 "k8s.io/kubernetes/pkg/apis/resource/v1"
	"k8s.io/kubernetes/pkg/apis/resource/validation"
)

var resourceKinds = map[string]Kind{
	"deviceclasses.resource.k8s.io": rules[resourcev1.DeviceClass, resource.DeviceClass]{
		convert: v1.Convert_v1_DeviceClass_To_resource_DeviceClass,
		create:  validation.ValidateDeviceClass,
		update:  validation.ValidateDeviceClassUpdate,
	},
	"resourceclaims.resource.k8s.io": rules[resourcev1.ResourceClaim, resource.ResourceClaim]{
		convert: v1.Convert_v1_ResourceClaim_To_resource_ResourceClaim,
		create:  validation.ValidateResourceClaim,
		update:  validation.ValidateResourceClaimUpdate,
		parts: map[string]func(c, old *resource.ResourceClaim) field.ErrorList{
			"status": validation.ValidateResourceClaimStatusUpdate,
		},
	},
	"resourceclaimtemplates.resource.k8s.io": rules[resourcev1.ResourceClaimTemplate, resource.ResourceClaimTemplate]{
		convert: v1.Convert_v1_ResourceClaimTemplate_To_resource_ResourceClaimTemplate,
		create:  validation.ValidateResourceClaimTemplate,
		update: func(t, old *resource.ResourceClaimTemplate) field.ErrorList {
			return append(validation.ValidateResourceClaimTemplate(t), validation.ValidateResourceClaimTemplateUpdate(t, old)...)
		},
	},
	"resourceslices.resource.k8s.io": rules[resourcev1.ResourceSlice, resource.ResourceSlice]{
		convert: v1.Convert_v1_ResourceSlice_To_resource_ResourceSlice,
		warn:    sliceWarnings,
		create:  validation.ValidateResourceSlice,
		update:  validation.ValidateResourceSliceUpdate,
	},
}
