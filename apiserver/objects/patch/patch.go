// Package patch applies the three patch types that are not server-side apply:
// JSON patch (RFC 6902), JSON merge patch (RFC 7386) and Kubernetes' strategic
// merge patch. A Patch is parsed once and may be applied many times, because a
// write that lost a race is computed again on the newer object.
package patch

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"mime"
	"net/http"
	"slices"
	"strings"

	"github.com/quorate/quorate/apiserver/wire/codec"
	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/mergepatch"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	kjson "sigs.k8s.io/json"
)

// Patch is a parsed patch. For one goroutine at a time.
type Patch struct {
	// Type is one of types.JSONPatchType, MergePatchType, StrategicMergePatchType.
	Type types.PatchType
	// Duplicates are fields that the body names twice, in upstream's words.
	Duplicates []string
	// Raw is the body.
	Raw []byte

	operations jsonpatch.Patch
	touched    *touched // by the operations
	merge      map[string]any
	null       bool // a merge patch that is null
	untyped    bool
	numbers    bool
}

// Numbers reports whether what Apply has returned last may have a json.Number. See codec.Body.
func (p *Patch) Numbers() bool { return p.numbers }

// Accepted returns the content types that a resource takes.
func Accepted(custom bool) []string {
	accepted := []string{string(types.JSONPatchType), string(types.MergePatchType)}
	if !custom {
		accepted = append(accepted, string(types.StrategicMergePatchType))
	}
	return append(accepted, string(types.ApplyYAMLPatchType))
}

// IsApply reports whether a Content-Type is that of a server-side apply, which is
// not this package's.
func IsApply(contentType string) bool { return typeOf(contentType) == types.ApplyYAMLPatchType }

// Parse reads a body of the given Content-Type. custom resources have no
// strategic merge. Errors are *apierrors.StatusError: 415, 413 for too many
// operations, 400 for what does not parse.
func Parse(contentType string, body []byte, custom bool) (*Patch, error) {
	return parseAs(contentType, body, custom, custom)
}

// ParseOfScale is Parse of a patch of the Scale of an object, which has a Go type upstream, also if the
// object is custom.
func ParseOfScale(contentType string, body []byte, custom bool) (*Patch, error) {
	return parseAs(contentType, body, custom, false)
}

// parseAs is Parse. What is patched has no Go type upstream if it is untyped.
func parseAs(contentType string, body []byte, custom, untyped bool) (*Patch, error) {
	if err := Check(contentType, custom); err != nil {
		return nil, err
	}
	p := &Patch{Type: typeOf(contentType), Raw: body, untyped: untyped}
	switch {
	case p.Type == types.JSONPatchType:
		return p, p.parseOperations()
	case p.Type == types.MergePatchType, p.Type == types.StrategicMergePatchType:
		decoded, err := codec.DecodePatch(body, p.Type, untyped)
		if err != nil {
			return nil, undecodable(p.Type, body, err)
		}
		p.merge, p.Duplicates, p.numbers = decoded.Object, decoded.Duplicates, decoded.Numbers
		p.null = p.Type == types.MergePatchType && string(bytes.TrimSpace(body)) == "null"
		return p, nil
	}
	return nil, unsupported(custom)
}

// Check returns 415 for a Content-Type that Parse would refuse.
func Check(contentType string, custom bool) error {
	if !slices.Contains(Accepted(custom), string(typeOf(contentType))) {
		return unsupported(custom)
	}
	return nil
}

// undecodable words the refusal of a merge patch as upstream does, whose two kinds
// are decoded in two places.
func undecodable(t types.PatchType, body []byte, err error) error {
	var m map[string]any
	if plain := kjson.UnmarshalCaseSensitivePreserveInts(body, &m); plain != nil {
		err = plain
	}
	if t == types.StrategicMergePatchType {
		return apierrors.NewBadRequest(err.Error())
	}
	return apierrors.NewBadRequest(fmt.Sprintf("error decoding patch: %v", err))
}

func typeOf(contentType string) types.PatchType {
	media, _, err := mime.ParseMediaType(contentType)
	if err != nil {
		media = contentType
	}
	return types.PatchType(media)
}

// Apply returns the patched object, which may share parts with current and has a
// map of its own wherever it differs; current stays as it is. meta is only
// needed for strategic merge. Errors are
// *apierrors.StatusError: 422 when the patch does not fit the object, 400 when
// it could fit none.
func (p *Patch) Apply(current map[string]any, meta strategicpatch.LookupPatchMeta) (map[string]any, error) {
	switch p.Type {
	case types.JSONPatchType:
		return p.applyOperations(current)
	case types.MergePatchType:
		if p.null { // which by the RFC would replace the object; upstream says so when it has read one
			return nil, apierrors.NewBadRequest("Invalid JSON Patch")
		}
		return mergeObject(current, p.merge), nil
	}
	if err := checkMergeWork(current, p.merge, meta); err != nil {
		return nil, err
	}
	patched, err := applyStrategic(current, p.merge, meta)
	if err != nil {
		return nil, strategicError(err)
	}
	return patched, nil
}

