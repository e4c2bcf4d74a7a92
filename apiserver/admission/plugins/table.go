package plugins

import (
	"io"
	"strconv"

	"github.com/quorate/quorate/apiserver/admission"
	"github.com/quorate/quorate/apiserver/admission/imagepolicy"
	"github.com/quorate/quorate/apiserver/admission/lifecycle"
	"github.com/quorate/quorate/apiserver/admission/limitranger"
	"github.com/quorate/quorate/apiserver/admission/noderestriction"
	"github.com/quorate/quorate/apiserver/admission/pods"
	"github.com/quorate/quorate/apiserver/admission/podsecurity"
	"github.com/quorate/quorate/apiserver/admission/policies"
	"github.com/quorate/quorate/apiserver/admission/resourcequota"
	"github.com/quorate/quorate/apiserver/admission/serviceaccount"
	"github.com/quorate/quorate/apiserver/admission/storage"
	"github.com/quorate/quorate/apiserver/types/kinds"
	"github.com/quorate/quorate/proto"
	"k8s.io/kubernetes/plugin/pkg/admission/alwayspullimages"
	"k8s.io/kubernetes/plugin/pkg/admission/antiaffinity"
	"k8s.io/kubernetes/plugin/pkg/admission/certificates/approval"
	"k8s.io/kubernetes/plugin/pkg/admission/certificates/ctbattest"
	"k8s.io/kubernetes/plugin/pkg/admission/certificates/signing"
	"k8s.io/kubernetes/plugin/pkg/admission/certificates/subjectrestriction"
	"k8s.io/kubernetes/plugin/pkg/admission/deny"
	"k8s.io/kubernetes/plugin/pkg/admission/eventratelimit"
	"k8s.io/kubernetes/plugin/pkg/admission/extendedresourcetoleration"
	"k8s.io/kubernetes/plugin/pkg/admission/gc"
	"k8s.io/kubernetes/plugin/pkg/admission/namespace/autoprovision"
	"k8s.io/kubernetes/plugin/pkg/admission/namespace/exists"
	"k8s.io/kubernetes/plugin/pkg/admission/network/defaultingressclass"
	"k8s.io/kubernetes/plugin/pkg/admission/network/denyserviceexternalips"
	"k8s.io/kubernetes/plugin/pkg/admission/nodetaint"
	"k8s.io/kubernetes/plugin/pkg/admission/podresize"
	"k8s.io/kubernetes/plugin/pkg/admission/podtolerationrestriction"
	"k8s.io/kubernetes/plugin/pkg/admission/runtimeclass"
	"k8s.io/kubernetes/plugin/pkg/admission/storage/persistentvolume/resize"
)

