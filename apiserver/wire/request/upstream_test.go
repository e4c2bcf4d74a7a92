//lint:file-ignore SA1019 orphanDependents is deprecated for clients, not for servers: older clients still send it

package request

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/url"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/quorate/quorate/apiserver/wire/status"
	"github.com/quorate/quorate/internal/must"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation/field"
	upstream "k8s.io/apiserver/pkg/endpoints/request"
)

// TestInfoAsUpstream: a method and a path ask for what they ask for upstream.
func TestInfoAsUpstream(t *testing.T) {
	factory := upstream.RequestInfoFactory{APIPrefixes: sets.NewString("api", "apis"), GrouplessAPIPrefixes: sets.NewString("api")}
	heads := []string{"/api/v1", "/api/namespaces", "/apis/apps/v1", "/apis/watch/namespaces", "/apis/apps", "/api", "/apis", "/apiv1/v1", "/version", ""}
	tails := []string{"", "/pods", "/pods/p", "/pods/p/status", "/pods/p/exec/a/b", "/pods/namespaces/status"}
	for _, tail := range slices.Clone(tails) {
		tails = append(tails, "/namespaces"+tail, "/namespaces/n"+tail)
	}
	for _, s := range []string{"status", "finalize", "statuses", "namespaces"} {
		tails = append(tails, "/namespaces/n/"+s, "/namespaces/n/"+s+"/x", "/namespaces/n/"+s+"/x/y")
	}
	for _, method := range []string{"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"} {
		for _, head := range heads {
			for _, tail := range tails {
				for _, prefix := range []string{"", "/watch"} {
					if prefix != "" && (tail == "" || method != "GET") {
						continue // upstream, these watch, too, or fail: they have no handler anyway
					}
					for _, slash := range []string{"", "/"} {
						for _, query := range []string{"", "watch", "watch=1", "watch=False", "watch=0", "a=b&watch=true&watch=0"} {
							r := &http.Request{Method: method, URL: &url.URL{Path: head + prefix + tail + slash, RawQuery: query}}
							var i Info
							if !i.Parse(r) {
								t.Fatalf("%s %s is refused", method, r.URL)
							}
							u, err := factory.NewRequestInfo(r)
							must.OK(t, err)
							got := upstream.RequestInfo{
								IsResourceRequest: i.IsResource, Path: i.Path, Verb: i.Verb, APIGroup: i.Group, APIVersion: i.Version,
								Namespace: i.Namespace, Resource: i.Resource, Subresource: i.Subresource, Name: i.Name,
								APIPrefix: u.APIPrefix, Parts: u.Parts,
							}
							if !u.IsResourceRequest {
								// Upstream leaves what it has read of it.
								u.APIGroup, u.APIVersion = "", ""
							}
							if !reflect.DeepEqual(&got, u) {
								t.Fatalf("%s %s: %+v, upstream %+v", method, r.URL, got, *u)
							}
							if own := u.Resource == "namespaces" && u.Name != "" && u.Name == u.Namespace; i.OwnNamespace != own {
								t.Fatalf("%s %s: the namespace's own path: %v", method, r.URL, !own)
							}
							if past := u.Parts[min(3, len(u.Parts)):]; i.IsResource && strings.TrimRight(i.Trailing(), "/") != strings.Join(past, "/") {
								t.Fatalf("%s %s: %q follows the subresource", method, r.URL, i.Trailing())
							}
						}
					}
				}
			}
		}
	}
}

