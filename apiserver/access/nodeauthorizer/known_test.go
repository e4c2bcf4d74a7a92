package nodeauthorizer

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"reflect"
	"testing"
	"testing/synctest"
	"time"
	"unsafe"

	"github.com/quorate/quorate/apiserver/types/kinds"
	"github.com/quorate/quorate/internal/must"
	"github.com/quorate/quorate/proto"
	"github.com/quorate/quorate/raftstore/memstore"
	"github.com/quorate/quorate/raftstore/view"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

// TestKnownIsForgotten: a node is known for at least keptFor after each question about it, and for
// less than twice that.
func TestKnownIsForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var k known
		if keptFor != 10*time.Minute {
			t.Errorf("kept for %v", keptFor)
		}
		asked, busy := k.of("asked"), k.of("busy")
		for _, x := range []struct {
			after time.Duration
			same  bool // is the node that nobody asked about since still known
		}{{0, true}, {keptFor - 1, true}, {keptFor, true}, {2*keptFor - 1, true}, {2 * keptFor, false}, {3 * keptFor, false}} {
			k := known{young: map[string]*ofNode{"asked": asked, "busy": busy}, since: time.Now()}
			for passed := time.Duration(0); passed < x.after; { // others ask all the time
				step := min(keptFor/2, x.after-passed)
				time.Sleep(step)
				passed += step
				if k.of("busy") != busy {
					t.Errorf("after %v the node that is asked about was forgotten", passed)
				}
			}
			if same := k.of("asked") == asked; same != x.same {
				t.Errorf("after %v: known %v, want %v", x.after, same, x.same)
			}
		}
	})
}

// TestPeek: a node that nobody has looked at yet is known by name only.
func TestPeek(t *testing.T) {
	var k known
	if got := k.peek("a"); got != nil {
		t.Errorf("%v", got)
	}
	x := k.of("a")
	if got := k.peek("a"); got != nil {
		t.Errorf("%v", got)
	}
	x.pods.Store(&[]named{{key: "x/p"}})
	if got := k.peek("a"); len(got) != 1 {
		t.Errorf("%v", got)
	}
}

// TestUnchangedPodsAreNotReadAgain: what a Pod names is decoded once per version of it, wherever it
// stands among the others.
func TestUnchangedPodsAreNotReadAgain(t *testing.T) {
	store := memstore.New()
	t.Cleanup(func() { _ = store.Close() })
	z := New(Config{Store: store, Pods: view.NewFieldIndex(store, "pods", nodeNameField), Log: slog.New(slog.DiscardHandler)})
	n := 0
	put := func(name, secret string) {
		t.Helper()
		raw, err := json.Marshal(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "x", Name: name}, Spec: corev1.PodSpec{
			NodeName: "a", Volumes: []corev1.Volume{{VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: secret}}}}}})
		must.OK(t, err)
		n++
		if _, err := store.Propose(t.Context(), &proto.Write{
			Table: kinds.BuiltinTable(pods), Key: "x/" + name, Op: proto.Op_OP_PUT, Value: raw, Uid: name, RequestId: fmt.Appendf(nil, "%0*d", proto.RequestIDSize, n),
			Fields: []*proto.Attribute{{Name: nodeNameField, Value: "a"}},
		}); err != nil {
			t.Fatal(err)
		}
	}
	known := func() map[string]*byte {
		all := map[string]*byte{}
		for _, p := range z.podsOf("a") {
			all[p.key] = unsafe.StringData(string(p.names))
		}
		return all
	}
	for i := range 9 {
		put(fmt.Sprintf("p%d", 2*i), "s")
	}
	before := known()
	// One changes, one comes in front, one in the middle and one behind.
	for _, name := range []string{"p4", "a", "p7", "z"} {
		put(name, "other")
	}
	after := known()
	if len(before) != 9 || len(after) != 12 {
		t.Fatalf("%d Pods, then %d", len(before), len(after))
	}
	for key, names := range before {
		if again := after[key] != names; again != (key == "x/p4") {
			t.Errorf("%s: read again: %v", key, again)
		}
	}
}

// TestResourceClaims: a claim that is yet to be made, and one that is not needed, have no name.
func TestResourceClaims(t *testing.T) {
	template, direct, made := ptr.To("template"), ptr.To("direct"), ptr.To("made")
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "x", Name: "p"}}
	p.Spec.ResourceClaims = []corev1.PodResourceClaim{
		{Name: "a", ResourceClaimName: direct}, {Name: "b", ResourceClaimTemplateName: template},
		{Name: "c", ResourceClaimTemplateName: template}, {Name: "d", ResourceClaimTemplateName: template},
	}
	p.Status.ResourceClaimStatuses = []corev1.PodResourceClaimStatus{{Name: "b", ResourceClaimName: made}, {Name: "c"}}
	var got []string
	referencesOf(p).each(resourceClaim, func(name string) bool { got = append(got, name); return true })
	if want := []string{*direct, *made}; !reflect.DeepEqual(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

func TestPodInNamespace(t *testing.T) {
	p := named{key: "ab/c"}
	for namespace, want := range map[string]bool{"ab": true, "a": false, "b": false, "": false, "ab/": false, "xy": false, "abc": false, "abcd": false, "abcde": false} {
		if got := p.in(namespace); got != want {
			t.Errorf("%q: %v, want %v", namespace, got, want)
		}
	}
}

// TestReferencesAreShort: they are kept of all Pods, so no name stands there twice, and none is empty.
func TestReferencesAreShort(t *testing.T) {
	var p corev1.Pod
	if got := referencesOf(&p); got != "" {
		t.Errorf("a Pod that names nothing: %q", got)
	}
	for range 2 {
		p.Spec.ImagePullSecrets = append(p.Spec.ImagePullSecrets, corev1.LocalObjectReference{Name: "s"})
	}
	if got, want := referencesOf(&p), references(needle(secret, "s")); got != want {
		t.Errorf("%q, want %q", got, want)
	}
}
