package controllers

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/quorate/quorate/apiserver/types/quoratev1"
)

// Name of a controller, in upstream's words where upstream has it.
type Name string

// The controllers that there are. Those up to ClusterRoleAggregationController are called as
// in kube-controller-manager, but for that of the Service kubernetes, which upstream has in its
// API server, where --endpoint-reconciler-type=none switches it off, that of members, which
// upstream has not, and that of kubeadm's configuration, which kubeadm init writes there. Those behind it are what
// upstream's API server does by itself, after whose post-start hooks they are called.
const (
	NamespaceController                Name = "namespace-controller"
	GarbageController                  Name = "garbage-collector-controller"
	EventTTLController                 Name = "event-ttl-controller"
	AccountController                  Name = "serviceaccount-controller"
	KubernetesController               Name = "kubernetes-service-controller"
	MemberController                   Name = "member-controller"
	RootCAController                   Name = "root-ca-certificate-publisher-controller"
	PolicyStatusController             Name = "validatingadmissionpolicy-status-controller"
	ResourceQuotaController            Name = "resourcequota-controller"
	RequestSigningController           Name = "certificatesigningrequest-signing-controller"
	RequestApprovingController         Name = "certificatesigningrequest-approving-controller"
	RequestCleanerController           Name = "certificatesigningrequest-cleaner-controller"
	BootstrapSignerController          Name = "bootstrap-signer-controller"
	TokenCleanerController             Name = "token-cleaner-controller"
	KubeadmConfigController            Name = "kubeadm-config-controller"
	ClusterRoleAggregationController   Name = "clusterrole-aggregation-controller"
	AutoregistrationController         Name = "kube-apiserver-autoregistration-controller"
	AvailabilityController             Name = "apiservice-status-available-controller"
	ClusterAuthenticationController    Name = "cluster-authentication-info-controller"
	SystemNamespacesController         Name = "system-namespaces-controller"
	BootstrapRolesController           Name = "bootstrap-roles-controller"
	BootstrapPriorityClassesController Name = "bootstrap-system-priority-classes-controller"
	APIExtensionsController            Name = "apiextensions-controller"
	ServiceIPRepairController          Name = "service-ip-repair-controller"
	FlowControlController              Name = "priority-and-fairness-config-producer"
)

// loop works until ctx ends, and tries again what fails. When it returns nil before that, it is done
// for this term; after an error another one is made, and runs.
type loop func(ctx context.Context) error

// controller is a row of the table: a loop, and when it runs.
type controller struct {
	name Name
	// loop returns the work of one run, with what it needs of the configuration; nil if there is nothing to do
	// with these settings.
	loop func(b base, cfg *Config) loop
	// pause before it is called again. Default: retryDelay.
	pause time.Duration
	// failed is the line in the log then. Default: "controller failed, restarting".
	failed string
	// manager: kube-controller-manager has one of this name, which must not do the same work.
	manager bool
	// needed says why it cannot be switched off, also by a list that does not name it. Empty: it can.
	needed string
}

