package apiserver

import (
	"fmt"
	"testing"

	"github.com/quorate/quorate/apiserver/auth"
)

// take has a user take as many places as there are for it.
func take(s *shares, u *auth.User) (n int) {
	for s.enter(u) {
		n++
		if n == 100_000 {
			return n
		}
	}
	return n
}

func someone(name string, groups ...string) *auth.User { return &auth.User{Name: name, Groups: groups} }

// TestShares: how many places users get who take all that they can, one after the other.
func TestShares(t *testing.T) {
	masters := someone("admin", auth.Masters)
	node := someone("system:node:a", auth.Nodes)
	for _, x := range []struct {
		name                          string
		limit, part, masters, kubelet int
		users                         []*auth.User
		want                          []int
	}{
		{"one", 2, 2, 1, 0, []*auth.User{someone("a"), masters, masters}, []int{1, 1, 0}},
		{"halves", 16, 2, 8, 3, []*auth.User{someone("a"), someone("b"), someone("c"), someone("d"), someone("e"), someone("a"), masters, node}, []int{8, 4, 2, 1, 1, 0, 8, 3}},
		{"accounts of a namespace", 16, 2, 8, 3, []*auth.User{someone("system:serviceaccount:n:a"), someone("system:serviceaccount:n:b"), someone("system:serviceaccount:m:a")}, []int{8, 0, 4}},
		{"the cluster's own accounts", 16, 2, 8, 3, []*auth.User{someone("system:serviceaccount:kube-system:a"), someone("system:serviceaccount:kube-system:b")}, []int{8, 4}},
		{"quarters", 16, 4, 0, 1, []*auth.User{someone("a"), someone("b"), someone("c"), node, masters}, []int{4, 3, 2, 1, 100_000}},
		{"components", 16, 2, 8, 0, []*auth.User{someone("system:kube-controller-manager"), someone("system:serviceaccount:kube-system:proxy", "system:serviceaccounts:kube-system"), someone("a")}, []int{8, 8, 8}},
	} {
		s := &shares{limit: x.limit, part: x.part, masters: x.masters, kubelet: x.kubelet}
		got := make([]int, len(x.users))
		for i, u := range x.users {
			got[i] = take(s, u)
		}
		if fmt.Sprint(got) != fmt.Sprint(x.want) {
			t.Errorf("%s: %v, want %v", x.name, got, x.want)
		}
		for i, u := range x.users {
			for range got[i] {
				s.leave(u)
			}
		}
		if s.all != 0 || len(s.of) != 0 {
			t.Errorf("%s: %d are left, of %v", x.name, s.all, s.of)
		}
	}
}
