package codec

import (
	"encoding/json"
	"fmt"

	"github.com/quorate/quorate/apiserver/types/kinds"
	"github.com/quorate/quorate/apiserver/wire/status"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	kjson "sigs.k8s.io/json"
)

// DecodeTyped parses a body like Decode, straight into a type of k8s.io/api: as upstream
// decodes, by the same decoders, and without the tree between. It is for what is answered
// and not stored. check is told what the body calls itself, which may be nothing, and says
// what that is, or why it is refused; the error of DecodeTyped is then that one.
// findings are what strict decoding finds, unknown and duplicate fields in the document's
// order; without strict nothing is looked for. The object keeps no part of body. Other
// errors are those of Decode, and 400 for what does not fit the type.
func DecodeTyped(contentType string, body []byte, res *kinds.Resource, into runtime.Object, strict bool,
	check func(apiVersion, kind string) (schema.GroupVersionKind, error)) (findings []string, gvk schema.GroupVersionKind, err error) {
	if len(body) > MaxBody {
		return nil, gvk, status.BodyTooLarge(MaxBody)
	}
	text := body
	switch bodyType(contentType, res) {
	case JSON:
	case YAML:
		var duplicate string
		if text, duplicate, err = YAMLToJSON(body); err != nil {
			return nil, gvk, status.Unrecognized(res.Kind, err, body)
		}
		if duplicate != "" && strict {
			findings = append(findings, duplicate)
		}
	case Protobuf:
		gvk, err = decodeMessage(body, res, into, check)
		return nil, gvk, err
	default:
		return nil, gvk, status.UnsupportedMediaType([]string{JSON, YAML, Protobuf})
	}
	var found []error
	var decodeErr error
	if strict {
		found, decodeErr = kjson.UnmarshalStrict(text, into)
	} else {
		decodeErr = kjson.UnmarshalCaseSensitivePreserveInts(text, into)
	}
	// Upstream looks for the names first, in a pass of its own that takes them in any case
	// ("KIND"). If nothing is unknown here, they can only be where they belong.
	apiVersion, kind := namesOf(into)
	if !strict || decodeErr != nil || len(found) > 0 {
		var names struct {
			APIVersion string `json:"apiVersion,omitempty"`
			Kind       string `json:"kind,omitempty"`
		}
		if err := json.Unmarshal(text, &names); err != nil {
			return nil, gvk, status.Unrecognized(res.Kind, fmt.Errorf("couldn't get version/kind; json parse error: %w", err), body)
		}
		apiVersion, kind = names.APIVersion, names.Kind
	}
	if gvk, err = check(apiVersion, kind); err != nil {
		return nil, gvk, err
	}
	if decodeErr != nil {
		return nil, gvk, status.CannotBeHandled(gvk, res.Kind, decodeErr)
	}
	for _, f := range found {
		findings = append(findings, f.Error())
	}
	return findings, gvk, nil
}

// namesOf is what a decoded object calls itself, as it was written.
func namesOf(obj runtime.Object) (apiVersion, kind string) {
	if m, ok := obj.GetObjectKind().(*metav1.TypeMeta); ok {
		return m.APIVersion, m.Kind
	}
	return "", ""
}

// decodeMessage is DecodeTyped for protobuf, which has no strict form: unknown fields are
// those of another release.
func decodeMessage(body []byte, res *kinds.Resource, into runtime.Object, check func(apiVersion, kind string) (schema.GroupVersionKind, error)) (schema.GroupVersionKind, error) {
	u, err := openEnvelope(body)
	if err != nil {
		return schema.GroupVersionKind{}, status.Unrecognized(res.Kind, err, body)
	}
	gvk, err := check(u.APIVersion, u.Kind)
	if err != nil {
		return gvk, err
	}
	m, ok := into.(message)
	if !ok {
		return gvk, fmt.Errorf("%T has no protobuf form", into)
	}
	if err = checkDepth(u.Raw); err == nil {
		err = m.Unmarshal(u.Raw)
	}
	if err != nil {
		return gvk, status.CannotBeHandled(gvk, res.Kind, err)
	}
	return gvk, nil
}
