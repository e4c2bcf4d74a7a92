package auth

import (
	"context"
	"net/http"
	"net/url"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// Headers by which a user acts as another. Everything they name must be allowed to
// the user by the verb impersonate.
const (
	impersonateUser  = "Impersonate-User"
	impersonateGroup = "Impersonate-Group"
	impersonateUID   = "Impersonate-Uid"
	impersonateExtra = "Impersonate-Extra-"
)

const serviceAccountPrefix = "system:serviceaccount:"

// ServiceAccountUser is the name under which a service account is a user.
func ServiceAccountUser(namespace, name string) string {
	return serviceAccountPrefix + namespace + ":" + name
}

// ServiceAccountGroups are the groups of a namespace's service accounts.
func ServiceAccountGroups(namespace string) []string {
	return []string{"system:serviceaccounts", "system:serviceaccounts:" + namespace}
}

// Impersonate returns the user that a request is to be served as: u, or the one
// that the request's headers name, if u may act as that one. To ignore the headers
// would serve the request with rights that the client meant to give up. The headers
// are taken out of the request.
//
// Errors: 400 for headers without a user, 403 (see Forbidden) for what is not
// allowed.
func Impersonate(ctx context.Context, a Authorizer, u *User, header http.Header) (*User, error) {
	if !impersonates(header) {
		return u, nil
	}
	return impersonate(ctx, a, u, header)
}

// Impersonation is the part of a header that Impersonate goes by, and takes out of it; nil if
// there is none. It can be handed to Impersonate to ask once more.
func Impersonation(header http.Header) http.Header {
	if !impersonates(header) {
		return nil
	}
	part := http.Header{}
	for key, values := range header {
		if strings.HasPrefix(key, "Impersonate-") {
			part[key] = values
		}
	}
	return part
}

// impersonate is apart, so that requests without the headers, which are nearly
// all, need no stack for it.
func impersonate(ctx context.Context, a Authorizer, u *User, header http.Header) (*User, error) {
	target := &User{Name: header.Get(impersonateUser), UID: header.Get(impersonateUID), Groups: slices.Clone(header[impersonateGroup])}
	if target.Name == "" {
		return nil, apierrors.NewBadRequest("requested impersonation headers without impersonating a user")
	}
	var wanted []Attributes
	want := func(resource, subresource, namespace, name string) {
		x := Attributes{User: u, Verb: "impersonate", Resource: resource, Subresource: subresource, Namespace: namespace, Name: name, ResourceRequest: true}
		if resource == "uids" || resource == "userextras" {
			x.APIGroup, x.APIVersion = "authentication.k8s.io", "v1"
		}
		wanted = append(wanted, x)
	}
	if namespace, name, ok := SplitServiceAccount(target.Name); ok {
		want("serviceaccounts", "", namespace, name)
		if len(target.Groups) == 0 {
			target.Groups = ServiceAccountGroups(namespace)
		}
	} else {
		want("users", "", "", target.Name)
	}
	for _, g := range header[impersonateGroup] {
		want("groups", "", "", g)
	}
	for key, values := range header {
		raw, ok := strings.CutPrefix(key, impersonateExtra)
		if !ok {
			continue
		}
		name := strings.ToLower(raw)
		if s, err := url.PathUnescape(name); err == nil {
			name = s
		}
		for _, value := range values {
			want("userextras", name, "", value)
		}
		if target.Extra == nil {
			target.Extra = map[string][]string{}
		}
		target.Extra[name] = append(target.Extra[name], values...)
	}
	if target.UID != "" {
		want("uids", "", "", target.UID)
	}
	for _, x := range wanted {
		d, reason, err := a.Authorize(ctx, x)
		if d != Allow || err != nil {
			return nil, Forbidden(x, reason)
		}
	}
	for key := range header {
		if strings.HasPrefix(key, "Impersonate-") {
			delete(header, key)
		}
	}
	return withStandardGroup(target), nil
}

// withStandardGroup adds the group that tells users from strangers, unless the
// client named one of the two.
func withStandardGroup(u *User) *User {
	group := Authenticated
	if u.Name == Anonymous {
		group = Unauthenticated
	} else if u.InGroup(Unauthenticated) {
		return u
	}
	if !u.InGroup(group) {
		u.Groups = append(u.Groups, group)
	}
	return u
}

func impersonates(header http.Header) bool {
	for key, values := range header {
		if !strings.HasPrefix(key, "Impersonate-") {
			continue
		}
		switch {
		case key == impersonateUser || key == impersonateUID:
			if len(values) > 0 && values[0] != "" { // an empty one asks for nothing
				return true
			}
		case key == impersonateGroup, strings.HasPrefix(key, impersonateExtra):
			return true
		}
	}
	return false
}

// SplitServiceAccount reads system:serviceaccount:NAMESPACE:NAME.
func SplitServiceAccount(user string) (namespace, name string, ok bool) {
	rest, ok := strings.CutPrefix(user, serviceAccountPrefix)
	if !ok {
		return "", "", false
	}
	namespace, name, ok = strings.Cut(rest, ":")
	return namespace, name, ok && namespace != "" && name != "" && !strings.Contains(name, ":")
}
