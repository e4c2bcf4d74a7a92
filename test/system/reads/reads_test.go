package reads

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/quorate/quorate/test/harness/cluster"
)

func configMap(name string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}}
}

// listed is a list as far as tests of reads look at it.
type listed struct {
	Kind     string
	Metadata struct {
		ResourceVersion, Continue string
		RemainingItemCount        *int64
	}
	Items []struct {
		Metadata struct{ Namespace, Name, ResourceVersion string }
	}
}

func (l *listed) revision(t testing.TB) uint64 {
	return cluster.Revision(t, l.Metadata.ResourceVersion)
}

// names returns the items as name@resourceVersion.
func (l *listed) names() []string {
	out := []string{}
	for _, i := range l.Items {
		out = append(out, i.Metadata.Name+"@"+i.Metadata.ResourceVersion)
	}
	return out
}

// getList reads a list that must be there.
func getList(t testing.TB, n *cluster.Node, path string) *listed {
	t.Helper()
	l := &listed{}
	if err := json.Unmarshal(n.MustGet(t, path), l); err != nil {
		t.Fatalf("%s: GET %s: %v", n.Name, path, err)
	}
	return l
}

// refusal is a Status that refuses, with the header that goes with it.
type refusal struct {
	metav1.Status
	http       int
	retryAfter string
}

// parseRefusal checks the shape that every refusal has.
func parseRefusal(resp *http.Response, body []byte) (refusal, error) {
	r := refusal{http: resp.StatusCode, retryAfter: resp.Header.Get("Retry-After")}
	if err := json.Unmarshal(body, &r.Status); err != nil {
		return r, fmt.Errorf("%s: %w: %s", resp.Status, err, body)
	}
	return r, r.check()
}

// lacksQuorum reports whether the Status says that a quorum is missing: then the header has a time, for which
// client-go does not try again by itself.
func (r refusal) lacksQuorum() bool {
	return r.Details != nil && slices.ContainsFunc(r.Details.Causes, func(c metav1.StatusCause) bool { return c.Type == "NoQuorum" })
}

func (r refusal) check() error {
	s := &r.Status
	if s.Kind != "Status" || s.APIVersion != "v1" || s.Status != "Failure" || int(s.Code) != r.http || s.Reason == "" {
		return fmt.Errorf("code %d with %+v", r.http, s)
	}
	_, noTime := http.ParseTime(r.retryAfter)
	if s.Details != nil && s.Details.RetryAfterSeconds > 0 && r.retryAfter != fmt.Sprint(s.Details.RetryAfterSeconds) && !(r.lacksQuorum() && noTime == nil) {
		return fmt.Errorf("Retry-After %q with %d in the details", r.retryAfter, s.Details.RetryAfterSeconds)
	}
	return nil
}
