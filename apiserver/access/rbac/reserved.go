package rbac

import (
	"strings"

	"github.com/quorate/quorate/apiserver/access/auth"
	rbacv1 "k8s.io/api/rbac/v1"
)

// Reserved paths are those of Quorate that hold or hand out everything: a backup holds
// all Secrets, a join token the cluster's key, a profile pieces of memory. kube-apiserver
// has nothing like them, so roles that were written for it (those of monitoring, of
// readers of the whole cluster) allow get of all paths and mean metrics and health.
// A rule therefore counts for a reserved path only if its pattern names the tree, as
// /quorate/v1/snapshot and /debug/pprof/* do; or if the user is an administrator.
//
// Everything below the two trees is reserved but what is named here, so that a path
// that is added is reserved too. Nothing is served at /quorate and /debug themselves: those
// are paths of others, who ask about them in reviews.
func reserved(path string) bool {
	switch path {
	case "/quorate/v1/status", "/quorate/v1/process":
		return false
	}
	first, _, below := strings.Cut(strings.TrimPrefix(path, "/"), "/")
	return below && (first == "quorate" || first == "debug")
}

// namesTree reports whether a pattern of nonResourceURLs counts for reserved paths.
func namesTree(pattern string) bool {
	return strings.HasPrefix(pattern, "/quorate/") || strings.HasPrefix(pattern, "/debug/")
}

// ownGroup is the API group of Quorate's own objects.
const ownGroup = "quorate.io"

// reservedWrite reports whether a request writes objects of Quorate: who deletes a Member removes a node from the cluster.
// kube-apiserver has nothing like them, either, and roles that were written for it allow to delete everything and mean
// workloads: those of its controllers of namespaces and garbage do. A rule therefore counts only if it names the group; or if the user is
// an administrator, which is a permission of the same group.
func reservedWrite(a *auth.Attributes) bool {
	if !a.ResourceRequest || a.APIGroup != ownGroup || a.Resource == administered {
		return false
	}
	return a.Verb != "get" && a.Verb != "list" && a.Verb != "watch"
}

// isReserved reports whether rules count for a request only if they name what it is about.
func isReserved(a *auth.Attributes) bool {
	if a.ResourceRequest {
		return reservedWrite(a)
	}
	return reserved(a.Path)
}

// administered is the resource that administration is a permission for.
const administered = "clusters"

// administration is the permission of an administrator: all rules count for them. The
// resource is not served; the role cluster-admin allows it by its stars, and roles that
// list verbs do not.
func administration(u *auth.User) *auth.Attributes {
	return &auth.Attributes{User: u, Verb: "administer", APIGroup: ownGroup, Resource: administered, ResourceRequest: true}
}

// administers reports whether rules hold the permission of an administrator.
func administers(rules []rbacv1.PolicyRule) bool {
	for i := range rules {
		if allows(&rules[i], administration(nil)) {
			return true
		}
	}
	return false
}
