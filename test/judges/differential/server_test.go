package differential

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/quorate/quorate/internal/must"
	"github.com/quorate/quorate/test/harness/cluster"
	"github.com/quorate/quorate/test/harness/kubeapiserver"
)

// server is one that requests are sent to.
type server struct {
	name   string
	url    string
	client *http.Client
}

// both are the two that are compared.
type both struct {
	there, here *server
	reviewers   *reviewers // nil: webhooks are not asked
}

func (b both) all() []*server { return []*server{b.there, b.here} }

// settings are flags of both servers.
var settings = []string{
	"runtime-config=networking.k8s.io/v1beta1=true,storage.k8s.io/v1beta1=true,coordination.k8s.io/v1beta1=true,certificates.k8s.io/v1beta1=true",
	"feature-gates=ClusterTrustBundle=true",
}

// controllers are those of Quorate that kube-apiserver has too: without the others, what is
// stored stays as it is on both.
const controllers = "controllers=*,-garbage-collector-controller,-resourcequota-controller,-root-ca-certificate-publisher-controller," +
	"-validatingadmissionpolicy-status-controller,-namespace-controller,-clusterrole-aggregation-controller"

// startBoth starts both servers for a test.
func startBoth(t *testing.T) both {
	t.Helper()
	programs := os.Getenv("PEERS")
	if programs == "" {
		root, err := cluster.Repository()
		must.OK(t, err)
		programs = filepath.Join(root, "bin")
	}
	k, err := kubeapiserver.Start(t.Context(), programs, cluster.RunDir(), func(string) ([]string, error) { return settings, nil })
	must.OK(t, err)
	t.Cleanup(func() {
		if t.Failed() && os.Getenv("KEEP") != "" {
			t.Log(k.Logs())
		}
		if err := k.Stop(); err != nil {
			t.Error(err)
		}
	})
	return both{there: &server{name: "kube-apiserver", url: k.URL, client: k.Client}, here: startQuorate(t)}
}

func startQuorate(t *testing.T) *server {
	t.Helper()
	n := cluster.Start(t, 1, append([]string{controllers}, settings...)...).Nodes()[0]
	return &server{name: "Quorate", url: n.API, client: n.HTTP(t)}
}

// answer is what a server says to a request.
type answer struct {
	code     int
	warnings []string
	body     []byte
}

// send sends a request as an administrator whose name is the same on both.
func (s *server) send(ctx context.Context, method, path, contentType string, body []byte) (*answer, error) {
	return s.sendAs(ctx, "", method, path, contentType, body)
}

// sendAs sends a request whose id webhooks see, unless it is empty.
func (s *server) sendAs(ctx context.Context, id, method, path, contentType string, body []byte) (*answer, error) {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, s.url+path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	if contentType != "" {
		req.Header.Set("Content-Type", contentType)
	}
	req.Header.Set("User-Agent", "differential") // managedFields name it
	req.Header.Set("Impersonate-User", "admin")
	req.Header.Set("Impersonate-Group", "system:masters")
	if id != "" {
		req.Header.Set("Impersonate-Extra-"+requestOf, id)
	}
	resp, err := s.client.Do(req)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", s.name, err)
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	if err != nil {
		return nil, fmt.Errorf("%s: %s %s: read the answer: %w", s.name, method, path, err)
	}
	return &answer{code: resp.StatusCode, warnings: resp.Header.Values("Warning"), body: raw}, nil
}

// get reads an object, or nil if it is not there.
func (s *server) get(ctx context.Context, path string) (map[string]any, error) {
	a, err := s.send(ctx, http.MethodGet, path, "", nil)
	if err != nil {
		return nil, err
	}
	switch a.code {
	case http.StatusOK:
	case http.StatusNotFound:
		return nil, nil
	default:
		return nil, fmt.Errorf("%s: GET %s: %d %s", s.name, path, a.code, a.body)
	}
	obj, err := decode(a.body)
	if err != nil {
		return nil, fmt.Errorf("%s: GET %s: %w", s.name, path, err)
	}
	return obj, nil
}

// decode reads a JSON object; numbers stay as they are written.
func decode(raw []byte) (map[string]any, error) {
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		return nil, err
	}
	obj, ok := v.(map[string]any)
	if !ok {
		return nil, errors.New("it is no object")
	}
	return obj, nil
}

func encode(v any) []byte {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		panic(err) // everything here was decoded from JSON
	}
	return bytes.TrimSpace(b.Bytes())
}
