package controllers

import (
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/quorate/quorate/internal/must"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	bootstrapapi "k8s.io/cluster-bootstrap/token/api"
)

// TestDetachedSignature is upstream's own example: kubeadm compares signatures as strings.
func TestDetachedSignature(t *testing.T) {
	got, err := detachedSignature("Hello from the other side. I must have called a thousand times.", "joshua", "my voice is my passcode")
	if want := "eyJhbGciOiJIUzI1NiIsImtpZCI6Impvc2h1YSJ9..VShe2taLd-YTrmWuRkcL_8QTNDHYxQIEBsAYYiIj1_8"; got != want || err != nil {
		t.Errorf("%s, %v, want %s", got, err, want)
	}
}

// token makes the Secret of a bootstrap token.
func (e *env) token(name, id, secret string, more ...string) {
	e.t.Helper()
	s := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: name}, Type: bootstrapapi.SecretTypeBootstrapToken, Data: map[string][]byte{
		"token-id": []byte(id), "token-secret": []byte(secret), "usage-bootstrap-signing": []byte("true"),
	}}
	for i := 0; i < len(more); i += 2 {
		s.Data[more[i]] = []byte(more[i+1])
	}
	must.OK(e.t, e.client.Create(e.t.Context(), secretsGVR, "kube-system", s))
}

// signatures are those in cluster-info, by the ids of their tokens.
func (e *env) signatures() (ids []string, data map[string]string) {
	e.t.Helper()
	var m corev1.ConfigMap
	must.OK(e.t, e.client.Get(e.t.Context(), mapsGVR, "kube-public", "cluster-info", &m))
	for _, key := range slices.Sorted(maps.Keys(m.Data)) {
		if id, ok := strings.CutPrefix(key, bootstrapapi.JWSSignatureKeyPrefix); ok {
			ids = append(ids, id)
		}
	}
	return ids, m.Data
}

// TestClusterInfo: cluster-info is signed for each token that is for signing, and for no other, as it
// comes, changes and goes; what people have written into it is signed as it is and otherwise left alone.
func TestClusterInfo(t *testing.T) {
	e := newEnv(t, Config{Controllers: []Name{BootstrapSignerController}})
	info := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-public", Name: "cluster-info"}, Data: map[string]string{
		"kubeconfig": "first", "note": "of somebody's", "jws-kubeconfig-gone00": "of a token that is gone",
	}}
	must.OK(t, e.client.Create(t.Context(), mapsGVR, "kube-public", info))
	e.token("bootstrap-token-aaaaaa", "aaaaaa", "0123456789abcdef")
	e.token("bootstrap-token-bbbbbb", "bbbbbb", "0123456789abcdef", "usage-bootstrap-signing", "false")
	e.token("bootstrap-token-cccccc", "dddddd", "0123456789abcdef") // named for another id
	e.token("bootstrap-token-eeeeee", "eeeeee", "0123456789abcdef", "expiration", "2020-01-01T00:00:00Z")
	e.token("bootstrap-token-ffffff", "ffffff", "0123456789abcdef", "expiration", "soon")
	e.token("other", "aaaaab", "0123456789abcdef")
	e.token("bootstrap-token-gggggg", "gggggg", "")
	e.token("bootstrap-token-zzzzzz", "zzzzzz", "zzzzzzzzzzzzzzzz", "expiration", time.Now().Add(time.Hour).Format(time.RFC3339))
	e.run()
	signed := func(text string, ids ...string) {
		t.Helper()
		e.await("cluster-info", func() string {
			got, data := e.signatures()
			if !slices.Equal(got, ids) {
				return strings.Join(got, " ")
			}
			if data["kubeconfig"] != text || data["note"] != "of somebody's" {
				return "its text has changed"
			}
			want, _ := detachedSignature(text, "zzzzzz", "zzzzzzzzzzzzzzzz")
			if data["jws-kubeconfig-zzzzzz"] != want {
				return "the signature is of another text"
			}
			return ""
		})
	}
	signed("first", "aaaaaa", "zzzzzz")
	var s corev1.Secret
	must.OK(t, e.client.Get(t.Context(), secretsGVR, "kube-system", "bootstrap-token-aaaaaa", &s))
	must.OK(t, e.client.Delete(t.Context(), secretsGVR, "kube-system", s.Name, s.UID))
	signed("first", "zzzzzz")
	for {
		var m corev1.ConfigMap
		must.OK(t, e.client.Get(t.Context(), mapsGVR, "kube-public", "cluster-info", &m))
		m.Data["kubeconfig"] = "edited"
		err := e.client.Update(t.Context(), mapsGVR, "kube-public", "cluster-info", &m)
		if err == nil {
			break
		}
		if !apierrors.IsConflict(err) {
			t.Fatal(err)
		}
	}
	signed("edited", "zzzzzz")
}

// TestCleanTokens: tokens go when they have expired, or say no date that can be read; others stay.
func TestCleanTokens(t *testing.T) {
	e := newEnv(t, Config{Controllers: []Name{TokenCleanerController}})
	later := time.Now().Add(time.Hour).Format(time.RFC3339)
	e.token("bootstrap-token-aaaaaa", "aaaaaa", "0123456789abcdef", "expiration", "2020-01-01T00:00:00Z")
	e.token("bootstrap-token-bbbbbb", "bbbbbb", "0123456789abcdef", "expiration", later)
	e.token("bootstrap-token-cccccc", "cccccc", "0123456789abcdef")
	e.token("strange", "?", "", "expiration", "yesterday")
	other := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "bootstrap-token-dddddd", UID: types.UID("")}, Data: map[string][]byte{"expiration": []byte("2020-01-01T00:00:00Z")}}
	must.OK(t, e.client.Create(t.Context(), secretsGVR, "kube-system", other))
	e.run()
	e.await("tokens", func() string {
		got := strings.Join(e.keys("secrets"), " ")
		if got != "kube-system/bootstrap-token-bbbbbb kube-system/bootstrap-token-cccccc kube-system/bootstrap-token-dddddd" {
			return got
		}
		return ""
	})
}
