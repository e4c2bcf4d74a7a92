package quotas

import (
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/quorate/quorate/test/harness/cluster"
)

// TestWebhookBesideQuota: many create Pods that say nothing of CPU and memory, so that quotas decide
// whether they must, and the status of their namespace's quota changes by each of them. A slow webhook
// is asked once about each Pod: a status is no rule.
func TestWebhookBesideQuota(t *testing.T) {
	const pods, slow = 400, 100 * time.Millisecond
	var asked atomic.Int64
	var uids sync.Map // of reviews: a decision that is made again has another one
	var twice atomic.Int64
	hook := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var review struct{ Request struct{ UID string } }
		if err := json.NewDecoder(r.Body).Decode(&review); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		asked.Add(1)
		if _, came := uids.LoadOrStore(review.Request.UID, true); came {
			twice.Add(1)
		}
		select {
		case <-r.Context().Done():
		case <-time.After(slow):
		}
		w.Header().Set("Content-Type", plain)
		fmt.Fprintf(w, `{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","response":{"uid":%q,"allowed":true}}`, review.Request.UID)
	}))
	t.Cleanup(hook.Close)
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: hook.Certificate().Raw})
	c := cluster.Start(t, 3)
	e := newEdge(t, c, `{"metadata":{"name":"edge"},"spec":{"hard":{"pods":"100000"}}}`)
	cluster.Await(t, 20*time.Second, "Pods have an account", func() string {
		if code, answer := e.do(0, http.MethodGet, in+"/serviceaccounts/default", "", ""); code != http.StatusOK {
			return answer
		}
		return ""
	})
	c.Nodes()[0].Must(t, http.StatusCreated, "POST", "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations", plain, fmt.Sprintf(`{"metadata":{"name":"slow"},"webhooks":[{
		"name":"slow.quorate.test","clientConfig":{"url":%q,"caBundle":%q},"rules":[{"operations":["CREATE"],"apiGroups":[""],"apiVersions":["v1"],"resources":["pods"]}],
		"sideEffects":"None","admissionReviewVersions":["v1"]}]}`, hook.URL, base64.StdEncoding.EncodeToString(ca)))
	// What a node has decided while it learnt of the webhook is decided again.
	for _, n := range c.Nodes() {
		n.Must(t, http.StatusOK, "GET", "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/slow", "", "")
	}
	var left atomic.Int64
	left.Store(pods)
	var wg sync.WaitGroup
	for w := range writers {
		wg.Go(func() {
			for n := left.Add(-1); n >= 0; n = left.Add(-1) {
				body := fmt.Sprintf(`{"metadata":{"name":"p%d"},"spec":{"containers":[{"name":"c","image":"i"}]}}`, n)
				if code, answer := e.do(w%len(e.nodes), http.MethodPost, in+"/pods", plain, body); code != http.StatusCreated {
					t.Errorf("create a Pod: %d %.300s", code, answer)
				}
			}
		})
	}
	wg.Wait()
	if n := asked.Load(); n != pods {
		t.Errorf("a webhook was asked %d times about %d Pods; %d reviews were sent twice, the others are of decisions that were made again", n, pods, twice.Load())
	}
}
