package apiserver

import (
	"fmt"
	"testing"

	"github.com/quorate/quorate/apiserver/access/auth"
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
	kubelet := func(name string) *auth.User { return someone("system:node:"+name, auth.Nodes) }
	halves := func(masters, kubelet int) *shares {
		return &shares{users: pool{limit: 16, part: 2}, kubelets: pool{limit: 16, part: 2, most: kubelet}, masters: masters}
	}
	for _, x := range []struct {
		name  string
		of    *shares
		users []*auth.User
		want  []int
	}{
		{"one", &shares{users: pool{limit: 2, part: 2}, masters: 1}, []*auth.User{someone("a"), masters, masters}, []int{1, 1, 0}},
		{"halves", halves(8, 3), []*auth.User{someone("a"), someone("b"), someone("c"), someone("d"), someone("e"), someone("a"), masters, kubelet("a")}, []int{8, 4, 2, 1, 1, 0, 8, 3}},
		{"accounts of a namespace", halves(8, 3), []*auth.User{someone("system:serviceaccount:n:a"), someone("system:serviceaccount:n:b"), someone("system:serviceaccount:m:a")}, []int{8, 0, 4}},
		{"the cluster's own accounts", halves(8, 3), []*auth.User{someone("system:serviceaccount:kube-system:a"), someone("system:serviceaccount:kube-system:b")}, []int{8, 4}},
		{"quarters", &shares{users: pool{limit: 16, part: 4}, kubelets: pool{limit: 16, part: 2, most: 1}}, []*auth.User{someone("a"), someone("b"), someone("c"), kubelet("a"), masters}, []int{4, 3, 2, 1, 100_000}},
		{"components", halves(8, 1), []*auth.User{someone("system:kube-controller-manager"), someone("system:serviceaccount:kube-system:proxy", "system:serviceaccounts:kube-system"), someone("a")}, []int{8, 8, 8}},
		{"many kubelets", halves(8, 5), []*auth.User{kubelet("a"), kubelet("b"), kubelet("c"), kubelet("d"), kubelet("e"), kubelet("f"), kubelet("g"), someone("a")}, []int{5, 5, 3, 1, 1, 1, 0, 8}},
	} {
		s := x.of
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
		if left := s.users.all + s.kubelets.all; left != 0 || len(s.of) != 0 {
			t.Errorf("%s: %d are left, of %v", x.name, left, s.of)
		}
	}
}

// TestWatchesByMemory: users' watches take an eighth of the memory, or what a small machine cannot do without; those of
// administrators are beside them, and each kubelet has enough.
func TestWatchesByMemory(t *testing.T) {
	for _, x := range []struct {
		memory         int64
		all, kubelet   int
		beyondAnEighth bool
	}{
		{0, 1000, 250, true}, // it is not known
		{400 << 20, 1000, 250, true},
		{512 << 20, 1024, 250, false},
		{1 << 30, 2048, 250, false},
		{8 << 30, 16384, 1024, false},
		{64 << 30, 131072, 8192, false},
	} {
		all := watchesWith(x.memory)
		s := newWatchShares(all)
		users := 0
		for i := range 40 {
			users += take(&s, someone(fmt.Sprint("u", i)))
		}
		kubelet := take(&s, someone("system:node:n", auth.Nodes))
		if all != x.all || users != all || kubelet != x.kubelet {
			t.Errorf("%d bytes: %d watches, %d of users, %d of a kubelet; want %+v", x.memory, all, users, kubelet, x)
		}
		if over := int64(all)*watchBytes > x.memory/8; over != x.beyondAnEighth {
			t.Errorf("%d bytes: %d watches take more than an eighth: %v", x.memory, all, over)
		}
		if !s.enter(someone("admin", auth.Masters)) {
			t.Errorf("%d bytes: no administrator watches", x.memory)
		}
	}
}
