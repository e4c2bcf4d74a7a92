package plugins

import (
	"io"
	"strconv"

	"github.com/quorate/quorate/apiserver/admission"
	"github.com/quorate/quorate/apiserver/admission/alwayspullimages"
	"github.com/quorate/quorate/apiserver/admission/antiaffinity"
	"github.com/quorate/quorate/apiserver/admission/autoprovision"
	"github.com/quorate/quorate/apiserver/admission/certificates"
	"github.com/quorate/quorate/apiserver/admission/claimresize"
	"github.com/quorate/quorate/apiserver/admission/defaultclass"
	"github.com/quorate/quorate/apiserver/admission/defaulttolerationseconds"
	"github.com/quorate/quorate/apiserver/admission/deny"
	"github.com/quorate/quorate/apiserver/admission/eventratelimit"
	"github.com/quorate/quorate/apiserver/admission/exists"
	"github.com/quorate/quorate/apiserver/admission/extendedresourcetoleration"
	"github.com/quorate/quorate/apiserver/admission/externalips"
	"github.com/quorate/quorate/apiserver/admission/imagepolicy"
	"github.com/quorate/quorate/apiserver/admission/lifecycle"
	"github.com/quorate/quorate/apiserver/admission/limitranger"
	"github.com/quorate/quorate/apiserver/admission/nodedeclaredfeatures"
	"github.com/quorate/quorate/apiserver/admission/noderestriction"
	"github.com/quorate/quorate/apiserver/admission/nodetaint"
	"github.com/quorate/quorate/apiserver/admission/ownerreferences"
	"github.com/quorate/quorate/apiserver/admission/podnodeselector"
	"github.com/quorate/quorate/apiserver/admission/podresize"
	"github.com/quorate/quorate/apiserver/admission/podsecurity"
	"github.com/quorate/quorate/apiserver/admission/podtolerationrestriction"
	"github.com/quorate/quorate/apiserver/admission/podtopologylabels"
	"github.com/quorate/quorate/apiserver/admission/policies"
	"github.com/quorate/quorate/apiserver/admission/priority"
	"github.com/quorate/quorate/apiserver/admission/resourcequota"
	"github.com/quorate/quorate/apiserver/admission/runtimeclass"
	"github.com/quorate/quorate/apiserver/admission/serviceaccount"
	"github.com/quorate/quorate/apiserver/admission/storageprotection"
	"github.com/quorate/quorate/apiserver/types/kinds"
)

