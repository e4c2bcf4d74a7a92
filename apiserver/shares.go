package apiserver

import (
	"sync"

	"github.com/quorate/quorate/apiserver/access/auth"
)

// shares bound how much of something long-running users have at a time. The more users have some, the less each gets, so
// that who comes last finds a place, too. Administrators, the cluster's own components and kubelets have places of their own:
// they are needed most when users have taken all others. Safe for concurrent use.
type shares struct {
	users, kubelets pool
	// masters is how many places each administrator and each component has. 0: as many as there are asked for.
	masters int

	mu sync.Mutex
	of map[string]int // by owner; guarded by mu
}

// newShares returns shares of so many places for users, and kubelets times as many for kubelets, of which each has as many as
// a sixteenth of the users', or least if that is no more than a quarter. Together they are bounded, too: who has a bootstrap
// token can make kubelets as it likes.
func newShares(limit, kubelets, masters, least int) shares {
	return shares{
		users:    pool{limit: limit, part: 2},
		kubelets: pool{limit: kubelets * limit, part: 2, most: max(1, limit/16, min(least, limit/4))},
		masters:  masters,
	}
}

// kubeletWatches are those that a kubelet needs however few there are: it watches each Secret and ConfigMap of its Pods.
const kubeletWatches = 250

// newWatchShares are those of watches at this server's own objects.
func newWatchShares(limit int) shares { return newShares(limit, 4, 0, kubeletWatches) }

// pool is places that owners share.
type pool struct {
	// limit is how many there are, and part which part of those that others leave is one owner's (2: half of them).
	limit, part int
	// most is how many one owner has at most. 0: what its part is.
	most int

	all int // that are taken; guarded by shares.mu
}

// free reports whether an owner that has some of the places may have one more.
func (p *pool) free(has int) bool {
	most := (p.limit - (p.all - has)) / p.part
	if p.most > 0 {
		most = min(most, p.most)
	}
	return p.all < p.limit && has < max(1, most)
}

// pool returns the places that a user shares, or nil.
func (s *shares) pool(u *auth.User) *pool {
	switch {
	case isOwn(u):
		return nil
	case isNode(u):
		return &s.kubelets
	}
	return &s.users
}

// enter takes a place, if the user may have one more.
func (s *shares) enter(u *auth.User) bool {
	owner, pool := u.Owner(), s.pool(u)
	s.mu.Lock()
	defer s.mu.Unlock()
	has := s.of[owner]
	switch {
	case pool != nil:
		if !pool.free(has) {
			return false
		}
		pool.all++
	case s.masters > 0 && has >= s.masters:
		return false
	}
	if s.of == nil {
		s.of = map[string]int{}
	}
	s.of[owner] = has + 1
	return true
}

// leave gives back a place that the user has.
func (s *shares) leave(u *auth.User) {
	owner, pool := u.Owner(), s.pool(u)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.of[owner]--; s.of[owner] == 0 {
		delete(s.of, owner)
	}
	if pool != nil {
		pool.all--
	}
}

// isOwn reports whether a user is an administrator or one of the cluster's own components.
func isOwn(u *auth.User) bool {
	return u.InGroup(auth.Masters) || u.InGroup("system:serviceaccounts:kube-system") || u.Name == "system:kube-controller-manager" || u.Name == "system:kube-scheduler"
}

func isNode(u *auth.User) bool {
	_, node := u.Node()
	return node
}
