package writes

import (
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apiextensions-apiserver/pkg/registry/customresourcedefinition"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/kube-aggregator/pkg/registry/apiservice"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
	"k8s.io/kubernetes/pkg/registry/admissionregistration/mutatingadmissionpolicy"
	"k8s.io/kubernetes/pkg/registry/admissionregistration/mutatingadmissionpolicybinding"
	"k8s.io/kubernetes/pkg/registry/admissionregistration/mutatingwebhookconfiguration"
	"k8s.io/kubernetes/pkg/registry/admissionregistration/validatingadmissionpolicy"
	"k8s.io/kubernetes/pkg/registry/admissionregistration/validatingadmissionpolicybinding"
	"k8s.io/kubernetes/pkg/registry/admissionregistration/validatingwebhookconfiguration"
	"k8s.io/kubernetes/pkg/registry/apps/controllerrevision"
	"k8s.io/kubernetes/pkg/registry/apps/daemonset"
	"k8s.io/kubernetes/pkg/registry/apps/deployment"
	"k8s.io/kubernetes/pkg/registry/apps/replicaset"
	"k8s.io/kubernetes/pkg/registry/apps/statefulset"
	"k8s.io/kubernetes/pkg/registry/autoscaling/horizontalpodautoscaler"
	"k8s.io/kubernetes/pkg/registry/batch/cronjob"
	"k8s.io/kubernetes/pkg/registry/batch/job"
	"k8s.io/kubernetes/pkg/registry/certificates/certificates"
	"k8s.io/kubernetes/pkg/registry/certificates/clustertrustbundle"
	"k8s.io/kubernetes/pkg/registry/coordination/lease"
	"k8s.io/kubernetes/pkg/registry/coordination/leasecandidate"
	"k8s.io/kubernetes/pkg/registry/core/configmap"
	"k8s.io/kubernetes/pkg/registry/core/endpoint"
	"k8s.io/kubernetes/pkg/registry/core/event"
	"k8s.io/kubernetes/pkg/registry/core/limitrange"
	"k8s.io/kubernetes/pkg/registry/core/namespace"
	"k8s.io/kubernetes/pkg/registry/core/node"
	"k8s.io/kubernetes/pkg/registry/core/persistentvolume"
	"k8s.io/kubernetes/pkg/registry/core/persistentvolumeclaim"
	"k8s.io/kubernetes/pkg/registry/core/pod"
	"k8s.io/kubernetes/pkg/registry/core/podtemplate"
	"k8s.io/kubernetes/pkg/registry/core/replicationcontroller"
	"k8s.io/kubernetes/pkg/registry/core/resourcequota"
	"k8s.io/kubernetes/pkg/registry/core/secret"
	"k8s.io/kubernetes/pkg/registry/core/service"
	"k8s.io/kubernetes/pkg/registry/core/serviceaccount"
	"k8s.io/kubernetes/pkg/registry/discovery/endpointslice"
	"k8s.io/kubernetes/pkg/registry/flowcontrol/flowschema"
	"k8s.io/kubernetes/pkg/registry/flowcontrol/prioritylevelconfiguration"
	"k8s.io/kubernetes/pkg/registry/networking/ingress"
	"k8s.io/kubernetes/pkg/registry/networking/ingressclass"
	"k8s.io/kubernetes/pkg/registry/networking/ipaddress"
	"k8s.io/kubernetes/pkg/registry/networking/networkpolicy"
	"k8s.io/kubernetes/pkg/registry/networking/servicecidr"
	"k8s.io/kubernetes/pkg/registry/node/runtimeclass"
	"k8s.io/kubernetes/pkg/registry/policy/poddisruptionbudget"
	"k8s.io/kubernetes/pkg/registry/rbac/clusterrole"
	"k8s.io/kubernetes/pkg/registry/rbac/clusterrolebinding"
	"k8s.io/kubernetes/pkg/registry/rbac/role"
	"k8s.io/kubernetes/pkg/registry/rbac/rolebinding"
	"k8s.io/kubernetes/pkg/registry/resource/deviceclass"
	"k8s.io/kubernetes/pkg/registry/resource/resourceclaim"
	"k8s.io/kubernetes/pkg/registry/resource/resourceclaimtemplate"
	"k8s.io/kubernetes/pkg/registry/resource/resourceslice"
	"k8s.io/kubernetes/pkg/registry/scheduling/priorityclass"
	"k8s.io/kubernetes/pkg/registry/storage/csidriver"
	"k8s.io/kubernetes/pkg/registry/storage/csinode"
	"k8s.io/kubernetes/pkg/registry/storage/csistoragecapacity"
	"k8s.io/kubernetes/pkg/registry/storage/storageclass"
	"k8s.io/kubernetes/pkg/registry/storage/volumeattachment"
	"k8s.io/kubernetes/pkg/registry/storage/volumeattributesclass"
)

