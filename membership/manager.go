package membership

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/quorate/quorate/internal/loglimit"
	"github.com/quorate/quorate/membership/pki"
	"github.com/quorate/quorate/proto"
)

// Limits say when a node counts as caught up with the leader.
type Limits struct {
	// Lag is how many log entries it may be behind. Default 250.
	Lag uint64
	// Contact is how long ago its last contact with the leader may be. Default 1 s. (A
	// leader sends heartbeats every tenth to fifth of its heartbeat timeout, so
	// with 2 s every 200 to 400 ms; 200 ms would never hold on an idle cluster.)
	Contact time.Duration
	// Stable is how long all of that must have held before a promotion. Default 10 s.
	Stable time.Duration
}

func (l Limits) withDefaults() Limits {
	if l.Lag == 0 {
		l.Lag = 250
	}
	if l.Contact <= 0 {
		l.Contact = time.Second
	}
	if l.Stable <= 0 {
		l.Stable = 10 * time.Second
	}
	return l
}

// Options configure a Manager. Dir, Identity, Consensus, KV, Peers, Caller and
// PeerAddress are required.
type Options struct {
	Dir       string // the data directory
	Identity  *Identity
	Consensus Consensus
	KV        KV
	Peers     Peers
	// Caller returns the node that a gRPC call came from, as its certificate names it
	// (raftstore/peer.CallerOf); and in a context with the peer of a call of ours, the node
	// that has answered.
	Caller func(context.Context) (proto.NodeID, bool)
	// Certificates are needed for join tokens, and for the key that this node signs service
	// account tokens with.
	Certificates *pki.Node
	// TokenLifetime is for how long a service account token is valid at most. Default:
	// TokenLifetime, a year.
	TokenLifetime time.Duration

	PeerAddress string // that others dial
	APIAddress  string // URL that clients use
	Version     string

	// BootstrapExpect is how many nodes must have found each other before they
	// start a cluster. 0: never start one, only join.
	BootstrapExpect int
	// Join are peer addresses of nodes, with or without this one: of the cluster to
	// join, and later of members that may have moved.
	Join []string
	// NonVoter says that the node wants to stay without a vote.
	NonVoter bool

	// RemoveNonvoterAfter is for how long a member without a vote has not answered the leader when
	// it is removed. 0: it is never removed.
	RemoveNonvoterAfter time.Duration

	// Notices are what ClusterStatus tells operators beside the members. Default: nothing.
	Notices func([]MemberStatus) []string

	// OnRemoved is called once for each node of whose removal this node's state knows:
	// soon after it is applied, and at the start. Default: nothing.
	OnRemoved func(proto.NodeID)

	Limits Limits
	// Tick is how often a forming node asks its peers and a leader its members.
	// Default 1 s; while nothing is formed the first rounds are faster.
	Tick time.Duration
	// CallTimeout bounds one call to one peer. Default 2 s.
	CallTimeout time.Duration
	// Refuse, if set, is called once, when this node's state is found to be wrong, or the
	// node to be removed: from then on it must serve nothing. Run returns the same error soon after.
	Refuse func(error)
	Logger *slog.Logger     // default slog.Default()
	Now    func() time.Time // default time.Now
}

// base is what every part of a Manager uses: the node, its Raft and tables, and the other nodes.
type base struct {
	opt     Options
	id      *Identity
	raft    Consensus
	kv      KV
	peers   Peers
	log     *slog.Logger
	formed  chan struct{}          // closed when the node is part of a cluster
	waiting atomic.Pointer[string] // what this node waits for before that
}

// Manager is one node's part in the membership of the cluster. It is the gRPC
// service proto.Membership.
type Manager struct {
	proto.UnimplementedMembershipServer
	*base
	*joinTokens
	*changes
	*quorumWatch
	*stateCheck

	discovered *discoveredPeers
	callers    callers // while it leads
}

