package conformance

import (
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	admission "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// delay is how long the slow webhook takes.
const delay = 5 * time.Second

// startWebhooks serves the webhooks that Kubernetes' conformance tests deploy in a Pod, at
// the same paths and with the same answers. It returns their URL, and the certificate that they have.
func startWebhooks(t *testing.T) (url, caBundle string) {
	mux := http.NewServeMux()
	for path, answer := range webhookAnswers {
		mux.HandleFunc("POST "+path, review(func(r *http.Request, _ *admission.AdmissionRequest, obj *unstructured.Unstructured) *admission.AdmissionResponse {
			patch, refusal := answer(r, obj)
			response := patched(patch)
			if refusal != "" {
				response.Allowed, response.Result = false, &metav1.Status{Message: refusal}
			}
			return response
		}))
	}
	mux.HandleFunc("POST /note-dry-run", review(noteDryRun))
	mux.HandleFunc("POST /warn-dry-run", review(warnDryRun))
	mux.HandleFunc("POST /crdconvert", convertHosts)
	s := httptest.NewTLSServer(mux)
	t.Cleanup(s.Close)
	return s.URL, base64.StdEncoding.EncodeToString(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw}))
}

// review answers reviews. What is deleted is the object of a delete's.
func review(answer func(*http.Request, *admission.AdmissionRequest, *unstructured.Unstructured) *admission.AdmissionResponse) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		var review admission.AdmissionReview
		if !receive(w, r, &review) {
			return
		}
		var obj unstructured.Unstructured
		raw := review.Request.Object.Raw
		if review.Request.Operation == admission.Delete {
			raw = review.Request.OldObject.Raw
		}
		if err := json.Unmarshal(raw, &obj.Object); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		review.Response = answer(r, review.Request, &obj)
		review.Response.UID = review.Request.UID
		review.Request = nil
		_ = json.NewEncoder(w).Encode(review)
	}
}

// patched allows a request, with a JSON patch if there is one.
func patched(patch string) *admission.AdmissionResponse {
	response := &admission.AdmissionResponse{Allowed: true}
	if patch != "" {
		jsonPatch := admission.PatchTypeJSONPatch
		response.PatchType, response.Patch = &jsonPatch, []byte(patch)
	}
	return response
}

// noteDryRun notes in an annotation whether a request is a dry run.
func noteDryRun(_ *http.Request, q *admission.AdmissionRequest, _ *unstructured.Unstructured) *admission.AdmissionResponse {
	return patched(fmt.Sprintf(`[{"op":"add","path":"/metadata/annotations","value":{"noted":"%t"}}]`, q.DryRun != nil && *q.DryRun))
}

// warnDryRun warns of what it is asked, and of the note that it sees.
func warnDryRun(_ *http.Request, q *admission.AdmissionRequest, obj *unstructured.Unstructured) *admission.AdmissionResponse {
	response := patched("")
	response.Warnings = []string{fmt.Sprintf("%s, dry run %t, noted %s", q.Operation, q.DryRun != nil && *q.DryRun, obj.GetAnnotations()["noted"])}
	return response
}

// receive reads a review.
func receive(w http.ResponseWriter, r *http.Request, into any) bool {
	raw, err := io.ReadAll(r.Body)
	if err == nil {
		err = json.Unmarshal(raw, into)
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
	}
	return err == nil
}

