package apiserver

import (
	"sync"

	"github.com/quorate/quorate/apiserver/auth"
)

// shares bound how much of something long-running users have at a time. The more users have some, the less each gets, so
// that who comes last finds a place, too. Administrators, the cluster's own components and kubelets have places of their own:
// they are needed most when users have taken all others. Safe for concurrent use.
type shares struct {
	// limit is how many places all users have together, and part which part of those that others leave is one user's (2:
	// half of them).
	limit, part int
	// masters is how many places each administrator and each component has. 0: as many as there are asked for.
	masters int
	// kubelet is how many places each kubelet has.
	kubelet int

	mu  sync.Mutex
	all int            // of users; guarded by mu
	of  map[string]int // by owner; guarded by mu
}

// enter takes a place, if the user may have one more.
func (s *shares) enter(u *auth.User) bool {
	owner := u.Owner()
	s.mu.Lock()
	defer s.mu.Unlock()
	has := s.of[owner]
	switch {
	case isOwn(u):
		if s.masters > 0 && has >= s.masters {
			return false
		}
	case isNode(u):
		if has >= max(1, s.kubelet) {
			return false
		}
	case s.all >= s.limit || has >= max(1, (s.limit-(s.all-has))/s.part):
		return false
	default:
		s.all++
	}
	if s.of == nil {
		s.of = map[string]int{}
	}
	s.of[owner] = has + 1
	return true
}

// leave gives back a place that the user has.
func (s *shares) leave(u *auth.User) {
	owner := u.Owner()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.of[owner]--; s.of[owner] == 0 {
		delete(s.of, owner)
	}
	if !isOwn(u) && !isNode(u) {
		s.all--
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
