package conversion

import (
	"encoding/json"
	"errors"
	"fmt"
	"sync"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apiextensionsv1beta1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1beta1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// tree is a decoded object.
type tree = map[string]any

// reviewOf is a ConversionReview as it is sent. Both versions have the same fields.
func reviewOf(versions []string, objects []tree, desired string, uid types.UID) (body []byte, version string, err error) {
	for _, v := range versions {
		if v != "v1" && v != "v1beta1" {
			continue
		}
		body, err = json.Marshal(tree{
			"kind": "ConversionReview", "apiVersion": "apiextensions.k8s.io/" + v,
			"request": tree{"uid": uid, "desiredAPIVersion": desired, "objects": objects},
		})
		if err != nil {
			return nil, "", fmt.Errorf("encode ConversionReview: %w", err)
		}
		return body, v, nil
	}
	return nil, "", errors.New("no supported conversion review versions")
}

// failure is the kind of a failure, as upstream's metrics name it.
type failure string

const (
	noFailure     failure = ""
	callFailed    failure = "conversion_webhook_call_failure"
	malformed     failure = "conversion_webhook_malformed_response_failure"
	partial       failure = "conversion_webhook_partial_response_failure"
	invalidObject failure = "conversion_webhook_invalid_converted_object_failure"
)

// answer is a response that could be read.
type answer struct {
	apiVersion, kind string
	given            bool
	uid              types.UID
	objects          []runtime.RawExtension
	result           metav1.Status
}

// reviews is the decoder that upstream reads answers with.
var reviews = sync.OnceValue(func() runtime.Decoder {
	scheme := runtime.NewScheme()
	// They register types that are not there yet: neither can fail.
	_ = apiextensionsv1.AddToScheme(scheme)
	_ = apiextensionsv1beta1.AddToScheme(scheme)
	return serializer.NewCodecFactory(scheme).LegacyCodec(apiextensionsv1.SchemeGroupVersion, apiextensionsv1beta1.SchemeGroupVersion)
})

// read decodes the answer to a review of a version. An error is a failed call.
func read(version string, body []byte) (*answer, error) {
	out, err := decode(version, body)
	if err == nil && out.kind == "ConversionReview" && out.apiVersion == "apiextensions.k8s.io/"+version {
		return out, nil
	}
	// What came is something else: upstream's decoder has the words for it.
	var into runtime.Object = &apiextensionsv1.ConversionReview{}
	if version == "v1beta1" {
		into = &apiextensionsv1beta1.ConversionReview{}
	}
	if _, _, refused := reviews().Decode(body, nil, into); refused != nil {
		return nil, refused
	}
	return out, err
}

func decode(version string, body []byte) (*answer, error) {
	var as metav1.TypeMeta
	if err := json.Unmarshal(body, &as); err != nil {
		return nil, err
	}
	switch {
	case as.Kind == "":
		return nil, runtime.NewMissingKindErr(string(body[:min(len(body), maxShown)]))
	case as.APIVersion == "":
		return nil, runtime.NewMissingVersionErr(string(body[:min(len(body), maxShown)]))
	}
	out := &answer{apiVersion: as.APIVersion, kind: as.Kind}
	if version == "v1beta1" {
		var r apiextensionsv1beta1.ConversionReview
		if err := json.Unmarshal(body, &r); err != nil {
			return nil, err
		}
		if r.Response != nil {
			out.given, out.uid, out.objects, out.result = true, r.Response.UID, r.Response.ConvertedObjects, r.Response.Result
		}
		return out, nil
	}
	var r apiextensionsv1.ConversionReview
	if err := json.Unmarshal(body, &r); err != nil {
		return nil, err
	}
	if r.Response != nil {
		out.given, out.uid, out.objects, out.result = true, r.Response.UID, r.Response.ConvertedObjects, r.Response.Result
	}
	return out, nil
}

// maxShown bounds what is shown of an answer that cannot be read, in bytes.
const maxShown = 1 << 10

// converted are the objects of an answer, if it is one to the request and says that it
// was successful. v1beta1 says neither reliably; upstream looks at v1 only.
func (a *answer) converted(version string, uid types.UID) ([]runtime.RawExtension, error) {
	if version == "v1" {
		want := schema.GroupVersionKind{Group: "apiextensions.k8s.io", Version: "v1", Kind: "ConversionReview"}
		if got := schema.FromAPIVersionAndKind(a.apiVersion, a.kind); got != want {
			return nil, fmt.Errorf("expected webhook response of %v, got %v", want, got)
		}
	}
	if !a.given {
		return nil, errors.New("no response provided")
	}
	if version == "v1" && a.uid != uid {
		return nil, fmt.Errorf("expected response.uid=%q, got %q", uid, a.uid)
	}
	if a.result.Status != metav1.StatusSuccess {
		if a.result.Message != "" {
			return nil, errors.New(a.result.Message)
		}
		return nil, fmt.Errorf("response.result.status was '%s', not 'Success'", a.result.Status)
	}
	return a.objects, nil
}

// check decodes one converted object and looks at all that a webhook must leave as it
// was. What comes back has the metadata of in, but for labels and annotations. place
// is how the object is called in errors.
func check(in tree, raw []byte, to schema.GroupVersion, kind schema.GroupVersionKind, place string, index int) (tree, error) {
	refused := func(err error) error {
		return fmt.Errorf("conversion webhook for %v returned invalid %s: %w", kind, place, err)
	}
	at := place
	if index == alone {
		at = place + " at index 0"
	}
	var u unstructured.Unstructured
	if err := u.UnmarshalJSON(raw); err != nil {
		return nil, fmt.Errorf("conversion webhook for %v returned invalid converted object at index %d: %w", kind, max(index, 0), err)
	}
	got := u.GroupVersionKind()
	if got.GroupVersion() != to {
		return nil, fmt.Errorf("conversion webhook for %v returned invalid %s: invalid groupVersion (expected %v, received %v)", kind, at, to, got.GroupVersion())
	}
	original := &unstructured.Unstructured{Object: in}
	if want := original.GetKind(); want != got.Kind {
		return nil, fmt.Errorf("conversion webhook for %v returned invalid %s: invalid kind (expected %v, received %v)", kind, at, want, got.Kind)
	}
	if err := same(original, &u); err != nil {
		return nil, refused(err)
	}
	if err := restore(in, u.Object); err != nil {
		if index == alone {
			return nil, fmt.Errorf("conversion webhook for %v returned invalid metadata: %w", kind, err)
		}
		return nil, fmt.Errorf("conversion webhook for %v returned invalid metadata in object at index %d: %w", kind, index, err)
	}
	return u.Object, nil
}

// alone is the index of an object that was sent alone: upstream words that otherwise.
const alone = -1

// same compares what names an object.
func same(in, out *unstructured.Unstructured) error {
	if a, b := in.GetName(), out.GetName(); a != b {
		return fmt.Errorf("must have the same name: %v != %v", a, b)
	}
	if a, b := in.GetNamespace(), out.GetNamespace(); a != b {
		return fmt.Errorf("must have the same namespace: %v != %v", a, b)
	}
	if a, b := in.GetUID(), out.GetUID(); a != b {
		return fmt.Errorf("must have the same UID: %v != %v", a, b)
	}
	return nil
}

// restore gives out the metadata of in, but for labels and annotations.
func restore(in, out tree) error {
	given, found := out["metadata"]
	if !found {
		return errors.New("missing metadata in converted object")
	}
	theirs, ok := given.(tree)
	if !ok {
		return fmt.Errorf("invalid metadata of type %T in converted object", given)
	}
	meta := tree{}
	if was, ok := in["metadata"].(tree); ok {
		meta = runtime.DeepCopyJSON(was)
	}
	out["metadata"] = meta
	for _, name := range [...]string{"labels", "annotations"} {
		v, found := theirs[name]
		if !found || v == nil {
			delete(meta, name)
			continue
		}
		now, ok := v.(tree)
		if !ok {
			return fmt.Errorf("invalid metadata.%s of type %T in converted object", name, v)
		}
		was, _ := meta[name].(tree)
		if err := checkPairs(name, was, now); err != nil {
			return err
		}
		meta[name] = now
	}
	return nil
}

// checkPairs checks labels or annotations that were changed.
func checkPairs(name string, was, now tree) error {
	changed := len(was) != len(now)
	pairs := make(map[string]string, len(now))
	for k, v := range now {
		s, ok := v.(string)
		if !ok {
			return fmt.Errorf("metadata.%s[%s] must be a string, but is %T in converted object", name, k, v)
		}
		pairs[k] = s
		changed = changed || was[k] != v
	}
	if !changed {
		return nil
	}
	var errs field.ErrorList
	if name == "labels" {
		errs = metav1validation.ValidateLabels(pairs, field.NewPath("metadata", "labels"))
	} else {
		errs = apivalidation.ValidateAnnotations(pairs, field.NewPath("metadata", "annotation"))
	}
	if err := errs.ToAggregate(); err != nil {
		return err
	}
	return nil
}
