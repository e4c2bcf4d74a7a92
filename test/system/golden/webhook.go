package main

import (
	"cmp"
	"context"
	"crypto/tls"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"maps"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/quorate/quorate/test/harness/kubeapiserver"
)

// webhookSpec says how an admission webhook answers.
type webhookSpec struct {
	// Response is that of the AdmissionReview, as the API has it; the uid is the request's unless
	// it says another. A patch is written as it is, a list of operations or any text.
	Response map[string]any `json:"response"`
	// APIVersion and Kind are those of the answer, if they are wrong ones.
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Code       int    `json:"code"`  // HTTP status; 200 if it is not given
	Body       string `json:"body"`  // instead of an AdmissionReview
	Delay      string `json:"delay"` // how long it waits before it answers
	// Record says that the whole request of the AdmissionReview is recorded, and not only what
	// it is about.
	Record bool `json:"record"`
	// Images says that it is asked by ImageReviews, and how it answers about the first image of
	// one. Response is the status then. What it is asked is recorded.
	Images map[string]webhookSpec `json:"images"`
	// Convert says that it converts custom resources, and admits nothing. How often it is asked
	// is not recorded: each server remembers what it can.
	Convert *conversionSpec `json:"convert"`

	delay time.Duration
}

func parseWebhook(text string) (w webhookSpec, err error) {
	if err := yaml.UnmarshalStrict([]byte(text), &w); err != nil {
		return w, fmt.Errorf("a webhook: %w", err)
	}
	if w.Delay != "" {
		if w.delay, err = time.ParseDuration(w.Delay); err != nil {
			return w, fmt.Errorf("a webhook: %w", err)
		}
	}
	if w.Response == nil && w.Body == "" && w.Code == 0 && w.Images == nil && w.Convert == nil {
		return w, errors.New("a webhook without a response, a body or a code")
	}
	for image, answer := range w.Images {
		if answer.Delay != "" {
			if answer.delay, err = time.ParseDuration(answer.Delay); err != nil {
				return w, fmt.Errorf("a webhook: %w", err)
			}
			w.Images[image] = answer
		}
	}
	return w, nil
}

// webhooks is a server of the webhooks of a story, each at /NAME.
type webhooks struct {
	specs map[string]webhookSpec
	vars  map[string]string
	http  http.Server
	end   context.CancelFunc

	mu    sync.Mutex
	calls []call // since the last forget
}

// call is a request to a webhook.
type call struct {
	about string // by which calls are sorted: those of validating webhooks come at once
	old   string // and by this next: the name of what is there, as many deletes may come at once
	seen  any    // what is recorded of it
}

// startWebhooks starts the server on a port of loopback. Its close ends it.
func startWebhooks(specs map[string]webhookSpec) (*webhooks, error) {
	ca, err := kubeapiserver.NewAuthority()
	if err != nil {
		return nil, err
	}
	certificate, err := ca.ServerCertificate()
	if err != nil {
		return nil, err
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	w := &webhooks{specs: specs, end: cancel, vars: map[string]string{
		"webhook": "https://" + l.Addr().String(),
		"ca":      base64.StdEncoding.EncodeToString(ca.PEM()),
		"dead":    "https://127.0.0.1:1",
	}}
	w.http = http.Server{
		Handler: w, ReadHeaderTimeout: patience, ErrorLog: log.New(discard{}, "", 0),
		BaseContext: func(net.Listener) context.Context { return ctx },
	}
	go func() {
		_ = w.http.Serve(tls.NewListener(l, &tls.Config{Certificates: []tls.Certificate{certificate}}))
	}() // ends by close
	return w, nil
}

// discard drops what the HTTP server says of connections that clients end.
type discard struct{}

func (discard) Write(b []byte) (int, error) { return len(b), nil }

func (w *webhooks) close() {
	w.end()
	_ = w.http.Close()
}

// variables are those that every story has.
func (w *webhooks) variables() map[string]string { return maps.Clone(w.vars) }

// forget drops what was asked.
func (w *webhooks) forget() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.calls = nil
}

// asked is what webhooks were asked since forget.
func (w *webhooks) asked() []any {
	w.mu.Lock()
	defer w.mu.Unlock()
	slices.SortStableFunc(w.calls, func(a, b call) int { return cmp.Or(cmp.Compare(a.about, b.about), cmp.Compare(a.old, b.old)) })
	var all []any
	for _, c := range w.calls {
		all = append(all, c.seen)
	}
	return all
}

