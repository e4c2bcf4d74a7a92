package codec

import (
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"

	"github.com/quorate/quorate/apiserver/types/kinds"
	"github.com/quorate/quorate/internal/must"
	"github.com/quorate/quorate/proto"
	"github.com/quorate/quorate/raftstore/mvcc"
)

var (
	pods       = &kinds.Resource{Version: "v1", Kind: "Pod", Plural: "pods", Namespaced: true}
	configMaps = &kinds.Resource{Version: "v1", Kind: "ConfigMap", Plural: "configmaps", Namespaced: true}
	deploys    = &kinds.Resource{Group: "apps", Version: "v1", Kind: "Deployment", Plural: "deployments", Namespaced: true}
	widgets    = &kinds.Resource{Group: "example.com", Version: "v1", Kind: "Widget", Plural: "widgets", Namespaced: true, Custom: true}
	reviews    = &kinds.Resource{Group: "authorization.k8s.io", Version: "v1", Kind: "SelfSubjectAccessReview",
		Plural: "selfsubjectaccessreviews", Virtual: true}
	events = &kinds.Resource{Group: "events.k8s.io", Version: "v1", Kind: "Event", Plural: "events", Namespaced: true,
		StorageVersion: "v1", Moves: []kinds.Move{
			{From: "note", To: "message"}, {From: "regarding", To: "involvedObject"},
			{From: "reportingController", To: "reportingComponent"}, {From: "deprecatedCount", To: "count"},
			{From: "deprecatedSource", To: "source"}, {From: "deprecatedFirstTimestamp", To: "firstTimestamp"},
			{From: "deprecatedLastTimestamp", To: "lastTimestamp"},
		}}
)

// stored is the version that the state machine would make of a tree.
func stored(t testing.TB, res *kinds.Resource, json string, rev proto.Revision) *mvcc.Version {
	t.Helper()
	tree, _, err := parseJSON(json)
	must.OK(t, err)
	obj := tree.(map[string]any)
	value, offset, err := EncodeFor(res, obj)
	must.OK(t, err)
	meta, _ := obj["metadata"].(map[string]any)
	name, _ := meta["name"].(string)
	namespace, _ := meta["namespace"].(string)
	return (&mvcc.Version{
		Key: res.Key(namespace, name), Revision: rev, CreateRevision: rev, RevisionOffset: offset,
	}).SetValue(withRevision(value, offset, rev))
}

func readFile(t testing.TB, name string) string {
	t.Helper()
	b, err := os.ReadFile("testdata/" + name)
	must.OK(t, err)
	return strings.TrimSpace(string(b))
}

// request makes a GET with header pairs.
func request(target string, headers ...string) *http.Request {
	r := httptest.NewRequest(http.MethodGet, target, nil)
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	return r
}
