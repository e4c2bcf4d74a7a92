package conformance

import (
	"crypto/tls"
	"fmt"
	"net/http"
	"net/url"
	"path/filepath"
	"testing"

	"github.com/quorate/quorate/internal/must"
	"github.com/quorate/quorate/test/harness/cluster"
	"github.com/quorate/quorate/test/harness/story"
)

// conformanceStories reads the stories of testdata, by their names.
func conformanceStories(t *testing.T) map[string]*story.Story {
	t.Helper()
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no stories: %v", err)
	}
	all := map[string]*story.Story{}
	for _, f := range files {
		if filepath.Base(f) == statementsFile {
			continue
		}
		stories, err := (story.Language{}).Stories(f)
		must.OK(t, err)
		for _, s := range stories {
			if all[s.Name] != nil {
				t.Errorf("%s: there are two stories %s", f, s.Name)
			}
			all[s.Name] = s
		}
	}
	return all
}

// TestConformance tells stories to a cluster: what the pages about the Kubernetes
// API promise, as docs/conformance.md lists it. Each request goes to another node
// than the one before, and each story has a namespace of its own, in which there is
// the ConfigMap kube-root-ca.crt.
func TestConformance(t *testing.T) {
	c := cluster.Start(t, 3)
	anonymous := &http.Client{Timeout: cluster.CommandWithin, Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}
	defer anonymous.CloseIdleConnections()
	webhook, ca := startWebhooks(t)
	for name, s := range conformanceStories(t) {
		t.Run(name, func(t *testing.T) {
			r := &cluster.Round{Cluster: c}
			send := func(req *http.Request) (*http.Response, error) {
				n := r.Node()
				u, err := url.Parse(n.API)
				if err != nil {
					return nil, err
				}
				req.URL.Scheme, req.URL.Host = u.Scheme, u.Host
				if req.Header.Get("Client") != "" {
					req.Header.Del("Client")
					return anonymous.Do(req)
				}
				return n.HTTP(t).Do(req)
			}
			ns := "story-" + name
			if len(ns) > 63 {
				t.Fatalf("%s is too long for a namespace", ns)
			}
			const namespaces = "/api/v1/namespaces"
			if code, answer := c.Nodes()[0].Send(t, http.MethodPost, namespaces, fmt.Sprintf(`{"metadata":{"name":%q}}`, ns)); code != http.StatusCreated {
				t.Fatalf("create the namespace: %d %s", code, answer)
			}
			defer c.Nodes()[0].Send(t, http.MethodDelete, namespaces+"/"+ns, "")
			cluster.Await(t, story.Patience, "the ConfigMap of every namespace", func() string {
				code, answer := c.Nodes()[0].Send(t, http.MethodGet, namespaces+"/"+ns+"/configmaps/kube-root-ca.crt", "")
				if code != http.StatusOK {
					return string(answer)
				}
				return ""
			})
			err := s.Run(t.Context(), send, map[string]string{
				"ns": ns, "name": name, "webhook": webhook, "ca": ca,
				"here": fmt.Sprintf(`"sideEffects":"None","admissionReviewVersions":["v1","v1beta1"],"namespaceSelector":{"matchLabels":{"kubernetes.io/metadata.name":%q}}`, ns),
			})
			switch {
			case s.NotYet != "" && err == nil:
				t.Errorf("%s: it holds today: take the line @not-yet away, and correct docs/conformance.md", name)
			case s.NotYet != "":
				t.Logf("not yet: %s: %v", s.NotYet, err)
			case err != nil:
				t.Errorf("%s: %v", s.Title, err)
			}
		})
	}
}
