// Package codec turns request bodies into trees and stored versions into
// answers: JSON, YAML and Kubernetes protobuf, as the object itself, as a Table
// or as PartialObjectMetadata; single, in lists and in watch streams.
//
// What is stored. A stored value is compact canonical JSON of the object
// WITHOUT kind and apiVersion, metadata first, with a slot for the
// resourceVersion's digits. A list item of a built-in resource is exactly these
// bytes; a single object is `{"kind":"K","apiVersion":"V",` and the rest. Nothing
// is decoded to answer in JSON.
//
// Where another form of a version is needed (protobuf, or the fields of another
// group version, see Resource.ToStored in package kinds) it is made on first demand and
// kept beside the version, within a bound in bytes for the whole process.
//
// DESIGN.md says what lists and bodies cost in memory.
package codec

import (
	"fmt"
	"strconv"

	"github.com/quorate/quorate/apiserver/types/kinds"
	"github.com/quorate/quorate/proto"
	"github.com/quorate/quorate/raftstore/mvcc"
)

// Encode makes the stored form of a tree. The metadata's resourceVersion, if
// any, is replaced by the slot; kind and apiVersion are left out. offset is where
// the digits go (mvcc fills it in). The tree is not changed.
//
// The tree must have the fields of the stored version: see EncodeFor.
func Encode(obj map[string]any) (value []byte, offset uint32, err error) {
	e := getEncoder()
	defer putEncoder(e)
	if err := e.object(obj, true, slotEmpty); err != nil {
		return nil, 0, fmt.Errorf("encode object: %w", err)
	}
	return append(make([]byte, 0, len(e.b)), e.b...), uint32(e.offset), nil
}

// AppendTree appends a tree as clients are answered with it, kind and apiVersion first. Errors: it
// has what JSON cannot say.
func AppendTree(b []byte, obj map[string]any) ([]byte, error) { return appendTree(b, Format{}, obj) }

// EncodeFor is Encode for a tree with the fields of res, which may not be those
// of the version that is stored (Resource.ToStored).
func EncodeFor(res *kinds.Resource, obj map[string]any) (value []byte, offset uint32, err error) {
	if res.Converts() {
		if obj, err = res.ToStored(obj); err != nil {
			return nil, 0, err
		}
	}
	return Encode(obj)
}

// DecodeStored parses a stored value into a fresh tree, with kind and
// apiVersion of res set and the fields of res.
func DecodeStored(res *kinds.Resource, v *mvcc.Version) (map[string]any, error) {
	return decodeValue(res, v, v.Value())
}

// asStored reports whether a version is stored in the form that res shows it in.
func asStored(res *kinds.Resource, v *mvcc.Version) bool {
	return !res.Converts() && (res.StorageForm == "" || res.IsStoredAs(FormOf(v)))
}

// FormOf is the form that a version is stored in; empty for built-in resources.
func FormOf(v *mvcc.Version) string {
	form, _ := v.Fields.Get(kinds.FormAttribute)
	return form
}

// decodeValue decodes the value of v, perhaps with another revision in it.
func decodeValue(res *kinds.Resource, v *mvcc.Version, value []byte) (map[string]any, error) {
	key := v.Key
	tree, _, err := parseJSON(stringOf(value))
	if err != nil {
		return nil, fmt.Errorf("decode stored %s %s: %w", res.Plural, key, err)
	}
	obj, ok := tree.(map[string]any)
	if !ok {
		return nil, fmt.Errorf("decode stored %s %s: not an object", res.Plural, key)
	}
	if res.Converts() {
		if obj, err = res.FromStored(obj); err != nil {
			return nil, fmt.Errorf("decode stored %s %s: %w", res.Plural, key, err)
		}
	}
	obj["kind"] = res.Kind
	obj["apiVersion"] = res.GroupVersion().String()
	if !asStored(res, v) && res.Upgrade != nil {
		if err := res.Upgrade(FormOf(v), obj); err != nil {
			return nil, fmt.Errorf("decode stored %s %s: %w", res.Plural, key, err)
		}
	}
	return obj, nil
}

// appendType appends the beginning of an object, up to its metadata. Kinds and
// versions never need escaping.
func appendType(b []byte, kind, group, version string) []byte {
	b = append(b, `{"kind":"`...)
	b = append(b, kind...)
	b = append(b, `","apiVersion":"`...)
	if group != "" {
		b = append(b, group...)
		b = append(b, '/')
	}
	b = append(b, version...)
	return append(b, '"', ',')
}

// digitsEnd is the end of the resourceVersion's digits that begin at offset.
func digitsEnd(value []byte, offset uint32) int {
	end := int(offset)
	for end < len(value) && value[end] >= '0' && value[end] <= '9' {
		end++
	}
	return end
}

// errNoMetadata is the error for stored bytes that this package did not make.
func errNoMetadata(key string) error {
	return fmt.Errorf("stored value of %s does not begin with its metadata", key)
}

const metadataStart = `{"metadata":`

// metadataOf cuts the metadata out of a stored value. It comes first, so the
// rest is not looked at.
func metadataOf(key string, value []byte) ([]byte, error) {
	if len(value) < len(metadataStart)+2 || string(value[:len(metadataStart)]) != metadataStart {
		return nil, errNoMetadata(key)
	}
	depth, quoted := 0, false
	for i := len(metadataStart); i < len(value); i++ {
		switch c := value[i]; {
		case quoted:
			switch c {
			case '\\':
				i++
			case '"':
				quoted = false
			}
		case c == '"':
			quoted = true
		case c == '{':
			depth++
		case c == '}':
			if depth--; depth == 0 {
				return value[len(metadataStart) : i+1], nil
			}
		}
	}
	return nil, errNoMetadata(key)
}

// content is a version in the stored form with the fields of res and with the
// digits of rev, which is the version's own revision but for the DELETED events
// of selectors.
func content(res *kinds.Resource, v *mvcc.Version, rev proto.Revision) ([]byte, error) {
	if !asStored(res, v) {
		return deriveBytes(convertedJSON, res, v, rev, func() ([]byte, error) { return convertedValue(res, v, rev) })
	}
	if rev == v.Revision || v.RevisionOffset == 0 {
		return v.Value(), nil
	}
	return withRevision(v.Value(), v.RevisionOffset, rev), nil
}

// convertedValue is a version in the stored form with the fields of res, which are not
// those that it is stored with.
func convertedValue(res *kinds.Resource, v *mvcc.Version, rev proto.Revision) ([]byte, error) {
	obj, err := DecodeStored(res, v)
	if err != nil {
		return nil, err
	}
	value, offset, err := Encode(obj)
	if err != nil {
		return nil, err
	}
	return withRevision(value, offset, rev), nil
}

// withRevision is value with the digits of rev at offset.
func withRevision(value []byte, offset uint32, rev proto.Revision) []byte {
	out := make([]byte, 0, len(value)+20)
	out = append(out, value[:offset]...)
	out = strconv.AppendUint(out, uint64(rev), 10)
	return append(out, value[digitsEnd(value, offset):]...)
}
