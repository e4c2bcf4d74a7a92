package auth

import "testing"

// TestOwner: whose requests count together.
func TestOwner(t *testing.T) {
	for user, want := range map[string]string{
		"alice": "alice", "system:node:n1": "system:node:n1", "": "",
		"system:serviceaccount:team:a": "system:serviceaccount:team", "system:serviceaccount:team:b": "system:serviceaccount:team",
		"system:serviceaccount:kube-system:job": "system:serviceaccount:kube-system:job", "system:serviceaccount:x": "system:serviceaccount:x",
	} {
		if got := (&User{Name: user}).Owner(); got != want {
			t.Errorf("%s counts for %s, want %s", user, got, want)
		}
	}
}