func (w *webhooks) ServeHTTP(out http.ResponseWriter, r *http.Request) {
	name := strings.Trim(r.URL.Path, "/")
	spec, ok := w.specs[name]
	if !ok {
		http.NotFound(out, r)
		return
	}
	if spec.Convert != nil {
		spec.Convert.serve(out, r)
		return
	}
	var review struct {
		Request map[string]any `json:"request"`
		Spec    map[string]any `json:"spec"` // of an ImageReview
	}
	if err := json.NewDecoder(r.Body).Decode(&review); err != nil || (review.Request == nil) == (spec.Images == nil) {
		http.Error(out, "not such a review", http.StatusBadRequest)
		return
	}
	uid := review.Request["uid"]
	if spec.Images == nil {
		w.note(name, spec.Record, review.Request)
	} else {
		w.note(name, true, review.Spec)
		spec = spec.Images[firstImage(review.Spec)].forImages()
	}
	select {
	case <-time.After(spec.delay):
	case <-r.Context().Done():
		return
	}
	if spec.Code != 0 {
		out.WriteHeader(spec.Code)
	}
	if spec.Body != "" || spec.Response == nil {
		fmt.Fprint(out, spec.Body)
		return
	}
	out.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(out).Encode(spec.review(uid)) // the server sees that the connection ended
}

// firstImage is what the answer to an ImageReview depends on.
func firstImage(spec map[string]any) string {
	containers, _ := spec["containers"].([]any)
	if len(containers) == 0 {
		return ""
	}
	first, _ := containers[0].(map[string]any)
	image, _ := first["image"].(string)
	return image
}

// forImages is an answer to an ImageReview.
func (s webhookSpec) forImages() webhookSpec {
	s.APIVersion, s.Kind = cmp.Or(s.APIVersion, "imagepolicy.k8s.io/v1alpha1"), cmp.Or(s.Kind, "ImageReview")
	s.Images = map[string]webhookSpec{}
	return s
}

// review is the answer to the request with a uid.
func (s webhookSpec) review(uid any) map[string]any {
	if s.Images != nil {
		return map[string]any{"apiVersion": s.APIVersion, "kind": s.Kind, "status": s.Response}
	}
	response := map[string]any{"uid": uid}
	maps.Copy(response, s.Response)
	if patch, ok := response["patch"]; ok {
		text, isText := patch.(string)
		if !isText {
			b, _ := json.Marshal(patch) // it was made of JSON
			text = string(b)
		}
		response["patch"] = base64.StdEncoding.EncodeToString([]byte(text))
		if _, ok := response["patchType"]; !ok {
			response["patchType"] = "JSONPatch"
		}
	}
	return map[string]any{
		"apiVersion": cmp.Or(s.APIVersion, "admission.k8s.io/v1"), "kind": cmp.Or(s.Kind, "AdmissionReview"), "response": response,
	}
}

func (w *webhooks) note(name string, whole bool, request map[string]any) {
	about := fmt.Sprintf("%s: %v %s", name, request["operation"], resourceOf(request))
	if object, ok := request["object"].(map[string]any); ok {
		if meta, ok := object["metadata"].(map[string]any); ok && meta["generateName"] != nil {
			normalizeName(meta)
			request["name"] = meta["name"]
		}
	}
	for _, field := range []string{"namespace", "name"} {
		if s, _ := request[field].(string); s != "" {
			about += fmt.Sprintf(" %s=%s", field, normalText(s))
		}
	}
	if request["dryRun"] == true {
		about += " dryRun"
	}
	c := call{about: about, old: nameOf(request["oldObject"]), seen: about}
	if whole {
		c.seen = map[string]any{"webhook": name, "request": normalize(request)}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.calls = append(w.calls, c)
}

// nameOf is the name of an object, and empty if there is none.
func nameOf(object any) string {
	o, _ := object.(map[string]any)
	meta, _ := o["metadata"].(map[string]any)
	name, _ := meta["name"].(string)
	return name
}

// resourceOf is the resource and the subresource that a webhook is asked about.
func resourceOf(request map[string]any) string {
	r, _ := request["resource"].(map[string]any)
	s := fmt.Sprintf("%v.%v.%v", r["resource"], r["version"], r["group"])
	if sub, _ := request["subResource"].(string); sub != "" {
		s += "/" + sub
	}
	return strings.TrimSuffix(s, ".")
}