// table has all plugins in the order in which they are asked: upstream's
// (pkg/kubeapiserver/options/plugins.go). Mutators come before validators whatever their place.
var table = []plugin{
	{name: "AlwaysAdmit", reason: "upstream's has no meaning either"},
	{name: "NamespaceAutoProvision", make: simple(func(e *env) admission.Plugin { return autoprovision.New(e.state, e.CreateNamespace) })},
	{name: "NamespaceLifecycle", on: true, make: simple(func(e *env) admission.Plugin { return lifecycle.New(e.state) })},
	{name: "NamespaceExists", make: simple(func(e *env) admission.Plugin { return exists.New(e.state) })},
	{name: "LimitPodHardAntiAffinityTopology", make: simple(func(*env) admission.Plugin { return antiaffinity.Plugin{} })},
	{name: "LimitRanger", on: true, make: simple(func(e *env) admission.Plugin { return limitranger.New(e.state, e.Log) })},
	{name: "ServiceAccount", on: true, make: simple(func(e *env) admission.Plugin { return serviceaccount.New(e.state, e.Confirm) })},
	// Upstream has it off by default, as it has the node authorizer, and kubeadm asks for both. Here both are on.
	{name: "NodeRestriction", on: true, make: simple(func(e *env) admission.Plugin { return noderestriction.New(e.state, e.Authorizer) })},
	{name: "TaintNodesByCondition", on: true, make: simple(func(*env) admission.Plugin { return nodetaint.Plugin{} })},
	{name: "AlwaysPullImages", make: simple(func(*env) admission.Plugin { return alwayspullimages.Plugin{} })},
	{name: "ImagePolicyWebhook", make: func(e *env, config io.Reader) (admission.Plugin, error) { return imagepolicy.New(config, e.Log) }},
	{name: "PodSecurity", on: true, make: func(e *env, config io.Reader) (admission.Plugin, error) {
		return podsecurity.New(e.state, config, e.Registerer)
	}},
	{name: "PodNodeSelector", make: func(e *env, config io.Reader) (admission.Plugin, error) { return podnodeselector.New(e.state, config) }},
	{name: "Priority", on: true, make: simple(func(e *env) admission.Plugin { return priority.New(e.state, e.Log) })},
	{name: "DefaultTolerationSeconds", on: true, make: simple(func(e *env) admission.Plugin {
		return defaulttolerationseconds.New(e.NotReadySeconds, e.UnreachableSeconds)
	})},
	{name: "PodTolerationRestriction", make: func(e *env, config io.Reader) (admission.Plugin, error) {
		return podtolerationrestriction.New(e.state, config)
	}},
	{name: "EventRateLimit", make: func(_ *env, config io.Reader) (admission.Plugin, error) { return eventratelimit.New(config) }},
	{name: "ExtendedResourceToleration", make: simple(func(*env) admission.Plugin { return extendedresourcetoleration.Plugin{} })},
	{name: "DefaultStorageClass", on: true, make: simple(func(e *env) admission.Plugin { return defaultclass.Storage(e.state, e.Log) })},
	{name: "StorageObjectInUseProtection", on: true, make: simple(func(*env) admission.Plugin { return storageprotection.New() })},
	{name: "PodGroupProtection", on: true, reason: "the feature gate is off by default in 1.36"},
	{name: "OwnerReferencesPermissionEnforcement", make: simple(func(e *env) admission.Plugin { return ownerreferences.New(e.Authorizer, e.Kinds) })},
	{name: "PersistentVolumeClaimResize", on: true, make: simple(func(e *env) admission.Plugin { return claimresize.New(e.state) })},
	{name: "RuntimeClass", on: true, make: simple(func(e *env) admission.Plugin { return runtimeclass.New(e.state, e.Log) })},
	{name: "CertificateApproval", on: true, make: simple(func(e *env) admission.Plugin { return certificates.Approval(e.Authorizer, e.Log) })},
	{name: "CertificateSigning", on: true, make: simple(func(e *env) admission.Plugin { return certificates.Signing(e.Authorizer, e.Log) })},
	{name: "ClusterTrustBundleAttest", on: true, make: simple(func(e *env) admission.Plugin { return certificates.Attest(e.Authorizer, e.Log) })},
	{name: "CertificateSubjectRestriction", on: true, make: simple(func(*env) admission.Plugin { return certificates.Subject() })},
	{name: "DefaultIngressClass", on: true, make: simple(func(e *env) admission.Plugin { return defaultclass.Ingress(e.state, e.Log) })},
	{name: "DenyServiceExternalIPs", make: simple(func(*env) admission.Plugin { return externalips.New() })},
	{name: "PodTopologyLabels", on: true, make: simple(func(e *env) admission.Plugin { return podtopologylabels.New(e.state) })},
	{name: "PodGroupWorkloadExists", on: true, reason: "the feature gate is off by default in 1.36"},
	{name: "NodeDeclaredFeatureValidator", on: true, make: func(e *env, _ io.Reader) (admission.Plugin, error) {
		return nodedeclaredfeatures.New(e.state, "1."+strconv.Itoa(kinds.Minor))
	}},
	{name: "JobValidation", on: true, reason: "the feature gate is off by default in 1.36"},
	{name: "PodResizeValidator", on: true, make: simple(func(e *env) admission.Plugin { return podresize.New(e.state) })},
	{name: "MutatingAdmissionPolicy", on: true, make: func(e *env, c io.Reader) (admission.Plugin, error) { return policies.NewMutating(e.policies(), c) }},
	{name: "MutatingAdmissionWebhook", on: true, make: mutatingWebhook},
	{name: "ValidatingAdmissionPolicy", on: true, make: func(e *env, c io.Reader) (admission.Plugin, error) { return policies.NewValidating(e.policies(), c) }},
	{name: "ValidatingAdmissionWebhook", on: true, make: validatingWebhook},
	{name: "ResourceQuota", on: true, make: func(e *env, config io.Reader) (admission.Plugin, error) {
		return resourcequota.New(e.state, config, e.Log)
	}},
	{name: "AlwaysDeny", make: simple(func(*env) admission.Plugin { return deny.Plugin{} })},
}