// table has all plugins in the order in which they are asked: upstream's
// (pkg/kubeapiserver/options/plugins.go). Mutators come before validators whatever their place.
var table = []plugin{
	{name: "AlwaysAdmit", reason: "upstream's has no meaning either"},
	{name: "NamespaceAutoProvision", make: ofUpstream(autoprovision.Register, about())},
	{name: "NamespaceLifecycle", on: true, make: simple(func(e *env) admission.Plugin { return lifecycle.New(e.state) })},
	{name: "NamespaceExists", make: ofUpstream(exists.Register, about())},
	{name: "LimitPodHardAntiAffinityTopology", make: ofUpstream(antiaffinity.Register, about("pods"))},
	{name: "LimitRanger", on: true, make: simple(func(e *env) admission.Plugin { return limitranger.New(e.state, e.Log) })},
	{name: "ServiceAccount", on: true, make: simple(func(e *env) admission.Plugin { return serviceaccount.New(e.state, e.Confirm) })},
	// Upstream has it off by default, as it has the node authorizer, and kubeadm asks for both. Here both are on.
	{name: "NodeRestriction", on: true, make: simple(func(e *env) admission.Plugin { return noderestriction.New(e.state, e.Authorizer) })},
	{name: "TaintNodesByCondition", on: true, make: ofUpstream(nodetaint.Register, about("nodes"))},
	{name: "AlwaysPullImages", make: ofUpstream(alwayspullimages.Register, about("pods"))},
	{name: "ImagePolicyWebhook", make: func(e *env, config io.Reader) (admission.Plugin, error) { return imagepolicy.New(config, e.Log) }},
	{name: "PodSecurity", on: true, make: func(e *env, config io.Reader) (admission.Plugin, error) {
		return podsecurity.New(e.state, config, e.Registerer)
	}},
	{name: "PodNodeSelector", make: podNodeSelector},
	{name: "Priority", on: true, make: simple(func(e *env) admission.Plugin { return pods.NewPriority(e.state, e.Log) })},
	{name: "DefaultTolerationSeconds", on: true, make: simple(func(e *env) admission.Plugin {
		return pods.NewTolerationSeconds(e.NotReadySeconds, e.UnreachableSeconds)
	})},
	{name: "PodTolerationRestriction", make: ofUpstream(podtolerationrestriction.Register, about("pods"))},
	{name: "EventRateLimit", make: ofUpstream(eventratelimit.Register, rated)},
	{name: "ExtendedResourceToleration", make: ofUpstream(extendedresourcetoleration.Register, about("pods"))},
	{name: "DefaultStorageClass", on: true, make: simple(func(e *env) admission.Plugin { return storage.NewDefaultClass(e.state, e.Log) })},
	{name: "StorageObjectInUseProtection", on: true, make: simple(func(*env) admission.Plugin { return storage.NewInUseProtection() })},
	{name: "PodGroupProtection", on: true, reason: "the feature gate is off by default in 1.36"},
	{name: "OwnerReferencesPermissionEnforcement", make: ofUpstream(gc.Register, owned)},
	{name: "PersistentVolumeClaimResize", on: true, make: ofUpstream(resize.Register, reading(proto.RuleStorageClasses, "persistentvolumeclaims"))},
	{name: "RuntimeClass", on: true, make: ofUpstream(runtimeclass.Register, classed)},
	{name: "CertificateApproval", on: true, make: ofUpstream(approval.Register, about("certificatesigningrequests.certificates.k8s.io/approval"))},
	{name: "CertificateSigning", on: true, make: ofUpstream(signing.Register, about("certificatesigningrequests.certificates.k8s.io/status"))},
	{name: "ClusterTrustBundleAttest", on: true, make: ofUpstream(ctbattest.Register, about("clustertrustbundles.certificates.k8s.io"))},
	{name: "CertificateSubjectRestriction", on: true, make: ofUpstream(subjectrestriction.Register, about("certificatesigningrequests.certificates.k8s.io"))},
	{name: "DefaultIngressClass", on: true, make: ofUpstream(defaultingressclass.Register, reading(proto.RuleIngressClasses, "ingresses.networking.k8s.io"))},
	{name: "DenyServiceExternalIPs", make: ofUpstream(denyserviceexternalips.Register, about("services"))},
	{name: "PodTopologyLabels", on: true, make: simple(func(e *env) admission.Plugin { return pods.NewTopologyLabels(e.state) })},
	{name: "PodGroupWorkloadExists", on: true, reason: "the feature gate is off by default in 1.36"},
	{name: "NodeDeclaredFeatureValidator", on: true, make: func(e *env, _ io.Reader) (admission.Plugin, error) {
		return pods.NewDeclaredFeatures(e.state, "1."+strconv.Itoa(kinds.Minor))
	}},
	{name: "JobValidation", on: true, reason: "the feature gate is off by default in 1.36"},
	{name: "PodResizeValidator", on: true, make: ofUpstream(podresize.Register, resized)},
	{name: "MutatingAdmissionPolicy", on: true, make: func(e *env, c io.Reader) (admission.Plugin, error) { return policies.NewMutating(e.policies(), c) }},
	{name: "MutatingAdmissionWebhook", on: true, make: mutatingWebhook},
	{name: "ValidatingAdmissionPolicy", on: true, make: func(e *env, c io.Reader) (admission.Plugin, error) { return policies.NewValidating(e.policies(), c) }},
	{name: "ValidatingAdmissionWebhook", on: true, make: validatingWebhook},
	{name: "ResourceQuota", on: true, make: func(e *env, config io.Reader) (admission.Plugin, error) {
		return resourcequota.New(e.state, config, e.Log)
	}},
	{name: "AlwaysDeny", make: ofUpstream(deny.Register, about())},
}