// upstreamOptions are a query's parameters as upstream reads them for a verb.
func upstreamOptions(verb string, v url.Values) (o Options, d metav1.DeleteOptions, err error) {
	if verb == "get" {
		var get metav1.GetOptions
		err = metav1.Convert_url_Values_To_v1_GetOptions(&v, &get, nil)
		o.ResourceVersion = get.ResourceVersion
		return o, d, err
	}
	if verb == "list" || verb == "watch" || verb == "deletecollection" {
		var list metav1.ListOptions
		if err := metav1.Convert_url_Values_To_v1_ListOptions(&v, &list, nil); err != nil {
			return o, d, err
		}
		o = Options{
			ResourceVersion: list.ResourceVersion, ResourceVersionMatch: string(list.ResourceVersionMatch), Limit: list.Limit, Continue: list.Continue,
			LabelSelector: list.LabelSelector, FieldSelector: list.FieldSelector, SendInitialEvents: list.SendInitialEvents,
			AllowWatchBookmarks: list.AllowWatchBookmarks, TimeoutSeconds: list.TimeoutSeconds,
		}
	}
	if verb == "delete" || verb == "deletecollection" {
		err = metav1.Convert_url_Values_To_v1_DeleteOptions(&v, &d, nil)
		return o, d, err
	}
	if slices.Contains([]string{"create", "update", "patch"}, verb) {
		var patch metav1.PatchOptions
		err = metav1.Convert_url_Values_To_v1_PatchOptions(&v, &patch, nil)
		o = Options{DryRun: patch.DryRun, FieldManager: patch.FieldManager, FieldValidation: patch.FieldValidation}
		if verb == "patch" {
			o.Force = patch.Force
		}
	}
	return o, d, err
}

// TestOptionsAsUpstream: of queries in which no parameter is there twice, verbs understand what
// they understand upstream. The others are in TestOptions.
func TestOptionsAsUpstream(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	values := []string{
		"", "=", "=a", "=%61b", "=a%62", "=a+b", "=+a", "=a=b", "=All", "=Orphan", "=Strict",
		"=0", "=5", "=-1", "=%35", "=1", "=true", "=false", "=FALSE", "=%30",
	}
	// Twice, so that a query has some, and not only those that nobody knows.
	names := append(slices.Clone(queryNames[:]), queryNames[:]...)
	names = slices.DeleteFunc(names, func(s string) bool { return s == "export" || s == "timeout" || s == "maxStaleness" })
	names = append(names, "x", "x", "y", "%75id", "+uid", "dryRun", "dryRun", "%6Cimit")
	all := slices.Sorted(maps.Keys(verbs))
	accepted := map[string]int{}
	for range 30000 {
		var raw string
		had := map[string]bool{}
		for range 1 + random.IntN(4) {
			name := names[random.IntN(len(names))]
			key, _ := url.QueryUnescape(name)
			if had[key] && key != "dryRun" && key != "x" {
				continue
			}
			had[key] = true
			raw += "&" + name + values[random.IntN(len(values))]
		}
		raw = strings.TrimPrefix(raw, strings.Repeat("&", random.IntN(2)))
		parsed, err := url.ParseQuery(raw)
		must.OK(t, err)
		verb := all[random.IntN(len(all))]
		want, wantDelete, wantErr := upstreamOptions(verb, parsed)
		var got Options
		err = got.Parse(raw, verb)
		if (err == nil) != (wantErr == nil) || err != nil && !apierrors.IsBadRequest(err) {
			t.Fatalf("%s?%s: %v, upstream %v", verb, raw, err, wantErr)
		}
		if err != nil {
			continue
		}
		accepted[verb]++
		if strings.HasPrefix(verb, "delete") {
			d, err := got.DeleteOptions()
			wantErr := invalidOptions("DeleteOptions", metav1validation.ValidateDeleteOptions(&wantDelete))
			if !reflect.DeepEqual(d, &wantDelete) || !reflect.DeepEqual(err, wantErr) {
				t.Fatalf("%s?%s: %+v %v, upstream %+v %v", verb, raw, d, err, wantDelete, wantErr)
			}
			got.DryRun, got.GracePeriodSeconds, got.OrphanDependents, got.PropagationPolicy, got.UID = nil, nil, nil, nil, ""
			if verb == "delete" {
				got.ResourceVersion = ""
			}
		}
		if got.seen, got.first = 0, want.first; !reflect.DeepEqual(got, want) {
			t.Fatalf("%s?%s: %+v, upstream %+v", verb, raw, got, want)
		}
	}
	for _, verb := range all {
		if accepted[verb] < 500 {
			t.Errorf("%s: only %d queries were accepted", verb, accepted[verb])
		}
	}
}

