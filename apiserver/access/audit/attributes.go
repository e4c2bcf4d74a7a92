package audit

import (
	"net"
	"net/http"
	"strings"

	authnv1 "k8s.io/api/authentication/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
)

// User is who asks. Not to be changed once it was handed over.
type User struct {
	Name, UID string
	Groups    []string
	Extra     map[string][]string
}

// Attributes are what the policy's rules look at. They are upstream's
// authorizer.Attributes.
type Attributes struct {
	User            *User
	Verb            string
	Namespace, Name string
	APIGroup        string
	APIVersion      string
	Resource        string // empty for paths that are no resources
	Subresource     string
	Path            string
}

var _ authorizer.Attributes = (*Attributes)(nil)

// GetUser and the methods after it are authorizer.Attributes.
func (a *Attributes) GetUser() user.Info {
	if a.User == nil {
		return nil
	}
	return &user.DefaultInfo{Name: a.User.Name, UID: a.User.UID, Groups: a.User.Groups, Extra: a.User.Extra}
}

func (a *Attributes) GetVerb() string { return a.Verb }
func (a *Attributes) IsReadOnly() bool {
	return a.Verb == "get" || a.Verb == "list" || a.Verb == "watch"
}
func (a *Attributes) GetNamespace() string    { return a.Namespace }
func (a *Attributes) GetResource() string     { return a.Resource }
func (a *Attributes) GetSubresource() string  { return a.Subresource }
func (a *Attributes) GetName() string         { return a.Name }
func (a *Attributes) GetAPIGroup() string     { return a.APIGroup }
func (a *Attributes) GetAPIVersion() string   { return a.APIVersion }
func (a *Attributes) IsResourceRequest() bool { return a.Resource != "" }
func (a *Attributes) GetPath() string         { return a.Path }

// GetFieldSelector and GetLabelSelector: no rule of a policy looks at them.
func (a *Attributes) GetFieldSelector() (fields.Requirements, error) { return nil, nil }
func (a *Attributes) GetLabelSelector() (labels.Requirements, error) { return nil, nil }

func userInfo(u *User) authnv1.UserInfo {
	if u == nil {
		return authnv1.UserInfo{}
	}
	info := authnv1.UserInfo{Username: u.Name, UID: u.UID, Groups: u.Groups}
	for key, values := range u.Extra {
		if info.Extra == nil {
			info.Extra = map[string]authnv1.ExtraValue{}
		}
		info.Extra[key] = values
	}
	return info
}

// sourceIPs are where the request says it comes from (proxies add themselves) and
// where it does come from, as upstream lists them.
func sourceIPs(r *http.Request) []string {
	var out []string
	add := func(text string) {
		if ip := net.ParseIP(strings.TrimSpace(text)); ip != nil {
			out = append(out, ip.String())
		}
	}
	for _, part := range strings.Split(r.Header.Get("X-Forwarded-For"), ",") {
		add(part)
	}
	if len(out) == 0 {
		add(r.Header.Get("X-Real-Ip"))
	}
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		host = r.RemoteAddr
	}
	if ip := net.ParseIP(host); ip != nil && (len(out) == 0 || out[len(out)-1] != ip.String()) {
		out = append(out, ip.String())
	}
	return out
}

func cut(s string, n int) string {
	if len(s) > n {
		return s[:n] + "...TRUNCATED"
	}
	return s
}
