package proto

import "strconv"

// Revision is a resourceVersion: the index of the log entry that wrote an
// object. Revisions are comparable over all tables and all nodes. Zero stands
// for "no revision".
type Revision uint64

// String returns the decimal form that clients see.
func (r Revision) String() string { return strconv.FormatUint(uint64(r), 10) }

// RaftIndex is a position in the Raft log. Every Revision is a RaftIndex, but
// configuration entries, no-ops and refused writes have indexes that no object
// carries.
type RaftIndex uint64

// Term is a Raft term.
type Term uint64

// NodeID identifies a node for ever: random, kept on disk, never reused after a
// disk was wiped. Names and addresses may change; a NodeID does not.
type NodeID string

// ClusterID identifies a cluster and changes with every restore from a backup.
type ClusterID string

// Flags of a version. They are on disk: do not renumber.
const (
	// FlagTerminating marks a version whose object is being deleted; a Guard on
	// it refuses the write.
	FlagTerminating uint32 = 1 << 0
	// FlagSameRule marks a version of a rule (Rules) that says what the version before it said,
	// for all that is decided by it: only something else of the object has changed, such as the
	// status of a quota. Writes that were decided before it stand. It counts where the scope is
	// RuleOfNamespace, and never for a deletion.
	FlagSameRule uint32 = 1 << 1
)

// RequestIDSize is the length of Write.request_id.
const RequestIDSize = 16

// ClusterTables begins the names of the cluster's own tables: members, tokens, keys. They have
// as many keys as operators and nodes make, and the storage limit does not count for them.
const ClusterTables = "quorate/"

// TableLeases has the leases of nodes and of leaders of controllers. They go on at the storage limit.
const TableLeases = "leases.coordination.k8s.io"

// MaxEntryBytes bounds a framed log entry. Upstream's store takes 1.5 MiB.
const MaxEntryBytes = 3 << 19

// RuleScope says which changes of a rule's table count for a write. The write's own
// namespace is its key up to the first slash; of a key without one, all of it.
type RuleScope uint8

const (
	// RuleOfCluster: any change in the table.
	RuleOfCluster RuleScope = iota
	// RuleOfNamespace: changes of keys in the write's own namespace.
	RuleOfNamespace
	// RuleOfName: changes of the one key that is the write's own namespace.
	RuleOfName
)

// Rule is a table whose content decides on writes, and which of its changes count.
type Rule struct {
	Bit   uint32
	Table string
	Scope RuleScope
}

// Bits of Write.rules. They are in logs: do not renumber, and do not give a bit another
// table or scope.
const (
	RuleRoles uint32 = 1 << iota
	RuleClusterRoles
	RuleRoleBindings
	RuleClusterRoleBindings
	RuleMutatingWebhooks
	RuleValidatingWebhooks
	RuleValidatingPolicies
	RuleValidatingPolicyBindings
	RuleMutatingPolicies
	RuleMutatingPolicyBindings
	RuleCustomResourceDefinitions
	RuleNamespaces
	RuleLimitRanges
	RuleResourceQuotas
	RuleAdmissionSuspensions
	RulePriorityClasses
	RuleStorageClasses
	RuleIngressClasses
	RuleRuntimeClasses
	RuleVolumeAttributesClasses
	RuleServiceAccounts
)

// Rules are what the bits of Write.rules stand for: of bit 1<<i the rule at i.
var Rules = [...]Rule{
	{RuleRoles, "roles.rbac.authorization.k8s.io", RuleOfNamespace},
	{RuleClusterRoles, "clusterroles.rbac.authorization.k8s.io", RuleOfCluster},
	{RuleRoleBindings, "rolebindings.rbac.authorization.k8s.io", RuleOfNamespace},
	{RuleClusterRoleBindings, "clusterrolebindings.rbac.authorization.k8s.io", RuleOfCluster},
	{RuleMutatingWebhooks, "mutatingwebhookconfigurations.admissionregistration.k8s.io", RuleOfCluster},
	{RuleValidatingWebhooks, "validatingwebhookconfigurations.admissionregistration.k8s.io", RuleOfCluster},
	{RuleValidatingPolicies, "validatingadmissionpolicies.admissionregistration.k8s.io", RuleOfCluster},
	{RuleValidatingPolicyBindings, "validatingadmissionpolicybindings.admissionregistration.k8s.io", RuleOfCluster},
	{RuleMutatingPolicies, "mutatingadmissionpolicies.admissionregistration.k8s.io", RuleOfCluster},
	{RuleMutatingPolicyBindings, "mutatingadmissionpolicybindings.admissionregistration.k8s.io", RuleOfCluster},
	{RuleCustomResourceDefinitions, "customresourcedefinitions.apiextensions.k8s.io", RuleOfCluster},
	{RuleNamespaces, "namespaces", RuleOfName},
	{RuleLimitRanges, "limitranges", RuleOfNamespace},
	{RuleResourceQuotas, "resourcequotas", RuleOfNamespace},
	{RuleAdmissionSuspensions, "quorate/admission-suspensions", RuleOfCluster},
	{RulePriorityClasses, "priorityclasses.scheduling.k8s.io", RuleOfCluster},
	{RuleStorageClasses, "storageclasses.storage.k8s.io", RuleOfCluster},
	{RuleIngressClasses, "ingressclasses.networking.k8s.io", RuleOfCluster},
	{RuleRuntimeClasses, "runtimeclasses.node.k8s.io", RuleOfCluster},
	{RuleVolumeAttributesClasses, "volumeattributesclasses.storage.k8s.io", RuleOfCluster},
	{RuleServiceAccounts, "serviceaccounts", RuleOfNamespace},
}

// AllRules has the bits of all Rules.
const AllRules = uint32(1)<<len(Rules) - 1
