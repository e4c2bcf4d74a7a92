package codec

import (
	"bytes"
	"encoding/json"
	"fmt"
	"mime"

	"github.com/quorate/quorate/apiserver/types/kinds"
	"github.com/quorate/quorate/apiserver/wire/status"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"
)

// MaxBody is the size of a request body, in bytes, that is still decoded.
const MaxBody = 3 << 20

// Body is a decoded request body.
type Body struct {
	// Object is the tree as sent, kind and apiVersion included.
	Object map[string]any
	// Duplicates are strict-decoding findings of the syntax: duplicate fields,
	// in upstream's words (`duplicate field "spec.replicas"`).
	Duplicates []string

	// Numbers reports whether the tree may have a json.Number: of a built-in kind, numbers that are no int64 stay what was
	// sent until Fit has made of them what the field is, and PlainNumbers float64 of the rest.
	Numbers bool

	// JSON is the document as JSON, whatever it was sent as.
	JSON []byte

	ordered bool // the fields of JSON are in the order in which they were sent
}

// Decode parses a body of the given Content-Type (empty: JSON). res says what
// kind is expected, for error texts and for documents that name none, and
// whether protobuf is spoken; nil allows any. Whether the body's kind is the
// right one is for the caller to check. The tree does not refer to body. Errors
// are *apierrors.StatusError: 400 for what does not parse, 413 above MaxBody,
// 415 for an unknown Content-Type.
func Decode(contentType string, body []byte, res *kinds.Resource) (Body, error) {
	b, err := decode(contentType, body, res)
	if err == nil {
		if err = CheckType(b.Object); err != nil {
			return Body{}, unrecognized(res, err, body)
		}
	}
	return b, err
}

// DecodeApplied is Decode of a configuration that is applied, in YAML. What it says of its type may be
// no text: that is the merge's to refuse.
func DecodeApplied(body []byte, res *kinds.Resource) (Body, error) { return decode(YAML, body, res) }

func decode(contentType string, body []byte, res *kinds.Resource) (Body, error) {
	if len(body) > MaxBody {
		return Body{}, status.BodyTooLarge(MaxBody)
	}
	switch bodyType(contentType, res) {
	case JSON:
		b, err := decodeJSON(string(body), body, res)
		b.JSON, b.ordered = body, true
		return b, err
	case YAML:
		if obj, ok := parseJSONAsYAML(body); ok {
			return Body{Object: obj, JSON: body}, nil
		}
		text, duplicate, err := YAMLToJSON(body)
		if err != nil {
			return Body{}, status.Unrecognized(kindOf(res), err, body)
		}
		if p := partsOf(text); p.objects+p.arrays > maxMessages {
			return Body{}, status.Unrecognized(kindOf(res), errTooMany, body)
		}
		b, err := decodeJSON(stringOf(text), text, res)
		b.JSON = text
		if duplicate != "" {
			b.Duplicates = append(b.Duplicates, duplicate)
		}
		return b, err
	case Protobuf:
		var fallback schema.GroupVersionKind
		if res != nil {
			fallback = res.GVK()
		}
		tree, text, gvk, err := decodeProtobuf(body, fallback)
		switch {
		case err != nil && gvk.Kind == "":
			return Body{}, status.Unrecognized(kindOf(res), err, body)
		case err != nil && res == nil:
			return Body{}, status.CannotBeHandled(gvk, gvk.Kind, err)
		case err != nil:
			return Body{}, status.CannotBeHandled(gvk, res.Kind, err)
		}
		return Body{Object: tree, JSON: text}, nil
	}
	accepted := []string{JSON, YAML, Protobuf}
	if res != nil && !res.HasProtobuf() {
		accepted = accepted[:2]
	}
	return Body{}, status.UnsupportedMediaType(accepted)
}

// bodyType is the medium of a body, or "" if it is not spoken.
func bodyType(contentType string, res *kinds.Resource) string {
	switch contentType {
	case "", JSON:
		return JSON
	case Protobuf, YAML:
	default:
		t, _, err := mime.ParseMediaType(contentType)
		if err != nil {
			return ""
		}
		contentType = t
	}
	switch contentType {
	case JSON:
		return JSON
	case YAML:
		return YAML
	case Protobuf:
		if res == nil || res.HasProtobuf() {
			return Protobuf
		}
	}
	return ""
}

func kindOf(res *kinds.Resource) string {
	if res == nil {
		return ""
	}
	return res.Kind
}

func unrecognized(res *kinds.Resource, err error, body []byte) error {
	return status.Unrecognized(kindOf(res), fmt.Errorf("couldn't get version/kind; json parse error: %w", err), body)
}

