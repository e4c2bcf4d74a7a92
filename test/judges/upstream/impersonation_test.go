package upstream

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/quorate/quorate/apiserver/access/auth"
	"github.com/quorate/quorate/internal/must"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/endpoints/filters/impersonation"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
)

// rights allow what they have, of which the questions are kept in words.
type rights struct {
	chance int // of 100
	seed   uint64
	asked  map[string]bool
}

// allows decides by the words of a question, so that both ask the same oracle.
func (r *rights) allows(by, verb, group, resource, subresource, namespace, name, path string) bool {
	words := strings.Join([]string{by, verb, group, resource, subresource, namespace, name, path}, "|")
	if _, known := r.asked[words]; !known {
		h := rand.New(rand.NewPCG(r.seed, hash(words)))
		r.asked[words] = h.IntN(100) < r.chance
	}
	return r.asked[words]
}

func hash(s string) (h uint64) {
	for _, c := range []byte(s) {
		h = h*1099511628211 + uint64(c)
	}
	return h
}

func (r *rights) ours(_ context.Context, a auth.Attributes) (auth.Decision, string, error) {
	if r.allows(a.User.Name+fmt.Sprint(slices.Sorted(maps.Keys(a.User.Extra))), a.Verb, a.APIGroup, a.Resource, a.Subresource, a.Namespace, a.Name, a.Path) {
		return auth.Allow, "", nil
	}
	return auth.NoOpinion, "because", nil
}

func (r *rights) theirs(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
	if r.allows(a.GetUser().GetName()+fmt.Sprint(slices.Sorted(maps.Keys(a.GetUser().GetExtra()))), a.GetVerb(), a.GetAPIGroup(), a.GetResource(), a.GetSubresource(), a.GetNamespace(), a.GetName(), a.GetPath()) {
		return authorizer.DecisionAllow, "", nil
	}
	return authorizer.DecisionNoOpinion, "because", nil
}

// TestImpersonation: who may act as whom, in what, and what a refusal says, is what upstream's filter says.
func TestImpersonation(t *testing.T) {
	names := []string{"bob", "system:node:n1", "system:node:N_1", "system:node:n2", "system:serviceaccount:ns:sa", "system:serviceaccount:ns:S A", "system:serviceaccount:ns", "system:anonymous", ""}
	senders := []*auth.User{
		{Name: "alice"},
		{Name: "system:serviceaccount:ns:agent", Extra: map[string][]string{"authentication.kubernetes.io/node-name": {"n1"}, "authentication.kubernetes.io/pod-name": {"p"}}},
		{Name: "system:serviceaccount:ns:other", Extra: map[string][]string{"authentication.kubernetes.io/node-name": {"n1", "n2"}}},
	}
	groups := [][]string{nil, nil, nil, {"g"}, {"g", ""}, {"system:masters"}, {"a", "b", "c", "d"}, {"system:unauthenticated"}}
	extras := [][2]string{{"", ""}, {"", ""}, {"", ""}, {"Scopes", "view"}, {"Example.com%2fKey", "v"}, {"Bad%20key", "v"}, {"Example.com%2fOther", ""}}
	infos := []*request.RequestInfo{
		{IsResourceRequest: true, Verb: "list", APIVersion: "v1", Resource: "configmaps", Namespace: "default", Path: "/api/v1/namespaces/default/configmaps"},
		{IsResourceRequest: true, Verb: "get", APIGroup: "apps", APIVersion: "v1", Resource: "deployments", Subresource: "scale", Namespace: "default", Name: "d", Path: "/apis/apps/v1/namespaces/default/deployments/d/scale"},
		{Verb: "get", Path: "/version"},
	}
	outcomes := map[string]int{}
	n := *objects * 50
	if testing.Short() {
		n = 2000
	}
	for i := range n {
		c := rand.New(rand.NewPCG(uint64(*first), uint64(i)))
		by, info := senders[c.IntN(len(senders))], infos[c.IntN(len(infos))]
		header := http.Header{}
		if name := names[c.IntN(len(names))]; name != "" || c.IntN(2) == 0 {
			header.Set("Impersonate-User", name)
		}
		for _, g := range groups[c.IntN(len(groups))] {
			header.Add("Impersonate-Group", g)
		}
		if x := extras[c.IntN(len(extras))]; x[0] != "" {
			header.Set("Impersonate-Extra-"+x[0], x[1])
		}
		if c.IntN(5) == 0 {
			header.Set("Impersonate-Uid", "u")
		}
		r := &rights{chance: []int{30, 60, 80, 95}[c.IntN(4)], seed: uint64(i), asked: map[string]bool{}}
		want := upstreamImpersonates(r, by, info, header.Clone())
		got := weImpersonate(t, r, by, info, header)
		if want != got {
			t.Fatalf("%d: %s asks for %+v with %v:\n%s\nupstream\n%s", i, by.Name, info, header, got, want)
		}
		outcomes[got[:3]]++
	}
	t.Logf("%d requests: %v", n, outcomes)
	for _, code := range []string{"200", "400", "403"} {
		if outcomes[code] == 0 {
			t.Errorf("no request was answered %s", code)
		}
	}
}

func upstreamImpersonates(r *rights, by *auth.User, info *request.RequestInfo, header http.Header) string {
	var served string
	// A filter of its own has nothing in its caches.
	h := impersonation.WithConstrainedImpersonation(http.HandlerFunc(func(_ http.ResponseWriter, req *http.Request) {
		u, _ := request.UserFrom(req.Context())
		served = fmt.Sprintf("200 %s %q %q %v %d", u.GetName(), u.GetUID(), u.GetGroups(), u.GetExtra(), len(req.Header))
	}), authorizer.AuthorizerFunc(r.theirs), legacyscheme.Codecs)
	req := httptest.NewRequest("GET", info.Path, nil)
	req.Header = header
	ctx := request.WithRequestInfo(request.WithUser(req.Context(), &user.DefaultInfo{Name: by.Name, Groups: by.Groups, Extra: by.Extra}), info)
	w := httptest.NewRecorder()
	h.ServeHTTP(w, req.WithContext(ctx))
	if served != "" {
		return served
	}
	return answerOf(w.Code, w.Body.String())
}

// answerOf is a refusal, without its words where they are no promise.
func answerOf(code int, body string) string {
	if code == 400 {
		return "400"
	}
	_, message, _ := strings.Cut(body, `"message":"`)
	message, _, _ = strings.Cut(message, `","reason"`)
	return fmt.Sprint(code, " ", message)
}

func weImpersonate(t *testing.T, r *rights, by *auth.User, info *request.RequestInfo, header http.Header) string {
	on := auth.Attributes{
		User: by, Verb: info.Verb, APIGroup: info.APIGroup, APIVersion: info.APIVersion, Resource: info.Resource, Subresource: info.Subresource,
		Namespace: info.Namespace, Name: info.Name, Path: info.Path, ResourceRequest: info.IsResourceRequest,
	}
	u, _, err := auth.Impersonate(t.Context(), auth.AuthorizerFunc(r.ours), on, header)
	if err != nil {
		s, ok := err.(apierrors.APIStatus)
		if !ok {
			t.Fatal(err)
		}
		b, err := json.Marshal(s.Status())
		must.OK(t, err)
		return answerOf(int(s.Status().Code), string(b))
	}
	return fmt.Sprintf("200 %s %q %q %v %d", u.Name, u.UID, u.Groups, u.Extra, len(header))
}