// Texts is what a JSON or a merge patch makes of an object, as upstream's library writes it: what the
// patch has and what it leaves have their own texts in it, such as 1.0 for a number. exact is the
// object that Apply was given, with json.RawMessage for what has a text. It is nil for a strategic
// merge, which upstream does with values, and if Apply fails.
func (p *Patch) Texts(exact map[string]any) []byte {
	if p.Type == types.StrategicMergePatchType {
		return nil
	}
	if p.Type == types.JSONPatchType {
		exact, _ = p.touched.of(exact).(map[string]any)
	}
	doc, err := json.Marshal(exact)
	if err != nil {
		return nil
	}
	if p.Type == types.JSONPatchType {
		doc, err = p.apply(doc)
	} else {
		doc, err = jsonpatch.MergePatch(doc, p.Raw)
	}
	if err != nil {
		return nil
	}
	return doc
}

// errDirective is wrapped by errors for patches that the library fails on.
var errDirective = errors.New("the strategic merge patch has a list element of a type that does not belong there")

// applyStrategic contains the library's panics: some directives and lists of the
// wrong types (null or objects among the elements) make it dereference nil or
// hash a map. It changes only the copies made here, and holds no lock.
func applyStrategic(current, patch map[string]any, meta strategicpatch.LookupPatchMeta) (patched map[string]any, err error) {
	defer func() {
		if r := recover(); r != nil {
			patched, err = nil, fmt.Errorf("%w: %v", errDirective, r)
		}
	}()
	// The library changes the object in place, moves parts of the patch into it
	// and removes its directives from the patch.
	return strategicpatch.StrategicMergeMapPatchUsingLookupPatchMeta(
		runtime.DeepCopyJSON(current), runtime.DeepCopyJSON(patch), meta)
}

// mergeObject is RFC 7386 on decoded trees: null removes, objects merge,
// anything else replaces. Only the maps on the patch's way are copied. As upstream's library, and
// unlike the RFC, it removes fields that are null from the objects of a new list, too, but not if the
// list takes the place of an object.
func mergeObject(target, patch map[string]any) map[string]any {
	merged := make(map[string]any, len(target)+len(patch))
	maps.Copy(merged, target)
	for k, v := range patch {
		switch v := v.(type) {
		case nil:
			delete(merged, k)
		case map[string]any:
			inner, _ := merged[k].(map[string]any)
			merged[k] = mergeObject(inner, v)
		case []any:
			list := runtime.DeepCopyJSONValue(v)
			if _, was := merged[k].(map[string]any); !was {
				withoutNulls(list)
			}
			merged[k] = list
		default:
			merged[k] = v
		}
	}
	return merged
}

// withoutNulls removes the fields that are null from the objects in a value.
func withoutNulls(v any) {
	switch v := v.(type) {
	case map[string]any:
		for k, x := range v {
			if x == nil {
				delete(v, k)
				continue
			}
			withoutNulls(x)
		}
	case []any:
		for _, x := range v {
			withoutNulls(x)
		}
	}
}

// Merged is a patch of either merge as Go prints it, which upstream shows of strategic ones.
func (p *Patch) Merged() string { return fmt.Sprintf("%v", p.merge) }

func strategicError(err error) error {
	switch {
	case errors.Is(err, errDirective),
		errors.Is(err, mergepatch.ErrBadJSONDoc),
		errors.Is(err, mergepatch.ErrBadPatchFormatForPrimitiveList),
		errors.Is(err, mergepatch.ErrBadPatchFormatForRetainKeys),
		errors.Is(err, mergepatch.ErrBadPatchFormatForSetElementOrderList),
		errors.Is(err, mergepatch.ErrUnsupportedStrategicMergePatchFormat):
		return apierrors.NewBadRequest(err.Error())
	}
	return rejected(err)
}

// rejected is upstream's 422 for a well-formed patch that cannot be applied. Its
// message is generic; the cause says why.
func rejected(err error) error {
	return apierrors.NewGenericServerResponse(http.StatusUnprocessableEntity, "", schema.GroupResource{}, "", err.Error(), 0, false)
}

// unsupported is the 415. Upstream's router refuses built-in resources before
// anybody knows what they accept.
func unsupported(custom bool) error {
	s := metav1.Status{
		Status: metav1.StatusFailure,
		Code:   http.StatusUnsupportedMediaType,
		Reason: metav1.StatusReasonUnsupportedMediaType,
	}
	if custom {
		s.Message = "the body of the request was in an unknown format - accepted media types include: " + strings.Join(Accepted(custom), ", ")
	} else {
		s.Message, s.Details = "415: Unsupported Media Type", &metav1.StatusDetails{}
	}
	return &apierrors.StatusError{ErrStatus: s}
}