// table are all controllers.
var table = []controller{
	{name: NamespaceController, manager: true, loop: func(b base, cfg *Config) loop {
		return (&emptier{base: b, published: cfg.Published, aggregator: cfg.Aggregator}).run
	}},
	{name: GarbageController, manager: true, loop: func(b base, cfg *Config) loop {
		return when(b.objects.GarbageCollector, (&collector{base: b, published: cfg.Published, aggregator: cfg.Aggregator}).run)
	}},
	{name: EventTTLController, loop: func(b base, _ *Config) loop { return expirer{b}.run }},
	{name: AccountController, manager: true, loop: func(b base, _ *Config) loop { return accountMaker{b}.run }},
	{name: KubernetesController, loop: func(b base, cfg *Config) loop {
		return when(cfg.Servers.List != nil, (&serviceSync{b, cfg.Servers}).run)
	}},
	{name: MemberController, failed: "showing the members as objects failed, restarting", loop: func(b base, cfg *Config) loop {
		return when(cfg.Members.Ask != nil && b.objects.Kinds().Lookup(quoratev1.Resource) != nil, (&memberSync{base: b, members: cfg.Members}).run)
	}},
	{name: RootCAController, manager: true, loop: func(b base, cfg *Config) loop {
		return when(len(cfg.Roots) > 0, (&rootsPublisher{base: b, roots: cfg.Roots}).run)
	}},
	{name: PolicyStatusController, manager: true, loop: func(b base, _ *Config) loop { return policyChecker{b}.run }},
	{name: ResourceQuotaController, manager: true, failed: "showing what quotas count failed, restarting", loop: func(b base, cfg *Config) loop {
		return (&quotaSync{base: b, published: cfg.Published, aggregator: cfg.Aggregator}).run
	}},
	{name: RequestSigningController, manager: true, loop: func(b base, cfg *Config) loop {
		return when(cfg.Signing.Authority != nil, (&signer{b, cfg.Signing}).run)
	}},
	{name: RequestApprovingController, manager: true, loop: func(b base, cfg *Config) loop { return when(cfg.Authorizer != nil, (&approver{b, cfg.Authorizer}).run) }},
	{name: RequestCleanerController, manager: true, loop: func(b base, _ *Config) loop { return requestCleaner{b}.run }},
	{name: BootstrapSignerController, manager: true, loop: func(b base, _ *Config) loop { return (&clusterInfoSigner{base: b}).run }},
	{name: TokenCleanerController, manager: true, loop: func(b base, _ *Config) loop { return tokenCleaner{b}.run }},
	{name: KubeadmConfigController, loop: func(b base, cfg *Config) loop {
		return when(cfg.Joining.Server != nil, (&joiningPublisher{base: b, Joining: cfg.Joining, members: cfg.Servers.List, blocks: cfg.ServiceBlocks, roots: cfg.Roots}).run)
	}},
	{name: AutoregistrationController, failed: "keeping the APIServices failed, restarting", loop: func(b base, cfg *Config) loop {
		return (&apiServiceKeeper{base: b, definitions: cfg.Definitions}).run
	}},
	{name: AvailabilityController, failed: "checking APIServices failed, restarting", loop: func(b base, cfg *Config) loop {
		return when(cfg.Aggregator != nil, (&availability{base: b, aggregator: cfg.Aggregator}).run)
	}},
	{name: ClusterAuthenticationController, failed: "publishing the authorities of clients failed, restarting", loop: func(b base, cfg *Config) loop {
		return when(cfg.Authentication != nil, (&authenticationPublisher{b, cfg.Authentication}).run)
	}},
	{name: ClusterRoleAggregationController, manager: true, failed: "aggregating roles failed, retrying", loop: func(b base, _ *Config) loop {
		return roleAggregator{b}.run
	}},
	{
		name: SystemNamespacesController,
		loop: func(b base, _ *Config) loop {
			return func(ctx context.Context) error { return EnsureNamespaces(ctx, b.objects) }
		},
		pause: 100 * time.Millisecond, failed: "creating the system namespaces failed, retrying",
		needed: "no node is ready without the namespaces that it creates",
	},
	{
		name: BootstrapRolesController,
		loop: func(b base, cfg *Config) loop {
			return func(ctx context.Context) error { return EnsureRoles(ctx, b.objects, cfg.Log) }
		},
		pause: 100 * time.Millisecond, failed: "creating the bootstrap roles failed, retrying",
		needed: "no node is ready without the roles and bindings that it creates",
	},
	{
		name: BootstrapPriorityClassesController, loop: func(b base, _ *Config) loop { return priorityClassMaker{b}.run },
		pause: 100 * time.Millisecond, failed: "creating the system's priority classes failed, retrying",
		needed: "no node is ready without the priority classes that it creates",
	},
	{
		name: APIExtensionsController, failed: "definition controller failed, restarting",
		loop: func(b base, cfg *Config) loop {
			return when(cfg.Definitions != nil, (&definitionSync{b, cfg.Definitions}).run)
		},
		needed: "without it no custom resource is ever served, and no CustomResourceDefinition deleted",
	},
	{
		name: ServiceIPRepairController,
		loop: func(b base, cfg *Config) loop {
			return (&claimRepair{base: b, blocks: cfg.ServiceBlocks, orphanAge: cfg.OrphanAge}).run
		},
		needed: "without it addresses and ports that no Service holds are never given to another",
	},
	{
		name: FlowControlController, failed: "flow control bootstrap failed, restarting",
		loop: func(b base, cfg *Config) loop {
			return when(cfg.FlowControl != nil, (&flowControlSync{b, cfg.FlowControl}).run)
		},
		needed: "--enable-priority-and-fairness=false switches all of it off",
	},
}

// when is a loop if there is something to do.
func when(is bool, run loop) loop {
	if !is {
		return nil
	}
	return run
}

// All are the names of all controllers.
var All = names()

func names() []Name {
	var all []Name
	for _, c := range table {
		all = append(all, c.name)
	}
	return all
}

// named returns the controller of a name, with or without -controller, or of one
// that upstream had earlier.
func named(s string) (Name, bool) {
	switch s {
	case "garbagecollector":
		return GarbageController, true
	case "root-ca-cert-publisher":
		return RootCAController, true
	case "csrsigning":
		return RequestSigningController, true
	case "csrapproving":
		return RequestApprovingController, true
	case "csrcleaner":
		return RequestCleanerController, true
	case "bootstrapsigner":
		return BootstrapSignerController, true
	case "tokencleaner":
		return TokenCleanerController, true
	}
	for _, n := range All {
		if s == string(n) || s+"-controller" == string(n) {
			return n, true
		}
	}
	return "", false
}

// Select returns the controllers that a list enables: "*" is all that it does not
// name, "foo" enables foo, "-foo" disables it. A name that is not known is an error, and
// so is to disable what is needed. As upstream, but for two things. A list that only
// disables, such as "-foo", disables the others too there, which nobody means. And what ran
// before it had a name runs unless it is disabled by its name.
func Select(list []string) ([]Name, error) {
	asked := map[Name]bool{}
	others := len(list) > 0 && !slices.ContainsFunc(list, func(s string) bool { return !strings.HasPrefix(s, "-") })
	for _, s := range list {
		if s == "*" {
			others = true
			continue
		}
		bare, without := strings.CutPrefix(s, "-")
		n, ok := named(bare)
		if !ok {
			return nil, fmt.Errorf("%q is not in the list of known controllers: %v", bare, All)
		}
		if was, ok := asked[n]; ok && was == without {
			return nil, fmt.Errorf("%s is enabled and disabled", n)
		}
		asked[n] = !without
	}
	var out []Name
	for _, c := range table {
		on, named := asked[c.name]
		if named && !on && c.needed != "" {
			return nil, fmt.Errorf("%s cannot be disabled: %s", c.name, c.needed)
		}
		if on || !named && (others || c.needed != "") {
			out = append(out, c.name)
		}
	}
	return out, nil
}

// ManagerList is what kube-controller-manager is to be told in its --controllers beside nodes with this
// list: all that it has by default, but for what the nodes do.
func ManagerList(list []string) (string, error) {
	enabled, err := Select(list)
	if err != nil {
		return "", err
	}
	out := "*"
	for _, c := range table {
		if c.manager && slices.Contains(enabled, c.name) {
			out += ",-" + string(c.name)
		}
	}
	return out, nil
}
