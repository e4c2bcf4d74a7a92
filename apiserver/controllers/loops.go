package controllers

import (
	"net/netip"
	"time"

	"github.com/quorate/quorate/apiserver/audit"
	"github.com/quorate/quorate/apiserver/auth"
	"github.com/quorate/quorate/apiserver/crd"
	"github.com/quorate/quorate/apiserver/objects"
)

// LoopsConfig is what Loops need besides the objects.
type LoopsConfig struct {
	// Published returns a channel that is sent to after entries were applied, whatever
	// they changed, and a function that ends it. Capacity one.
	Published func() (<-chan struct{}, func())
	// Definitions are where custom resources come from. Nil: nothing settles their names.
	Definitions DefinitionSource
	// ServiceBlocks are the addresses of Services that the command line gives.
	ServiceBlocks []netip.Prefix
	// OrphanAge is how long an address or port may be nobody's before it is taken back.
	OrphanAge time.Duration
}

// DefinitionSource are the CustomResourceDefinitions of this node's state. *crd.Registry
// satisfies it.
type DefinitionSource interface {
	// Definitions in the order of their names.
	Definitions() []*crd.Definition
}

// Loops are what the leader's node does, step by step: what the controllers call. They
// change objects as everybody does, by operations that decide here and are checked in the
// log; so a node that believes wrongly that it leads does no harm.
type Loops struct {
	objects *objects.Store
	cfg     LoopsConfig
	repair  claimRepair
}

// NewLoops returns the steps of the leader's loops over objects. It starts nothing.
func NewLoops(s *objects.Store, cfg LoopsConfig) *Loops { return &Loops{objects: s, cfg: cfg} }

// Users in whose name the node's own loops delete, as far as the audit log is
// concerned. Upstream's controllers are clients with these accounts.
var (
	asGarbageCollector    = ownUser("system:serviceaccount:kube-system:generic-garbage-collector", auth.ServiceAccountGroups("kube-system")...)
	asNamespaceController = ownUser("system:serviceaccount:kube-system:namespace-controller", auth.ServiceAccountGroups("kube-system")...)
)

func ownUser(name string, groups ...string) *audit.User {
	return &audit.User{Name: name, Groups: append(groups, auth.Authenticated)}
}