// webhookAnswers are what the admission webhooks say of an object: a JSON patch, or why it
// is refused.
var webhookAnswers = map[string]func(r *http.Request, obj *unstructured.Unstructured) (patch, refusal string){
	"/always-deny": func(*http.Request, *unstructured.Unstructured) (string, string) {
		return "", "this webhook denies all requests"
	},
	"/always-allow-delay-5s": func(r *http.Request, _ *unstructured.Unstructured) (string, string) {
		select {
		case <-time.After(delay):
		case <-r.Context().Done():
			// An answer now might still be taken.
			panic(http.ErrAbortHandler)
		}
		return "", ""
	},
	"/add-label": func(*http.Request, *unstructured.Unstructured) (string, string) {
		return `[{"op":"add","path":"/metadata/labels","value":{"added-label":"yes"}}]`, ""
	},
	"/pods": func(r *http.Request, obj *unstructured.Unstructured) (string, string) {
		switch obj.GetLabels()["webhook-e2e-test"] {
		case "webhook-disallow":
			return "", "the pod contains unwanted label"
		case "wait-forever":
			<-r.Context().Done()
			panic(http.ErrAbortHandler)
		}
		return "", ""
	},
	"/pods/attach": func(*http.Request, *unstructured.Unstructured) (string, string) {
		return "", "attaching to pod 'to-be-attached-pod' is not allowed"
	},
	"/mutating-pods": func(*http.Request, *unstructured.Unstructured) (string, string) {
		return `[{"op":"add","path":"/spec/initContainers","value":[{"image":"webhook-added-image","name":"webhook-added-init-container","resources":{}}]}]`, ""
	},
	"/configmaps":               refuseData("the configmap contains unwanted key and value"),
	"/custom-resource":          refuseData("the custom resource contains unwanted data"),
	"/mutating-configmaps":      addStages,
	"/mutating-custom-resource": addStages,
	"/crd": func(_ *http.Request, obj *unstructured.Unstructured) (string, string) {
		if obj.GetLabels()["webhook-e2e-test"] == "webhook-disallow" {
			return "", "the crd contains unwanted label"
		}
		return "", ""
	},
}

// refuseData refuses objects whose data has what the tests call unwanted.
func refuseData(why string) func(*http.Request, *unstructured.Unstructured) (string, string) {
	return func(_ *http.Request, obj *unstructured.Unstructured) (string, string) {
		if v, _, _ := unstructured.NestedString(obj.Object, "data", "webhook-e2e-test"); strings.HasPrefix(v, "webhook-disallow") {
			return "", why
		}
		return "", ""
	}
}

// addStages adds the stage of data that follows those that are there.
func addStages(_ *http.Request, obj *unstructured.Unstructured) (patch, refusal string) {
	data, _, _ := unstructured.NestedMap(obj.Object, "data")
	stages := []string{"mutation-start", "mutation-stage-1", "mutation-stage-2"}
	for i, stage := range stages[1:] {
		if data[stages[i]] == "yes" && data[stage] == nil {
			return fmt.Sprintf(`[{"op":"add","path":"/data/%s","value":"yes"}]`, stage), ""
		}
	}
	return "", ""
}

// convertHosts converts between hostPort of v1 and host and port of v2.
func convertHosts(w http.ResponseWriter, r *http.Request) {
	var review struct {
		APIVersion string         `json:"apiVersion"`
		Kind       string         `json:"kind"`
		Response   map[string]any `json:"response"`
		Request    *struct {
			UID               string                      `json:"uid"`
			DesiredAPIVersion string                      `json:"desiredAPIVersion"`
			Objects           []unstructured.Unstructured `json:"objects"`
		} `json:"request,omitempty"`
	}
	if !receive(w, r, &review) {
		return
	}
	var converted []any
	for _, obj := range review.Request.Objects {
		to := maps.Clone(obj.Object)
		to["apiVersion"] = review.Request.DesiredAPIVersion
		if both, ok := to["hostPort"].(string); ok && strings.HasSuffix(review.Request.DesiredAPIVersion, "/v2") {
			delete(to, "hostPort")
			to["host"], to["port"], _ = strings.Cut(both, ":")
		} else if host, ok := to["host"].(string); ok && strings.HasSuffix(review.Request.DesiredAPIVersion, "/v1") {
			to["hostPort"] = fmt.Sprintf("%s:%v", host, to["port"])
			delete(to, "host")
			delete(to, "port")
		}
		converted = append(converted, to)
	}
	review.Response = map[string]any{"uid": review.Request.UID, "convertedObjects": converted, "result": map[string]any{"status": metav1.StatusSuccess}}
	review.Request = nil
	_ = json.NewEncoder(w).Encode(review)
}
