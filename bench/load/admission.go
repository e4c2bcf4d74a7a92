package load

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"time"

	"github.com/quorate/quorate/bench/client"
)

// Creates that rules of the cluster decide on. Each kind of rule has a namespace of its own
// and looks at nothing else, so that the rows before and after cost no more.

const (
	rulesPath = "/apis/admissionregistration.k8s.io/v1/"
	policies  = 10
	webhooks  = 3
)

// ruled is the namespace of one kind of rule.
func (b *bench) ruled(rule string) string { return b.namespace + "-" + rule }

// createRuled creates as many objects as create does, in the namespace of a rule.
func createRuled(rule string) func(context.Context, *bench, *tally) error {
	return func(ctx context.Context, b *bench, t *tally) error {
		path := b.collectionOf(b.ruled(rule))
		bodies := make([][]byte, b.Objects)
		for i := range bodies {
			bodies[i] = object(b.ruled(rule), i, b.round, "")
		}
		bufs := make([]bytes.Buffer, b.Workers)
		each(ctx, b.Workers, b.Objects, t, func(ctx context.Context, w, i int) error {
			_, err := b.conn(w).Do(ctx, client.Request{Method: http.MethodPost, Path: path, Header: client.JSONBody, Body: bodies[i]}, &bufs[w])
			return err
		})
		return nil
	}
}

// post creates an object, which may be there from a run before.
func (b *bench) post(ctx context.Context, path, body string, args ...any) error {
	var buf bytes.Buffer
	_, err := b.conn(0).Do(ctx, client.Request{Method: http.MethodPost, Path: path, Header: client.JSONBody, Body: fmt.Appendf(nil, body, args...)}, &buf)
	if client.Refused(err, http.StatusConflict) {
		return nil
	}
	return err
}

// inForce waits until a dry run in the namespace of a rule is as it is with the rule.
func (b *bench) inForce(ctx context.Context, rule, name string, ok func(err error) bool) error {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	var buf bytes.Buffer
	body := []byte(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"` + name + `"}}`)
	r := client.Request{Method: http.MethodPost, Path: "/api/v1/namespaces/" + b.ruled(rule) + "/configmaps", Query: "dryRun=All", Header: client.JSONBody, Body: body}
	for w := range b.conns { // each may lead to another server
		for {
			_, err := b.conn(w).Do(ctx, r, &buf)
			if ok(err) {
				break
			}
			select {
			case <-ctx.Done():
				return fmt.Errorf("the rule of %s does not come in force: %w", rule, err)
			case <-time.After(50 * time.Millisecond):
			}
		}
	}
	return nil
}

func (b *bench) namespaceFor(ctx context.Context, rule string) error {
	_, err := b.makeNamespace(ctx, b.ruled(rule))
	return err
}

// postRule makes a rule, which is not in a namespace, and remembers to delete it.
func (b *bench) postRule(ctx context.Context, kind, name, spec string, args ...any) error {
	b.leave(rulesPath + kind + "/" + name)
	return b.post(ctx, rulesPath+kind, `{"metadata":{"name":%q},%s}`, name, fmt.Sprintf(spec, args...))
}

// selects is what a rule matches: ConfigMaps that are created in its namespace.
func (b *bench) selects(rule string) (namespaceSelector, rules string) {
	return fmt.Sprintf(`{"matchLabels":{"kubernetes.io/metadata.name":%q}}`, b.ruled(rule)), `[{"apiGroups":[""],"apiVersions":["v1"],"operations":["CREATE"],"resources":["configmaps"]}]`
}

// preparePolicies makes policies of two expressions each, all of which are evaluated.
func preparePolicies(ctx context.Context, b *bench) error {
	const rule = "policies"
	if err := b.namespaceFor(ctx, rule); err != nil {
		return err
	}
	namespaces, rules := b.selects(rule)
	for i := range policies {
		id := fmt.Sprintf("%s-%d", b.ruled(rule), i)
		if err := errors.Join(
			b.postRule(ctx, "validatingadmissionpolicies", id, `"spec":{"matchConstraints":{"namespaceSelector":%s,"resourceRules":%s},"validations":[`+
				`{"expression":"!object.metadata.name.startsWith('refused')"},{"expression":"!has(object.data) || object.data.all(k, size(object.data[k]) < %d)"}]}`, namespaces, rules, 100_000+i),
			b.postRule(ctx, "validatingadmissionpolicybindings", id, `"spec":{"policyName":%q,"validationActions":["Deny"]}`, id),
		); err != nil {
			return err
		}
	}
	return b.inForce(ctx, rule, "refused", func(err error) bool { return client.Refused(err, http.StatusUnprocessableEntity) })
}

// prepareWebhooks makes one mutating webhook that changes nothing and validating ones, all
// served by this process. Its CPU is not counted.
func prepareWebhooks(ctx context.Context, b *bench) error {
	const rule = "webhooks"
	if err := b.namespaceFor(ctx, rule); err != nil {
		return err
	}
	var asked atomic.Int64
	hook := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var review struct{ Request struct{ UID string } }
		if err := json.NewDecoder(r.Body).Decode(&review); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		asked.Add(1)
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","response":{"uid":%q,"allowed":true}}`, review.Request.UID)
	}))
	hook.EnableHTTP2 = true
	hook.TLS = &tls.Config{MinVersion: tls.VersionTLS12}
	hook.StartTLS()
	b.atEnd = append(b.atEnd, hook.Close)
	ca := base64.StdEncoding.EncodeToString(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: hook.Certificate().Raw}))
	namespaces, rules := b.selects(rule)
	for i := range webhooks {
		kind := "validatingwebhookconfigurations"
		if i == 0 {
			kind = "mutatingwebhookconfigurations"
		}
		name := fmt.Sprintf("%s-%d", b.ruled(rule), i)
		if err := b.postRule(ctx, kind, name, `"webhooks":[{"name":"%s.example.com","clientConfig":{"url":%q,"caBundle":%q},"rules":%s,"namespaceSelector":%s,"sideEffects":"None","admissionReviewVersions":["v1"]}]`,
			name, hook.URL, ca, rules, namespaces); err != nil {
			return err
		}
	}
	return b.inForce(ctx, rule, "asked", func(err error) bool { return err == nil && asked.Swap(0) >= webhooks })
}

// prepareQuota makes a quota that all objects fit in. Its status is what a controller would
// have written: kube-apiserver enforces what is there, and the peer has no controllers.
func prepareQuota(ctx context.Context, b *bench) error {
	const rule = "quota"
	if err := b.namespaceFor(ctx, rule); err != nil {
		return err
	}
	path := "/api/v1/namespaces/" + b.ruled(rule) + "/resourcequotas"
	const hard = `"hard":{"count/configmaps":"1000000"}`
	if err := b.post(ctx, path, `{"metadata":{"name":"q"},"spec":{`+hard+`}}`); err != nil {
		return err
	}
	var buf bytes.Buffer
	status := client.Request{Method: http.MethodPatch, Path: path + "/q/status", Header: client.MergeBody, Body: []byte(`{"status":{` + hard + `,"used":{"count/configmaps":"0"}}}`)}
	_, err := b.conn(0).Do(ctx, status, &buf)
	return err
}