// New prepares a Manager; Run starts it. The gRPC service may be registered,
// and serve, before Run.
func New(opt Options) (*Manager, error) {
	switch {
	case opt.Identity == nil, opt.Consensus == nil, opt.KV == nil, opt.Peers == nil, opt.Caller == nil:
		return nil, errors.New("membership: identity, consensus, kv, peers and caller are required")
	case opt.Dir == "", opt.PeerAddress == "":
		return nil, errors.New("membership: a data directory and a peer address are required")
	case opt.BootstrapExpect < 0 || opt.BootstrapExpect > maxDiscoveredPeers:
		return nil, fmt.Errorf("membership: bootstrap-expect %d: 0 to %d", opt.BootstrapExpect, maxDiscoveredPeers)
	case opt.BootstrapExpect > 0 && len(opt.Join) >= 2*opt.BootstrapExpect:
		// Two groups of that size could fit into the list without overlap.
		return nil, fmt.Errorf("membership: bootstrap-expect %d must be more than half of the %d join addresses", opt.BootstrapExpect, len(opt.Join))
	case len(opt.PeerAddress) > maxAddressBytes, len(opt.APIAddress) > maxAddressBytes:
		return nil, errors.New("membership: an address is too long")
	}
	if opt.NonVoter {
		opt.BootstrapExpect = 0
	}
	opt.Limits = opt.Limits.withDefaults()
	if opt.Tick <= 0 {
		opt.Tick = time.Second
	}
	if opt.CallTimeout <= 0 {
		opt.CallTimeout = 2 * time.Second
	}
	if opt.TokenLifetime <= 0 {
		opt.TokenLifetime = TokenLifetime
	}
	if opt.Logger == nil {
		opt.Logger = slog.Default()
	}
	if opt.OnRemoved == nil {
		opt.OnRemoved = func(proto.NodeID) {}
	}
	if opt.Now == nil {
		opt.Now = time.Now
	}
	b := &base{
		opt: opt, id: opt.Identity, raft: opt.Consensus, kv: opt.KV, peers: opt.Peers, log: opt.Logger,
		formed: make(chan struct{}),
	}
	quorum := newQuorumWatch(b)
	m := &Manager{
		base: b, quorumWatch: quorum,
		joinTokens: &joinTokens{base: b, joins: bucket{rate: 20, burst: 50, now: opt.Now}, wrong: bucket{rate: 20, burst: 50, now: opt.Now}, refusals: loglimit.New(time.Second)},
		changes:    &changes{base: b, quorum: quorum, changing: make(chan struct{}, 1)},
		stateCheck: &stateCheck{base: b, differs: make(chan evidence, 1)},
	}
	var err error
	m.discovered, err = loadDiscoveredPeers(filepath.Join(opt.Dir, discoveredPeersFile), m.self())
	if err != nil {
		return nil, err
	}
	return m, nil
}

// self is what this node says about itself.
func (b *base) self() *proto.Member {
	_, supported := b.raft.Features()
	return &proto.Member{
		NodeId: string(b.id.ID()), Name: b.id.Name(), PeerAddress: b.opt.PeerAddress, ApiAddress: b.opt.APIAddress,
		Voter: !b.opt.NonVoter, FeatureVersion: supported,
	}
}

// Formed returns a channel that is closed when the node is part of a cluster:
// at once for one that was before.
func (b *base) Formed() <-chan struct{} { return b.formed }

// Run finds or starts the node's cluster, then announces the node, searches for
// the members while there is no leader and, while it leads, runs autopilot. It
// returns nil when ctx ends, or the reason why the node can never take part, or
// can no longer: ErrStateDiffers, ErrRemoved.
func (m *Manager) Run(ctx context.Context) error {
	if err := (forming{m.base, m.discovered}).run(ctx); err != nil {
		if ctx.Err() != nil {
			return nil
		}
		return fmt.Errorf("membership: %w", err)
	}
	close(m.formed)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var wg sync.WaitGroup
	for _, run := range []func(context.Context){
		announcer{m.changes}.run, keyPublisher{m.base}.run, autopilot{m.changes}.run, silenceWatch{m.changes, &m.callers}.run,
		(&search{m.base, map[string]bool{}}).run, featureRaiser{m.changes}.run, storageAgreement{m.base}.run, m.quorumWatch.run, m.followRemovals,
	} {
		wg.Go(func() { run(ctx) })
	}
	var ends [2]error
	for i, run := range [...]func(context.Context) error{placeWatch{m.base}.run, m.stateCheck.run} {
		wg.Go(func() {
			if ends[i] = run(ctx); ends[i] != nil {
				cancel()
			}
		})
	}
	wg.Wait()
	if err := errors.Join(ends[:]...); err != nil {
		return fmt.Errorf("membership: %w", err)
	}
	return nil
}

// LocalStatus returns what this node knows about itself, without a quorum.
func (b *base) LocalStatus(ctx context.Context) *proto.NodeStatus {
	st := b.raft.Status(ctx)
	st.NodeId, st.Name = string(b.id.ID()), b.id.Name()
	st.ApiAddress, st.PeerAddress = b.opt.APIAddress, b.opt.PeerAddress
	if st.ClusterId == "" {
		st.ClusterId = string(b.id.Cluster())
	}
	if st.Version == "" {
		st.Version = b.opt.Version
	}
	if _, members, err := b.members(); err == nil {
		st.Members = members
		for _, p := range members {
			if p.NodeId == st.LeaderId {
				st.LeaderName = p.Name
			}
		}
	}
	return st
}

// eachTick calls step at each tick until ctx ends, and says why something is not done yet when the reason is a new one.
func (b *base) eachTick(ctx context.Context, notYet string, step func(context.Context) error) {
	var reason string
	for sleep(ctx, b.opt.Tick, nil) == nil {
		err := step(ctx)
		switch {
		case err == nil:
			reason = ""
		case ctx.Err() == nil && err.Error() != reason:
			reason = err.Error()
			b.log.Info(notYet, "reason", err)
		}
	}
}

// sleep waits for d, a wake-up or the end of ctx.
func sleep(ctx context.Context, d time.Duration, wake <-chan struct{}) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-wake:
	case <-t.C:
	}
	return nil
}
