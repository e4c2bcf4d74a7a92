package auth

import (
	"cmp"
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

// Impersonate returns the user that a request is to be served as: the one who sent it, on.User, or the one that its
// headers name, if the sender may act as that one. To ignore the headers would serve the request with rights that the
// client meant to give up. The headers are taken out of the request. on is what the request asks for: a right to
// impersonate may be for some requests only, and constraint is then its verb (KEP-5284).
//
// Errors: 400 for headers without a user, 403 (see Forbidden) for what is not
// allowed.
func Impersonate(ctx context.Context, a Authorizer, on Attributes, header http.Header) (u *User, constraint string, err error) {
	if !impersonates(header) {
		return on.User, "", nil
	}
	return impersonate(ctx, a, on, header)
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
func impersonate(ctx context.Context, a Authorizer, on Attributes, header http.Header) (*User, string, error) {
	wanted := wantedUser(header)
	if wanted.Name == "" {
		return nil, "", apierrors.NewBadRequest("requested impersonation headers without impersonating a user")
	}
	var first error
	for _, m := range impersonationModes {
		if m.applies != nil && !m.applies(wanted, on.User) {
			continue
		}
		u, err := m.impersonate(ctx, a, on, wanted)
		if err != nil {
			first = cmp.Or(first, err)
			continue
		}
		for key := range header {
			if strings.HasPrefix(key, "Impersonate-") {
				delete(header, key)
			}
		}
		return withStandardGroup(u), m.verb(), nil
	}
	return nil, "", first
}

// wantedUser is who the headers name, as they name it.
func wantedUser(header http.Header) *User {
	u := &User{Name: header.Get(impersonateUser), UID: header.Get(impersonateUID), Groups: slices.Clone(header[impersonateGroup])}
	for key, values := range header {
		raw, ok := strings.CutPrefix(key, impersonateExtra)
		if !ok || len(values) == 0 {
			continue
		}
		name := strings.ToLower(raw)
		if s, err := url.PathUnescape(name); err == nil {
			name = s
		}
		if u.Extra == nil {
			u.Extra = map[string][]string{}
		}
		u.Extra[name] = append(u.Extra[name], values...)
	}
	return u
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
