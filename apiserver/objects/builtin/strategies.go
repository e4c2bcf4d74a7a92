package builtin

import (
	"maps"
	"net/netip"
	"time"

	"github.com/quorate/quorate/apiserver/objects"
	"github.com/quorate/quorate/apiserver/objects/builtin/service"
	"github.com/quorate/quorate/apiserver/types/tree"
	"github.com/quorate/quorate/apiserver/types/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Config is what some kinds need to know.
type Config struct {
	// Roles says what may be granted by whom. Nil: writes of roles and bindings are not
	// checked for escalation.
	Roles Roles
	// NodeAuthorizer says that kubelets may do more than their roles say.
	NodeAuthorizer bool
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
	ask := &reviews{roles: cfg.Roles, nodes: cfg.NodeAuthorizer, reviewer: cfg.Reviewer, tokens: cfg.Tokens}
	all := map[string]*objects.Strategy{
		"bindings":               &bindingStrategy,
		"endpoints":              &endpointsStrategy,
		"limitranges":            {ForUser: nameLimitRange},
		"namespaces":             &namespaceStrategy,
		"nodes":                  {Complete: completeNode, Prepare: prepareNode},
		"persistentvolumeclaims": &claimStrategy,
		"persistentvolumes":      &volumeStrategy,
		"pods":                   &podStrategy,
		"podtemplates":           &podTemplateStrategy,
		"replicationcontrollers": &workloadStrategy,
		"resourcequotas":         &resourceQuotaStrategy,
		"secrets":                &secretStrategy,
		"serviceaccounts":        serviceAccountStrategy(cfg),
		"services":               serviceStrategy(cfg),

		"mutatingwebhookconfigurations.admissionregistration.k8s.io":   webhookStrategy("mutatingwebhookconfigurations.admissionregistration.k8s.io", cfg.StaticAdmission),
		"validatingwebhookconfigurations.admissionregistration.k8s.io": webhookStrategy("validatingwebhookconfigurations.admissionregistration.k8s.io", cfg.StaticAdmission),

		"customresourcedefinitions.apiextensions.k8s.io": &definitionStrategy,

		"apiservices.apiregistration.k8s.io": &apiServiceStrategy,

		"daemonsets.apps":   &daemonSetStrategy,
		"deployments.apps":  &workloadStrategy,
		"replicasets.apps":  &workloadStrategy,
		"statefulsets.apps": &statefulSetStrategy,

		"selfsubjectreviews.authentication.k8s.io": {Post: objects.CreaterOf(nil, ask.myself)},
		"tokenreviews.authentication.k8s.io":       {Post: objects.Completed(objects.CreaterOf(nil, ask.token), checkToken)},

		"localsubjectaccessreviews.authorization.k8s.io": {Post: objects.Completed(objects.CreaterOf(nil, ask.localSubject), checkLocalSubject)},
		"selfsubjectaccessreviews.authorization.k8s.io":  {Post: objects.Completed(objects.CreaterOf(nil, ask.self), checkSelf)},
		"selfsubjectrulesreviews.authorization.k8s.io":   {Post: objects.Completed(objects.CreaterOf(nil, ask.rulesOfSelf), checkRulesOfSelf)},
		"subjectaccessreviews.authorization.k8s.io":      {Post: objects.Completed(objects.CreaterOf(nil, ask.subject), checkSubject)},

		"cronjobs.batch": &cronJobStrategy,
		"jobs.batch":     &jobStrategy,

		"certificatesigningrequests.certificates.k8s.io": &signingRequestStrategy,

		"leases.coordination.k8s.io": {Prepare: prepareLease},

		"endpointslices.discovery.k8s.io": &endpointSliceStrategy,

		"csidrivers.storage.k8s.io": {Prepare: prepareDriver},

		"priorityclasses.scheduling.k8s.io": &priorityClassStrategy,

		"members.quorate.io": &memberStrategy,

		"clusterrolebindings.rbac.authorization.k8s.io": {ForUser: grants.storeBinding},
		"clusterroles.rbac.authorization.k8s.io":        {ForUser: grants.storeRole},
		"rolebindings.rbac.authorization.k8s.io":        {ForUser: grants.storeBinding},
		"roles.rbac.authorization.k8s.io":               {ForUser: grants.storeRole},

		"deviceclasses.resource.k8s.io":          compiledDevices("deviceclasses.resource.k8s.io", objects.Strategy{}),
		"resourceclaims.resource.k8s.io":         compiledDevices("resourceclaims.resource.k8s.io", resourceClaimStrategy),
		"resourceclaimtemplates.resource.k8s.io": compiledDevices("resourceclaimtemplates.resource.k8s.io", objects.Strategy{ValidateWith: adminAccess("spec", "spec")}),
		"resourceslices.resource.k8s.io":         {Complete: completeResourceSlice, Prepare: prepareResourceSlice, Dropped: []string{"nodeAllocatableResourceMappings", "bools", "ints", "strings", "versions"}},
	}
	maps.Copy(all, policyStrategies(cfg.StaticAdmission))
	validated(all)
	return all
}

// validated gives every kind that upstream validates that validation, unless its strategy
// has one.
func validated(all map[string]*objects.Strategy) {
	for _, name := range validation.Kinds() {
		s := objects.Strategy{}
		if all[name] != nil {
			s = *all[name]
		}
		if s.Validation == nil {
			s.Validation = validation.Of(name)
		}
		s.ValidateScale = validation.Scale
		all[name] = &s
	}
}

// validatedLater is of the kinds whose strategies call upstream's validation themselves: those
// whose expressions wait for their turn to be compiled (compile.go), and Services, which are
// validated with what they are given (service.go).
type validatedLater struct{}

func (validatedLater) Create(tree.Object, bool, *[]string) field.ErrorList { return nil }

func (validatedLater) Update(string, tree.Object, tree.Object, bool, *[]string) field.ErrorList {
	return nil
}