// invalidOptions is nil if there are no errors.
func invalidOptions(kind string, errs field.ErrorList) error {
	if len(errs) == 0 {
		return nil
	}
	return status.InvalidOptions(kind, errs)
}

// TestCheckAsUpstream: the options of writes are refused with upstream's words, in its order.
func TestCheckAsUpstream(t *testing.T) {
	yes, no := true, false
	for _, dryRun := range [][]string{nil, {"All"}, {"All", "All"}, {"all"}, {""}} {
		for _, manager := range []string{"", "m", "m\n", strings.Repeat("m", 129)} {
			for _, strict := range []string{"", "Strict", "Warn", "Ignore", "strict"} {
				for _, force := range []*bool{nil, &yes, &no} {
					q := &Options{DryRun: dryRun, FieldManager: manager, FieldValidation: strict, Force: force}
					patch := &metav1.PatchOptions{DryRun: dryRun, FieldManager: manager, FieldValidation: strict, Force: force}
					for _, x := range []struct {
						kind string
						got  error
						want field.ErrorList
					}{
						{"CreateOptions", q.CheckModify("CreateOptions"), metav1validation.ValidateCreateOptions(&metav1.CreateOptions{DryRun: dryRun, FieldManager: manager, FieldValidation: strict})},
						{"UpdateOptions", q.CheckModify("UpdateOptions"), metav1validation.ValidateUpdateOptions(&metav1.UpdateOptions{DryRun: dryRun, FieldManager: manager, FieldValidation: strict})},
						{"PatchOptions", q.CheckModify("PatchOptions"), metav1validation.ValidatePatchOptions(patch, types.MergePatchType)},
						{"PatchOptions", q.CheckApply(), metav1validation.ValidatePatchOptions(patch, types.ApplyYAMLPatchType)},
					} {
						if want := invalidOptions(x.kind, x.want); !reflect.DeepEqual(x.got, want) {
							t.Fatalf("%s %+v: %v, upstream %v", x.kind, patch, x.got, want)
						}
					}
					if q.IsDryRun() != (dryRun != nil) || q.Forced() != (force == &yes) {
						t.Fatalf("%+v: a dry run: %v; forced: %v", patch, q.IsDryRun(), q.Forced())
					}
				}
			}
		}
	}
}

