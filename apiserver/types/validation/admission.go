package validation

import (
	admissionv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	admission "k8s.io/kubernetes/pkg/apis/admissionregistration"
	v1 "k8s.io/kubernetes/pkg/apis/admissionregistration/v1"
	"k8s.io/kubernetes/pkg/apis/admissionregistration/validation"
)

var admissionKinds = map[string]Kind{
	"mutatingadmissionpolicies.admissionregistration.k8s.io": rules[admissionv1.MutatingAdmissionPolicy, admission.MutatingAdmissionPolicy]{
		convert: v1.Convert_v1_MutatingAdmissionPolicy_To_admissionregistration_MutatingAdmissionPolicy,
		create:  validation.ValidateMutatingAdmissionPolicy,
		update:  validation.ValidateMutatingAdmissionPolicyUpdate,
	},
	"mutatingadmissionpolicybindings.admissionregistration.k8s.io": rules[admissionv1.MutatingAdmissionPolicyBinding, admission.MutatingAdmissionPolicyBinding]{
		convert: v1.Convert_v1_MutatingAdmissionPolicyBinding_To_admissionregistration_MutatingAdmissionPolicyBinding,
		create:  validation.ValidateMutatingAdmissionPolicyBinding,
		update:  validation.ValidateMutatingAdmissionPolicyBindingUpdate,
	},
	"mutatingwebhookconfigurations.admissionregistration.k8s.io": rules[admissionv1.MutatingWebhookConfiguration, admission.MutatingWebhookConfiguration]{
		convert: v1.Convert_v1_MutatingWebhookConfiguration_To_admissionregistration_MutatingWebhookConfiguration,
		create:  validation.ValidateMutatingWebhookConfiguration,
		update:  validation.ValidateMutatingWebhookConfigurationUpdate,
	},
	"validatingadmissionpolicies.admissionregistration.k8s.io": rules[admissionv1.ValidatingAdmissionPolicy, admission.ValidatingAdmissionPolicy]{
		convert: v1.Convert_v1_ValidatingAdmissionPolicy_To_admissionregistration_ValidatingAdmissionPolicy,
		create:  validation.ValidateValidatingAdmissionPolicy,
		update:  validation.ValidateValidatingAdmissionPolicyUpdate,
		parts: map[string]func(p, old *admission.ValidatingAdmissionPolicy) field.ErrorList{
			"status": validation.ValidateValidatingAdmissionPolicyStatusUpdate,
		},
	},
	"validatingadmissionpolicybindings.admissionregistration.k8s.io": rules[admissionv1.ValidatingAdmissionPolicyBinding, admission.ValidatingAdmissionPolicyBinding]{
		convert: v1.Convert_v1_ValidatingAdmissionPolicyBinding_To_admissionregistration_ValidatingAdmissionPolicyBinding,
		create:  validation.ValidateValidatingAdmissionPolicyBinding,
		update:  validation.ValidateValidatingAdmissionPolicyBindingUpdate,
	},
	"validatingwebhookconfigurations.admissionregistration.k8s.io": rules[admissionv1.ValidatingWebhookConfiguration, admission.ValidatingWebhookConfiguration]{
		convert: v1.Convert_v1_ValidatingWebhookConfiguration_To_admissionregistration_ValidatingWebhookConfiguration,
		create:  validation.ValidateValidatingWebhookConfiguration,
		update:  validation.ValidateValidatingWebhookConfigurationUpdate,
	},
}
