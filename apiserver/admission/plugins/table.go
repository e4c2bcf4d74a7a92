package plugins

import (
	"io"

	"github.com/quorate/quorate/apiserver/admission"
	"github.com/quorate/quorate/apiserver/admission/certificates"
	"github.com/quorate/quorate/apiserver/admission/claimresize"
	"github.com/quorate/quorate/apiserver/admission/defaultclass"
	"github.com/quorate/quorate/apiserver/admission/defaulttolerationseconds"
	"github.com/quorate/quorate/apiserver/admission/eventratelimit"
	"github.com/quorate/quorate/apiserver/admission/externalips"
	"github.com/quorate/quorate/apiserver/admission/lifecycle"
	"github.com/quorate/quorate/apiserver/admission/limitranger"
	"github.com/quorate/quorate/apiserver/admission/nodetaint"
	"github.com/quorate/quorate/apiserver/admission/ownerreferences"
	"github.com/quorate/quorate/apiserver/admission/podsecurity"
	"github.com/quorate/quorate/apiserver/admission/podtopologylabels"
	"github.com/quorate/quorate/apiserver/admission/policies"
	"github.com/quorate/quorate/apiserver/admission/priority"
	"github.com/quorate/quorate/apiserver/admission/runtimeclass"
	"github.com/quorate/quorate/apiserver/admission/serviceaccount"
	"github.com/quorate/quorate/apiserver/admission/storageprotection"
)

// table has all plugins in the order in which they are asked: upstream's
// (pkg/kubeapiserver/options/plugins.go). Mutators come before validators whatever their place.
var table = []plugin{
	{name: "AlwaysAdmit", reason: "upstream's has no meaning either"},
	{name: "NamespaceAutoProvision"},
	{name: "NamespaceLifecycle", on: true, make: simple(func(e *env) admission.Plugin { return lifecycle.New(e.state) })},
	{name: "NamespaceExists"},
	{name: "LimitPodHardAntiAffinityTopology"},
	{name: "LimitRanger", on: true, make: simple(func(e *env) admission.Plugin { return limitranger.New(e.state, e.Log) })},
	{name: "ServiceAccount", on: true, make: simple(func(e *env) admission.Plugin { return serviceaccount.New(e.state, e.Confirm) })},
	{name: "NodeRestriction"},
	{name: "TaintNodesByCondition", on: true, make: simple(func(*env) admission.Plugin { return nodetaint.Plugin{} })},
	{name: "AlwaysPullImages"},
	{name: "ImagePolicyWebhook"},
	{name: "PodSecurity", on: true, make: func(e *env, config io.Reader) (admission.Plugin, error) {
		return podsecurity.New(e.state, config, e.Registerer)
	}},
	{name: "PodNodeSelector"},
	{name: "Priority", on: true, make: simple(func(e *env) admission.Plugin { return priority.New(e.state, e.Log) })},
	{name: "DefaultTolerationSeconds", on: true, make: simple(func(e *env) admission.Plugin {
		return defaulttolerationseconds.New(e.NotReadySeconds, e.UnreachableSeconds)
	})},
	{name: "PodTolerationRestriction"},
	{name: "EventRateLimit", make: func(_ *env, config io.Reader) (admission.Plugin, error) { return eventratelimit.New(config) }},
	{name: "ExtendedResourceToleration"},
	{name: "DefaultStorageClass", on: true, make: simple(func(e *env) admission.Plugin { return defaultclass.Storage(e.state, e.Log) })},
	{name: "StorageObjectInUseProtection", on: true, make: simple(func(*env) admission.Plugin { return storageprotection.New() })},
	{name: "PodGroupProtection", on: true, reason: "the feature gate is off by default in 1.36"},
	{name: "OwnerReferencesPermissionEnforcement", make: simple(func(e *env) admission.Plugin { return ownerreferences.New(e.Authorizer, e.Kinds) })},
	{name: "PersistentVolumeClaimResize", on: true, make: simple(func(e *env) admission.Plugin { return claimresize.New(e.state) })},
	{name: "RuntimeClass", on: true, make: simple(func(e *env) admission.Plugin { return runtimeclass.New(e.state, e.Log) })},
	{name: "CertificateApproval", on: true, make: simple(func(e *env) admission.Plugin { return certificates.Approval(e.Authorizer, e.Log) })},
	{name: "CertificateSigning", on: true, make: simple(func(e *env) admission.Plugin { return certificates.Signing(e.Authorizer, e.Log) })},
	{name: "ClusterTrustBundleAttest", on: true, reason: "ClusterTrustBundles are not served: the feature gate is off by default in 1.36"},
	{name: "CertificateSubjectRestriction", on: true, make: simple(func(*env) admission.Plugin { return certificates.Subject() })},
	{name: "DefaultIngressClass", on: true, make: simple(func(e *env) admission.Plugin { return defaultclass.Ingress(e.state, e.Log) })},
	{name: "DenyServiceExternalIPs", make: simple(func(*env) admission.Plugin { return externalips.New() })},
	{name: "PodTopologyLabels", on: true, make: simple(func(e *env) admission.Plugin { return podtopologylabels.New(e.state) })},
	{name: "PodGroupWorkloadExists", on: true, reason: "the feature gate is off by default in 1.36"},
	{name: "NodeDeclaredFeatureValidator", on: true},
	{name: "JobValidation", on: true, reason: "the feature gate is off by default in 1.36"},
	{name: "PodResizeValidator", on: true},
	{name: "MutatingAdmissionPolicy", on: true, make: func(e *env, c io.Reader) (admission.Plugin, error) { return policies.NewMutating(e.policies(), c) }},
	{name: "MutatingAdmissionWebhook", on: true, make: mutatingWebhook},
	{name: "ValidatingAdmissionPolicy", on: true, make: func(e *env, c io.Reader) (admission.Plugin, error) { return policies.NewValidating(e.policies(), c) }},
	{name: "ValidatingAdmissionWebhook", on: true, make: validatingWebhook},
	{name: "ResourceQuota", on: true},
	{name: "AlwaysDeny"},
}
