package noderestriction_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/quorate/quorate/apiserver/access/auth"
	"github.com/quorate/quorate/apiserver/admission"
	"github.com/quorate/quorate/apiserver/admission/noderestriction"
	"github.com/quorate/quorate/apiserver/types/state"
	"github.com/quorate/quorate/internal/must"
	"github.com/quorate/quorate/proto"
	"github.com/quorate/quorate/raftstore/memstore"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

var kubelet = &auth.User{Name: "system:node:a", Groups: []string{auth.Nodes}}

// may allows tokens for one audience.
type may string

func (m may) Authorize(_ context.Context, a auth.Attributes) (auth.Decision, string, error) {
	if a.User != kubelet || a.Verb != "request-serviceaccounts-token-audience" || a.Namespace != "ns" || a.Name != "account" || a.Resource != string(m) || a.APIGroup != "" || !a.ResourceRequest {
		return auth.NoOpinion, "", nil
	}
	return auth.Allow, "", nil
}

var writes atomic.Int64

func put(t *testing.T, store *memstore.Store, table, key, node, value string) {
	t.Helper()
	w := &proto.Write{Table: table, Key: key, Op: proto.Op_OP_PUT, Uid: "uid-" + key, Value: []byte(value), RequestId: fmt.Appendf(nil, "%0*d", proto.RequestIDSize, writes.Add(1))}
	if node != "" {
		w.Fields = []*proto.Attribute{{Name: "spec.nodeName", Value: node}}
	}
	if _, err := store.Propose(t.Context(), w); err != nil {
		t.Fatal(err)
	}
}

