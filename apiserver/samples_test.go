package apiserver_test

import (
	"bytes"
	"crypto/tls"
	"encoding/json"
	"errors"
	"flag"
	"io"
	"net/http"
	"os"
	"strings"
	"testing"

	"github.com/quorate/quorate/apiserver"
	"github.com/quorate/quorate/apiserver/objects"
	"github.com/quorate/quorate/apiserver/types/kinds"
	"github.com/quorate/quorate/internal/must"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/yaml"
)

var (
	update = flag.Bool("update", false, "rewrite the golden files in testdata")
	// Golden files say what upstream's server answers. Anyone who has one running can
	// ask it again; ours is then not looked at.
	reference = flag.String("reference", "", "with -update: URL of the server to ask instead of ours, in which Authorization is $REFERENCE_AUTHORIZATION")
)

// judged is the server that golden files are compared with: ours, or the
// reference if they are rewritten from it.
func judged(t *testing.T, change func(*apiserver.Config)) *env {
	if *reference == "" {
		return newEnv(t, change)
	}
	if !*update {
		t.Fatal("-reference needs -update")
	}
	return &env{t: t, url: *reference, client: &http.Client{Transport: withAuthorization{
		&http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}, os.Getenv("REFERENCE_AUTHORIZATION"),
	}}}
}

type withAuthorization struct {
	next  http.RoundTripper
	value string
}

func (a withAuthorization) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", a.value)
	return a.next.RoundTrip(r)
}

// sample is an object of testdata/kinds/samples.yaml.
type sample struct {
	res    *kinds.Resource
	name   string
	object map[string]any // without status
	status any
}

// collection is the path that the sample is created at.
func (s *sample) collection() string {
	p := "/apis/" + s.res.Group + "/" + s.res.Version
	if s.res.Group == "" {
		p = "/api/" + s.res.Version
	}
	if s.res.Namespaced {
		p += "/namespaces/default"
	}
	return p + "/" + s.res.Plural
}

func (s *sample) path() string { return s.collection() + "/" + s.name }

// id names the kind in golden files.
func (s *sample) id() string { return s.res.GroupVersion().String() + " " + s.res.Kind }

// ownWritten reports whether the server alone makes objects of the kind.
func (s *sample) ownWritten() bool { return !s.res.HasVerb("create") }

// samples returns one object of each kind that is stored.
func samples(t testing.TB) []*sample {
	t.Helper()
	registry, err := kinds.Builtin()
	must.OK(t, err)
	f, err := os.Open("testdata/kinds/samples.yaml")
	must.OK(t, err)
	defer f.Close()
	decoder := yaml.NewYAMLToJSONDecoder(f)
	have := map[schema.GroupVersionKind]bool{}
	var all []*sample
	for {
		var object map[string]any
		err := decoder.Decode(&object)
		if errors.Is(err, io.EOF) {
			break
		}
		must.OK(t, err)
		apiVersion, _ := object["apiVersion"].(string)
		kind, _ := object["kind"].(string)
		gvk := schema.FromAPIVersionAndKind(apiVersion, kind)
		s := &sample{res: registry.LookupKind(gvk), object: object, status: object["status"]}
		if s.res == nil {
			t.Fatalf("a sample of %s, which is not served", gvk)
		}
		s.name, _ = object["metadata"].(map[string]any)["name"].(string)
		if s.res.Subresource("status") != nil && !s.ownWritten() {
			delete(object, "status")
		}
		have[gvk] = true
		if s.ownWritten() && *reference != "" { // the reference has no such kind
			continue
		}
		all = append(all, s)
	}
	for _, r := range registry.All() {
		if !r.Virtual && !have[r.GVK()] {
			t.Errorf("testdata/kinds/samples.yaml has no sample of %s", r.GVK())
		}
	}
	return all
}

// populate creates a sample and writes its status.
func (e *env) populate(s *sample) {
	e.t.Helper()
	if s.ownWritten() {
		if err := objects.NewClient(e.api.Objects()).Create(e.t.Context(), s.res.GVR(), "", &unstructured.Unstructured{Object: s.object}); err != nil {
			e.t.Errorf("create %s: %v", s.id(), err)
		}
		return
	}
	body, err := json.Marshal(s.object)
	must.OK(e.t, err)
	// What was refused strictly is a mistake in the samples.
	w, answer := e.do(http.MethodPost, s.collection()+"?fieldValidation=Strict", nil, string(body))
	again := *reference != "" && w.StatusCode == http.StatusConflict // the reference was asked before
	if w.StatusCode != http.StatusCreated && !again {
		e.t.Errorf("create %s: %d %s", s.id(), w.StatusCode, clip(answer))
		return
	}
	if s.status == nil || s.res.Subresource("status") == nil {
		return
	}
	status, err := json.Marshal(map[string]any{"status": s.status})
	must.OK(e.t, err)
	header := http.Header{"Content-Type": {"application/merge-patch+json"}}
	if w, answer = e.do(http.MethodPatch, s.path()+"/status?fieldValidation=Strict", header, string(status)); w.StatusCode != http.StatusOK {
		e.t.Errorf("status of %s: %d %s", s.id(), w.StatusCode, clip(answer))
	}
}

// golden compares text with a file of testdata, line by line so that the first
// difference is seen; -update writes the file instead.
func golden(t *testing.T, file, got string) {
	t.Helper()
	if *update {
		must.OK(t, os.WriteFile(file, []byte(got), 0o644))
		return
	}
	b, err := os.ReadFile(file)
	must.OK(t, err)
	if bytes.Equal(b, []byte(got)) {
		return
	}
	want, have := strings.Split(string(b), "\n"), strings.Split(got, "\n")
	for i := range min(len(want), len(have)) {
		if want[i] != have[i] {
			t.Errorf("%s:%d: got\n%s\nwant\n%s", file, i+1, have[i], want[i])
			return
		}
	}
	t.Errorf("%s: got %d lines, want %d", file, len(have), len(want))
}
