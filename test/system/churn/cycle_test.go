package churn

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/quorate/quorate/test/harness/cluster"
)

// Content types of patches.
const (
	merge     = "application/merge-patch+json"
	strategic = "application/strategic-merge-patch+json"
	jsonPatch = "application/json-patch+json"
	apply     = "application/apply-patch+yaml"
)

// What a request has to be answered with, where it is not one code.
const (
	done     = 2 // any code from 200 to 299
	whatever = 0
)

// cycle is one cycle of a kind of churn: what it makes has its name, and is deleted at its end. After the
// first error it sends nothing more.
type cycle struct {
	run  *churn
	ctx  context.Context
	name string // unique in the run; a label of a domain name
	turn int    // of the nodes
	err  error
}

// node is the next node.
func (c *cycle) node() *cluster.Node {
	c.turn++
	nodes := c.run.cluster.Nodes()
	return nodes[c.turn%len(nodes)]
}

func (c *cycle) fail(format string, args ...any) {
	if c.err == nil {
		c.err = fmt.Errorf(format, args...)
	}
}

// send makes a request with a client. Headers are names and values in turn.
func send(ctx context.Context, client *http.Client, method, url, body string, headers ...string) (int, string, error) {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, method, url, strings.NewReader(body))
	if err != nil {
		return 0, "", err
	}
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	for i := 0; i+1 < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	resp, err := client.Do(r)
	if err != nil {
		return 0, "", err
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	return resp.StatusCode, string(answer), err
}

// call makes a request as the administrator at the next node and returns the answer.
func (c *cycle) call(want int, method, path, body string, headers ...string) string {
	n := c.node()
	return c.with(c.run.clients[n.Name], n, want, method, path, body, headers...)
}

// with is call with a client at a node.
func (c *cycle) with(client *http.Client, n *cluster.Node, want int, method, path, body string, headers ...string) string {
	for c.err == nil {
		code, answer, err := send(c.ctx, client, method, n.API+path, body, headers...)
		switch {
		case err != nil:
			c.fail("%s: %s %s: %w", n.Name, method, path, err)
		case code == http.StatusTooManyRequests && want != code:
			c.pause() // a machine that is busy has no seat now
			continue
		case want == done && code/100 != done || want > done && code != want:
			c.fail("%s: %s %s: answered %d, want %d: %.300s", n.Name, method, path, code, want, answer)
		}
		return answer
	}
	return ""
}

func (c *cycle) pause() {
	select {
	case <-c.ctx.Done():
		c.fail("too late: %w", c.ctx.Err())
	case <-time.After(10 * time.Millisecond):
	}
}

// until repeats a request at the next node until what comes is right.
func (c *cycle) until(what string, right func(code int, answer string) bool, method, path, body string, headers ...string) {
	n := c.node()
	for last := ""; c.err == nil; c.pause() {
		code, answer, err := send(c.ctx, c.run.clients[n.Name], method, n.API+path, body, headers...)
		if err != nil {
			c.fail("%s: %s: %s %s: %w; before it: %s", n.Name, what, method, path, err, last)
			return
		}
		if right(code, answer) {
			return
		}
		last = fmt.Sprintf("%d %.300s", code, answer)
	}
}

// gone waits until an object is not there any more.
func (c *cycle) gone(path string) { c.until(path+" is gone", is(http.StatusNotFound), "GET", path, "") }

func is(want int) func(int, string) bool {
	return func(code int, _ string) bool { return code == want }
}

func has(want string) func(int, string) bool {
	return func(code int, answer string) bool { return code/100 == done && strings.Contains(answer, want) }
}

// as are the headers of an impersonated user.
func as(user, group string) []string {
	return []string{"Impersonate-User", user, "Impersonate-Group", group}
}

// kubelet are the headers of the kubelet of a Node, with the content type of a patch.
func kubelet(node string) []string {
	return append(as("system:node:"+node, "system:nodes"), "Content-Type", strategic)
}

func patch(contentType string) []string { return []string{"Content-Type", contentType} }

const (
	coreV1    = "/api/v1/"
	inChurn   = "/api/v1/namespaces/churn/"
	rbacV1    = "/apis/rbac.authorization.k8s.io/v1/"
	rulesV1   = "/apis/admissionregistration.k8s.io/v1/"
	flowV1    = "/apis/flowcontrol.apiserver.k8s.io/v1/"
	apisV1    = "/apis/apiregistration.k8s.io/v1/apiservices"
	csrsV1    = "/apis/certificates.k8s.io/v1/certificatesigningrequests"
	crdsV1    = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
	leasesV1  = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
	eventsV1  = "/apis/events.k8s.io/v1/namespaces/churn/events"
	slicesV1  = "/apis/discovery.k8s.io/v1/namespaces/churn/endpointslices"
	atOnce    = `{"apiVersion":"v1","kind":"DeleteOptions","gracePeriodSeconds":0}`
	aPod      = `{"metadata":{"name":%q},"spec":{"terminationGracePeriodSeconds":30,"containers":[{"name":"c","image":"i"}]}}`
	exactPath = "?limit=3&resourceVersionMatch=Exact&resourceVersion="
)

// sprintf is fmt.Sprintf: most of what cycles send is text.
var sprintf = fmt.Sprintf