// decodeJSON parses text; body is the same for error texts.
func decodeJSON(text string, body []byte, res *kinds.Resource) (Body, error) {
	keep := floats
	if res == nil || !res.Custom { // options of a delete have no other kind, and are never custom
		keep = texts
	}
	tree, kept, duplicates, err := parseNumbers(text, keep)
	var obj map[string]any
	if err == nil {
		obj, err = object(tree)
	}
	if err != nil {
		return Body{}, unrecognized(res, err, body)
	}
	return Body{Object: obj, Duplicates: duplicates, Numbers: kept}, nil
}

// DecodePatch decodes a merge patch, whose kind and apiVersion may be anything, of an object that is custom or built in. Errors
// as those of Decode.
func DecodePatch(body []byte, of types.PatchType, custom bool) (Body, error) {
	if len(body) > MaxBody {
		return Body{}, status.BodyTooLarge(MaxBody)
	}
	tree, kept, duplicates, err := parseNumbers(string(body), numbersOf(of, custom))
	var obj map[string]any
	if err == nil {
		obj, err = object(tree)
	}
	if err != nil {
		return Body{}, status.Unrecognized("", fmt.Errorf("couldn't get version/kind; json parse error: %w", err), body)
	}
	return Body{Object: obj, Duplicates: duplicates, Numbers: kept}, nil
}

// DecodePatched reads what a JSON patch has made of an object. See Body.Numbers.
func DecodePatched(text []byte, custom bool) (tree any, kept bool, err error) {
	tree, kept, _, err = parseNumbers(string(text), numbersOf(types.JSONPatchType, custom))
	return tree, kept, err
}

func numbersOf(patch types.PatchType, custom bool) numbers {
	switch {
	case custom:
		return floats
	case patch == types.StrategicMergePatchType: // which upstream has merged as trees
		return wholeOrTexts
	}
	return texts
}

// PlainNumbers makes float64, in place, of the numbers that Fit has left: fields of any type have them. Errors: one is too
// large.
func PlainNumbers(v any) (any, error) {
	var err error
	switch x := v.(type) {
	case map[string]any:
		for k, e := range x {
			if x[k], err = PlainNumbers(e); err != nil {
				return nil, err
			}
		}
	case []any:
		for i, e := range x {
			if x[i], err = PlainNumbers(e); err != nil {
				return nil, err
			}
		}
	case json.Number:
		f, err := x.Float64()
		if err != nil {
			return nil, fmt.Errorf("json: cannot unmarshal number %s into Go value of type float64", x)
		}
		return f, nil
	}
	return v, nil
}

// object checks that a document is an object, in the words in which upstream says it when it looks
// for the document's type.
func object(tree any) (map[string]any, error) {
	const target = "struct { APIVersion string \"json:\\\"apiVersion,omitempty\\\"\"; Kind string \"json:\\\"kind,omitempty\\\"\" }"
	obj, ok := tree.(map[string]any)
	if !ok {
		if tree == nil {
			return map[string]any{}, nil // null is an empty object
		}
		return nil, fmt.Errorf("json: cannot unmarshal %s into Go value of type %s", jsonType(tree), target)
	}
	return obj, nil
}

// CheckType checks that what an object says of its type is text.
func CheckType(obj map[string]any) error {
	for _, name := range [...]string{"apiVersion", "kind"} {
		switch v := obj[name].(type) {
		case nil, string:
		default:
			return fmt.Errorf("json: cannot unmarshal %s into Go struct field .%s of type string", jsonType(v), name)
		}
	}
	return nil
}

func jsonType(v any) string {
	switch v.(type) {
	case map[string]any:
		return "object"
	case []any:
		return "array"
	case string:
		return "string"
	case bool:
		return "bool"
	}
	return "number"
}

// YAMLToJSON converts one document of at most MaxBody bytes. duplicate says which
// keys were given twice (the last one counts) in upstream's words.
func YAMLToJSON(body []byte) (text []byte, duplicate string, err error) {
	if len(body) > MaxBody {
		return nil, "", errYAMLTooLarge
	}
	if bytes.IndexByte(body, '&') >= 0 && bytes.IndexByte(body, '*') >= 0 {
		if err := checkAliases(body); err != nil {
			return nil, "", err
		}
	}
	text, err = yaml.YAMLToJSONStrict(body)
	if err == nil {
		return text, "", nil
	}
	duplicate = err.Error()
	text, err = yaml.YAMLToJSON(body)
	return text, duplicate, err
}