// TestDeleteOptionsAsUpstream: the body of a delete says what it says upstream, and what is no such
// body is refused with the first thing that is wrong with it.
func TestDeleteOptionsAsUpstream(t *testing.T) {
	for _, x := range []struct{ body, bad string }{
		{body: `{}`},
		{body: `{"kind":"","apiVersion":"v1"}`},
		{body: `{"kind":"DeleteOptions","gracePeriodSeconds":0,"orphanDependents":false,"dryRun":["All"],"preconditions":{"uid":"u","resourceVersion":"7"}}`},
		{body: `{"gracePeriodSeconds":5,"propagationPolicy":"Foreground","preconditions":{}}`},
		{body: `{"orphanDependents":true,"preconditions":{"uid":"","other":1}}`},
		{body: `{"preconditions":{"resourceVersion":"7"}}`},
		{body: `{"gracePeriodSeconds":null,"orphanDependents":null,"propagationPolicy":null,"dryRun":null,"preconditions":null}`},
		{body: `{"preconditions":{"uid":null,"resourceVersion":null}}`},
		{body: `{"propagationPolicy":"Nobody"}`},
		{body: `{"propagationPolicy":"Orphan","orphanDependents":true,"dryRun":["some"]}`},

		{`{"kind":"Pod"}`, `kind "Pod" is not DeleteOptions`},
		{`{"gracePeriodSeconds":1.5}`, "gracePeriodSeconds: must be an integer"},
		{`{"orphanDependents":"true"}`, "orphanDependents: must be a boolean"},
		{`{"propagationPolicy":1}`, "propagationPolicy: must be a string"},
		{`{"dryRun":"All"}`, "dryRun: must be a list of strings"},
		{`{"dryRun":["All",1]}`, "dryRun: must be a list of strings"},
		{`{"preconditions":[]}`, "preconditions: must be an object"},
		{`{"preconditions":{"uid":1,"resourceVersion":1}}`, "uid: must be a string"},
		{`{"preconditions":{"resourceVersion":1}}`, "resourceVersion: must be a string"},
		{`{"gracePeriodSeconds":"x","dryRun":1,"preconditions":{"uid":1}}`, "gracePeriodSeconds: must be an integer"},
	} {
		var want metav1.DeleteOptions
		decoded := json.Unmarshal([]byte(x.body), &want)
		want.TypeMeta = metav1.TypeMeta{} // nobody reads it any more
		got, err := deleteOptions("application/json", []byte(x.body))
		if x.bad != "" {
			if !apierrors.IsBadRequest(err) || err.Error() != "invalid DeleteOptions: "+x.bad || decoded == nil && !strings.Contains(x.body, "kind") {
				t.Errorf("%s: %v, upstream %v", x.body, err, decoded)
			}
			continue
		}
		wantErr := invalidOptions("DeleteOptions", metav1validation.ValidateDeleteOptions(&want))
		if decoded != nil || !reflect.DeepEqual(got, &want) || !reflect.DeepEqual(err, wantErr) {
			t.Errorf("%s: %+v %v, upstream %+v %v %v", x.body, got, err, want, wantErr, decoded)
		}
	}
}

// TestOptions: what upstream does not have, or reads elsewhere.
func TestOptions(t *testing.T) {
	for _, x := range []struct{ verb, query, want string }{
		// A parameter twice says the same twice, or nothing.
		{"list", "limit=5&limit=5&continue=c", "5 c"},
		{"list", "x=1&limit=5&y=2&limit=%35&x=2&continue=c", "5 c"},
		{"list", "limit=5&limit=6", `query parameter "limit" is given more than once with different values`},
		{"list", "limit=5&x=1&limit=6&limit=5", `query parameter "limit" is given more than once with different values`},
		{"list", "continue=c&continue", `query parameter "continue" is given more than once with different values`},
		{"create", "limit=5&limit=6", "0 "},
		// What belongs to nobody may be anything, but must have a name.
		{"list", "x=%zz&limit=5", "5 "},
		{"list", "%zz=1", `invalid query: invalid URL escape "%zz"`},
		{"list", "continue=%zz", `invalid query parameter "continue": invalid URL escape "%zz"`},
		{"list", "limit=x", `strconv.ParseInt: parsing "x": invalid syntax`},
		{"get", "limit=x", "0 "},

		{"get", "export", "the export parameter, deprecated since v1.14, is no longer supported"},
		{"get", "export=false", "0 "},
		{"list", "export=1", "0 "},
		{"list", "timeout=x", `invalid timeout specified in the request URL - time: invalid duration "x"`},
		{"list", "timeout=2s&maxStaleness=1s", "0  2s 1s"},
		{"list", "timeout=-2s", "0 "},
		{"list", "timeout=", "0 "},
		{"watch", "timeout=x&maxStaleness=1s", "0  0s 1s"},
	} {
		var q Options
		err := q.Parse(x.query, x.verb)
		got := fmt.Sprintf("%d %s", q.Limit, q.Continue)
		if q.Timeout != 0 || q.MaxStaleness != "" {
			got += fmt.Sprintf(" %v %s", q.Timeout, q.MaxStaleness)
		}
		if err != nil {
			got = err.Error()
		}
		if got != x.want || err != nil && !apierrors.IsBadRequest(err) {
			t.Errorf("%s?%s: %q, want %q", x.verb, x.query, got, x.want)
		}
	}
}