// TestAudiences: for whom kubelets get tokens of their Pods. The rest of what the plugin decides is
// held against kube-apiserver by test/system/golden/testdata/noderestriction.txt.
func TestAudiences(t *testing.T) {
	store := memstore.New()
	t.Cleanup(func() { _ = store.Close() })
	pod := func(volume string) string {
		return `{"metadata":{"name":"pod","namespace":"ns"},"spec":{"nodeName":"a","volumes":[` + volume + `]}}`
	}
	put(t, store, "persistentvolumeclaims", "ns/claim", "", `{"spec":{"volumeName":"csi"}}`)
	put(t, store, "persistentvolumeclaims", "ns/migrated", "", `{"spec":{"volumeName":"gce"}}`)
	put(t, store, "persistentvolumeclaims", "ns/pod-eph", "", `{"spec":{"volumeName":"csi"}}`)
	put(t, store, "persistentvolumeclaims", "ns/unbound", "", `{"spec":{}}`)
	put(t, store, "persistentvolumes", "csi", "", `{"spec":{"csi":{"driver":"driver","volumeHandle":"h"}}}`)
	put(t, store, "persistentvolumes", "gce", "", `{"spec":{"gcePersistentDisk":{"pdName":"d"}}}`)
	put(t, store, "csidrivers.storage.k8s.io", "driver", "", `{"spec":{"tokenRequests":[{"audience":"vault"}]}}`)
	put(t, store, "csidrivers.storage.k8s.io", "pd.csi.storage.gke.io", "", `{"spec":{"tokenRequests":[{"audience":"gce"}]}}`)
	p := noderestriction.New(state.New(store), may("granted"))
	for i, c := range []struct{ volume, audiences, want string }{
		{`{"projected":{"sources":[{"serviceAccountToken":{"audience":"bank","path":"t"}}]}}`, `["bank"]`, ""},
		{`{"projected":{"sources":[{"serviceAccountToken":{"path":"t"}}]}}`, `[]`, ""},
		{`{"projected":{"sources":[{"serviceAccountToken":{"audience":"bank","path":"t"}}]}}`, `["shop"]`, `audience "shop" not found in pod spec volume, system:node:a is not authorized to request tokens for this audience`},
		{`{"projected":{"sources":[{"serviceAccountToken":{"audience":"bank","path":"t"}}]}}`, `[]`, `audience "" not found in pod spec volume`},
		{`{"projected":{"sources":[{"serviceAccountToken":{"audience":"bank","path":"t"}}]}}`, `["bank","shop"]`, `node may only request 0 or 1 audiences`},
		{`{"emptyDir":{}}`, `["granted"]`, ""},
		{`{"persistentVolumeClaim":{"claimName":"claim"}}`, `["vault"]`, ""},
		{`{"persistentVolumeClaim":{"claimName":"claim"}}`, `["bank"]`, `audience "bank" not found`},
		{`{"persistentVolumeClaim":{"claimName":"migrated"}}`, `["gce"]`, ""},
		{`{"gcePersistentDisk":{"pdName":"d"}}`, `["gce"]`, ""},
		{`{"name":"eph","ephemeral":{"volumeClaimTemplate":{"spec":{}}}}`, `["vault"]`, ""},
		{`{"csi":{"driver":"driver"}}`, `["vault"]`, ""},
		{`{"csi":{"driver":"other"}}`, `["vault"]`, `error validating audience "vault": csidriver.storage.k8s.io "other" not found`},
		{`{"persistentVolumeClaim":{"claimName":"missing"}}`, `["vault"]`, `error validating audience "vault": persistentvolumeclaim "missing" not found`},
		{`{"persistentVolumeClaim":{"claimName":"unbound"}}`, `["vault"]`, `error validating audience "vault": persistentvolume "" not found`},
		{`{"persistentVolumeClaim":{"claimName":"missing"}},{"csi":{"driver":"driver"}}`, `["vault"]`, ""},
	} {
		put(t, store, "pods", fmt.Sprint("ns/pod", i), "a", pod(c.volume))
		var review map[string]any
		must.OK(t, json.Unmarshal(fmt.Appendf(nil, `{"spec":{"audiences":%s,"boundObjectRef":{"apiVersion":"v1","kind":"Pod","name":"pod%d","uid":"uid-ns/pod%d"}}}`, c.audiences, i, i), &review))
		a := &admission.Attributes{Operation: admission.Create, Resource: schema.GroupVersionResource{Version: "v1", Resource: "serviceaccounts"}, Subresource: "token", Namespace: "ns", Name: "account", User: kubelet, Object: review}
		if !p.Handles(a) {
			t.Fatal("the plugin is not asked")
		}
		err := p.Admit(t.Context(), a)
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s for %s: %v", c.volume, c.audiences, err)
		}
		if _, ranges := a.Decided(); len(ranges) == 0 || ranges[0] != (admission.Range{Table: "pods", Prefix: fmt.Sprint("ns/pod", i), UID: fmt.Sprint("uid-ns/pod", i)}) {
			t.Errorf("%s: it follows from %v", c.volume, ranges)
		}
	}
}

// TestOthers: nobody else is asked about, and no stream.
func TestOthers(t *testing.T) {
	p := noderestriction.New(nil, nil)
	for _, x := range []struct {
		user      *auth.User
		operation admission.Operation
		want      bool
	}{
		{kubelet, admission.Create, true}, {kubelet, admission.Update, true}, {kubelet, admission.Delete, true}, {kubelet, admission.Connect, false},
		{&auth.User{Name: "system:node:a"}, admission.Create, false}, {&auth.User{Name: "alice", Groups: []string{auth.Nodes}}, admission.Create, false}, {nil, admission.Create, false},
	} {
		if p.Handles(&admission.Attributes{User: x.user, Operation: x.operation}) != x.want {
			t.Errorf("%v %s", x.user, x.operation)
		}
	}
	a := &admission.Attributes{User: &auth.User{Name: "system:node:", Groups: []string{auth.Nodes}}, Operation: admission.Create}
	if err := p.Admit(t.Context(), a); err == nil || !strings.Contains(err.Error(), `could not determine node from user "system:node:"`) {
		t.Error(err)
	}
}