// strategy is what upstream's registries have of a kind.
type strategy interface {
	rest.RESTCreateStrategy
	rest.RESTUpdateStrategy
}

// strategies are upstream's for a resource, and for its subresources by their names.
type strategies struct {
	whole strategy
	parts map[string]rest.RESTUpdateStrategy
}

func plain(s strategy) strategies { return strategies{whole: s} }

func withStatus(s strategy, status rest.RESTUpdateStrategy) strategies {
	return strategies{s, map[string]rest.RESTUpdateStrategy{"status": status}}
}

var (
	namespaceClient = fake.NewClientset(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
		Name: "default", Labels: map[string]string{resourcev1.DRAAdminNamespaceLabelKey: "true"},
	}}).CoreV1().Namespaces()
	claims   = resourceclaim.NewStrategy(namespaceClient, nil)
	policies = validatingadmissionpolicy.NewStrategy(nil, nil)
)

// upstreams are the strategies of all resources, by Resource.CodeName.
var upstreams = map[string]strategies{
	"configmaps":             plain(configmap.Strategy),
	"endpoints":              plain(endpoint.Strategy),
	"events":                 plain(event.Strategy),
	"limitranges":            plain(limitrange.Strategy),
	"namespaces":             withStatus(namespace.Strategy, namespace.StatusStrategy),
	"nodes":                  withStatus(node.Strategy, node.StatusStrategy),
	"persistentvolumeclaims": withStatus(persistentvolumeclaim.Strategy, persistentvolumeclaim.StatusStrategy),
	"persistentvolumes":      withStatus(persistentvolume.Strategy, persistentvolume.StatusStrategy),
	"pods":                   withStatus(pod.Strategy, pod.StatusStrategy),
	"podtemplates":           plain(podtemplate.Strategy),
	"replicationcontrollers": withStatus(replicationcontroller.Strategy, replicationcontroller.StatusStrategy),
	"resourcequotas":         withStatus(resourcequota.Strategy, resourcequota.StatusStrategy),
	"secrets":                plain(secret.Strategy),
	"serviceaccounts":        plain(serviceaccount.Strategy),
	"services":               withStatus(service.Strategy, service.StatusStrategy),

	// Of these two the flags alone are compared: upstream has their types in schemes of their own.
	"customresourcedefinitions.apiextensions.k8s.io": plain(customresourcedefinition.NewStrategy(legacyscheme.Scheme)),
	"apiservices.apiregistration.k8s.io":             plain(apiservice.NewStrategy(legacyscheme.Scheme)),

	"mutatingadmissionpolicies.admissionregistration.k8s.io":         plain(mutatingadmissionpolicy.NewStrategy(nil, nil)),
	"mutatingadmissionpolicybindings.admissionregistration.k8s.io":   plain(mutatingadmissionpolicybinding.NewStrategy(nil, nil, nil)),
	"mutatingwebhookconfigurations.admissionregistration.k8s.io":     plain(mutatingwebhookconfiguration.Strategy),
	"validatingadmissionpolicies.admissionregistration.k8s.io":       withStatus(policies, validatingadmissionpolicy.NewStatusStrategy(policies)),
	"validatingadmissionpolicybindings.admissionregistration.k8s.io": plain(validatingadmissionpolicybinding.NewStrategy(nil, nil, nil)),
	"validatingwebhookconfigurations.admissionregistration.k8s.io":   plain(validatingwebhookconfiguration.Strategy),

	"controllerrevisions.apps": plain(controllerrevision.Strategy),
	"daemonsets.apps":          withStatus(daemonset.Strategy, daemonset.StatusStrategy),
	"deployments.apps":         withStatus(deployment.Strategy, deployment.StatusStrategy),
	"replicasets.apps":         withStatus(replicaset.Strategy, replicaset.StatusStrategy),
	"statefulsets.apps":        withStatus(statefulset.Strategy, statefulset.StatusStrategy),

	"horizontalpodautoscalers.autoscaling": withStatus(horizontalpodautoscaler.Strategy, horizontalpodautoscaler.StatusStrategy),

	"cronjobs.batch": withStatus(cronjob.Strategy, cronjob.StatusStrategy),
	"jobs.batch":     withStatus(job.Strategy, job.StatusStrategy),

	"certificatesigningrequests.certificates.k8s.io": {certificates.Strategy, map[string]rest.RESTUpdateStrategy{
		"status": certificates.StatusStrategy, "approval": certificates.ApprovalStrategy,
	}},
	"clustertrustbundles.certificates.k8s.io": plain(clustertrustbundle.Strategy),

	"leases.coordination.k8s.io":          plain(lease.Strategy),
	"leasecandidates.coordination.k8s.io": plain(leasecandidate.Strategy),

	"events.events.k8s.io": plain(event.Strategy),

	"endpointslices.discovery.k8s.io": plain(endpointslice.Strategy),

	"flowschemas.flowcontrol.apiserver.k8s.io":                 withStatus(flowschema.Strategy, flowschema.StatusStrategy),
	"prioritylevelconfigurations.flowcontrol.apiserver.k8s.io": withStatus(prioritylevelconfiguration.Strategy, prioritylevelconfiguration.StatusStrategy),

	"ingressclasses.networking.k8s.io":  plain(ingressclass.Strategy),
	"ingresses.networking.k8s.io":       withStatus(ingress.Strategy, ingress.StatusStrategy),
	"ipaddresses.networking.k8s.io":     plain(ipaddress.Strategy),
	"networkpolicies.networking.k8s.io": plain(networkpolicy.Strategy),
	"servicecidrs.networking.k8s.io":    withStatus(servicecidr.Strategy, servicecidr.StatusStrategy),

	"runtimeclasses.node.k8s.io": plain(runtimeclass.Strategy),

	"poddisruptionbudgets.policy": withStatus(poddisruptionbudget.Strategy, poddisruptionbudget.StatusStrategy),

	"clusterrolebindings.rbac.authorization.k8s.io": plain(clusterrolebinding.Strategy),
	"clusterroles.rbac.authorization.k8s.io":        plain(clusterrole.Strategy),
	"rolebindings.rbac.authorization.k8s.io":        plain(rolebinding.Strategy),
	"roles.rbac.authorization.k8s.io":               plain(role.Strategy),

	"deviceclasses.resource.k8s.io":          plain(deviceclass.Strategy),
	"resourceclaims.resource.k8s.io":         withStatus(claims, resourceclaim.NewStatusStrategy(claims)),
	"resourceclaimtemplates.resource.k8s.io": plain(resourceclaimtemplate.NewStrategy(namespaceClient)),
	"resourceslices.resource.k8s.io":         plain(resourceslice.Strategy),

	"priorityclasses.scheduling.k8s.io": plain(priorityclass.Strategy),

	"csidrivers.storage.k8s.io":              plain(csidriver.Strategy),
	"csinodes.storage.k8s.io":                plain(csinode.Strategy),
	"csistoragecapacities.storage.k8s.io":    plain(csistoragecapacity.Strategy),
	"storageclasses.storage.k8s.io":          plain(storageclass.Strategy),
	"volumeattachments.storage.k8s.io":       withStatus(volumeattachment.Strategy, volumeattachment.StatusStrategy),
	"volumeattributesclasses.storage.k8s.io": plain(volumeattributesclass.Strategy),
}
