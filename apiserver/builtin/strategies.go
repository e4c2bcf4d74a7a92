package builtin

import (
	"maps"
	"net/netip"
	"time"

	"github.com/quorate/quorate/apiserver/builtin/service"
	"github.com/quorate/quorate/apiserver/objects"
)

// Config is what some kinds need to know.
type Config struct {
	// Roles says what may be granted by whom. Nil: writes of roles and bindings are not
	// checked for escalation.
	Roles Roles
	// Reviewer answers TokenReviews; nil: it authenticates nobody.
	Reviewer TokenReviewer
	// Tokens issues the tokens of service accounts; nil: that is not served. MaxToken bounds
	// how long they are valid; zero: not bounded.
	Tokens   Tokens
	MaxToken time.Duration
	// ServiceBlocks and ServicePorts are the addresses and node ports of Services.
	ServiceBlocks []netip.Prefix
	ServicePorts  service.PortRange
	// StaticAdmission says that admission policies and webhooks may come from files: names
	// with the suffix of those cannot be written.
	StaticAdmission bool
}

// Strategies are what kinds have as code, keyed by Resource.CodeName. A strategy is in its
// kind's file; those that the configuration has a part in are made here or there.
func Strategies(cfg Config) map[string]*objects.Strategy {
	grants := &escalation{roles: cfg.Roles}
	ask := &reviews{roles: cfg.Roles, reviewer: cfg.Reviewer, tokens: cfg.Tokens}
	all := map[string]*objects.Strategy{
		"bindings":               &bindingStrategy,
		"configmaps":             &configMapStrategy,
		"endpoints":              &endpointsStrategy,
		"events":                 &eventStrategy,
		"limitranges":            &limitRangeStrategy,
		"namespaces":             &namespaceStrategy,
		"nodes":                  {Warnings: warningsOf(warningsForNode)},
		"persistentvolumeclaims": &claimStrategy,
		"persistentvolumes":      {Warnings: warningsOf(warningsForVolume)},
		"pods":                   &podStrategy,
		"podtemplates":           &podTemplateStrategy,
		"replicationcontrollers": &workloadStrategy,
		"resourcequotas":         &resourceQuotaStrategy,
		"secrets":                &secretStrategy,
		"serviceaccounts":        serviceAccountStrategy(cfg),
		"services":               serviceStrategy(cfg),

		"mutatingwebhookconfigurations.admissionregistration.k8s.io":   webhookStrategy(cfg.StaticAdmission),
		"validatingwebhookconfigurations.admissionregistration.k8s.io": webhookStrategy(cfg.StaticAdmission),

		"customresourcedefinitions.apiextensions.k8s.io": &definitionStrategy,

		"daemonsets.apps":   &daemonSetStrategy,
		"deployments.apps":  &workloadStrategy,
		"replicasets.apps":  &workloadStrategy,
		"statefulsets.apps": &statefulSetStrategy,

		"selfsubjectreviews.authentication.k8s.io": {Post: objects.CreaterOf(nil, ask.myself)},
		"tokenreviews.authentication.k8s.io":       {Post: objects.CreaterOf(nil, ask.token)},

		"localsubjectaccessreviews.authorization.k8s.io": {Post: objects.CreaterOf(nil, ask.localSubject)},
		"selfsubjectaccessreviews.authorization.k8s.io":  {Post: objects.CreaterOf(nil, ask.self)},
		"selfsubjectrulesreviews.authorization.k8s.io":   {Post: objects.CreaterOf(nil, ask.rulesOfSelf)},
		"subjectaccessreviews.authorization.k8s.io":      {Post: objects.CreaterOf(nil, ask.subject)},

		"cronjobs.batch": &cronJobStrategy,
		"jobs.batch":     &jobStrategy,

		"certificatesigningrequests.certificates.k8s.io": &signingRequestStrategy,

		"clustertrustbundles.certificates.k8s.io": {Validate: validateTrustBundle},

		"endpointslices.discovery.k8s.io": &endpointSliceStrategy,

		"events.events.k8s.io": &eventV1Strategy,

		"ingresses.networking.k8s.io":       {Warnings: warningsForIngress},
		"networkpolicies.networking.k8s.io": {Warnings: warningsOf(warningsForNetworkPolicy)},

		"runtimeclasses.node.k8s.io": {Warnings: warningsOf(warningsForRuntimeClass)},

		"csistoragecapacities.storage.k8s.io": {Warnings: warningsOf(warningsForStorageCapacity)},
		"storageclasses.storage.k8s.io":       {Warnings: warningsOf(warningsForStorageClass)},

		"priorityclasses.scheduling.k8s.io": &priorityClassStrategy,

		"clusterrolebindings.rbac.authorization.k8s.io": {ForUser: grants.storeBinding, Validate: validateClusterRoleBinding},
		"clusterroles.rbac.authorization.k8s.io":        {ForUser: grants.storeRole, Validate: validateClusterRole},
		"rolebindings.rbac.authorization.k8s.io":        {ForUser: grants.storeBinding, Validate: validateRoleBinding},
		"roles.rbac.authorization.k8s.io":               {ForUser: grants.storeRole, Validate: validateRole},

		"resourceclaims.resource.k8s.io": &resourceClaimStrategy,
	}
	maps.Copy(all, policyStrategies(cfg.StaticAdmission))
	return all
}
