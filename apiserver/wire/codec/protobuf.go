package codec

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/quorate/quorate/apiserver/types/kinds"
	"github.com/quorate/quorate/proto"
	"github.com/quorate/quorate/raftstore/mvcc"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1beta1 "k8s.io/apimachinery/pkg/apis/meta/v1beta1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	clientscheme "k8s.io/client-go/kubernetes/scheme"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	kjson "sigs.k8s.io/json"
)

// magic begins every Kubernetes protobuf document.
var magic = []byte("k8s\x00")

var (
	errNoMagic = errors.New("provided data does not appear to be a protobuf message, expected prefix [107 56 115 0]")
	errNoBody  = errors.New("empty body")
)

// scheme knows the Go types of the built-in kinds.
var scheme = func() *runtime.Scheme {
	s := runtime.NewScheme()
	utilruntime.Must(clientscheme.AddToScheme(s))
	utilruntime.Must(apiextensionsv1.AddToScheme(s))
	utilruntime.Must(apiregistrationv1.AddToScheme(s))
	metav1.AddToGroupVersion(s, schema.GroupVersion{Version: "v1"})
	metav1.AddToGroupVersion(s, metav1.SchemeGroupVersion)
	utilruntime.Must(metav1.AddMetaToScheme(s))
	utilruntime.Must(metav1beta1.AddMetaToScheme(s))
	return s
}()

// message is what the generated types have.
type message interface {
	runtime.Object
	Marshal() ([]byte, error)
	Unmarshal([]byte) error
}

// newMessage makes an empty object of a kind.
func newMessage(gvk schema.GroupVersionKind) (message, error) {
	obj, err := scheme.New(gvk)
	if err != nil {
		// Options come in the group version of the resource, custom ones included.
		if gvk.Kind == "DeleteOptions" {
			return &metav1.DeleteOptions{}, nil
		}
		return nil, err
	}
	m, ok := obj.(message)
	if !ok {
		return nil, fmt.Errorf("%s has no protobuf form", gvk)
	}
	return m, nil
}

// typed fills an object of the kind from JSON. Going through JSON is faster than
// the reflection over trees that apimachinery has, both ways, and allocates less.
func typed(gvk schema.GroupVersionKind, text []byte) (message, error) {
	m, err := newMessage(gvk)
	if err != nil {
		return nil, err
	}
	if err := kjson.UnmarshalCaseSensitivePreserveInts(text, m); err != nil {
		return nil, fmt.Errorf("make protobuf of %s: %w", gvk.Kind, err)
	}
	return m, nil
}

// marshaled is the protobuf message of an object in JSON.
func marshaled(gvk schema.GroupVersionKind, text []byte) ([]byte, error) {
	m, err := typed(gvk, text)
	if err != nil {
		return nil, err
	}
	// The envelope says what it is; upstream's messages do not repeat it.
	return m.Marshal()
}

// objectMessage is a version as a protobuf message, without the envelope.
func objectMessage(res *kinds.Resource, v *mvcc.Version, rev proto.Revision) ([]byte, error) {
	return deriveBytes(objectProto, res, v, rev, func() ([]byte, error) {
		value := v.Value()
		switch {
		case res.Converts(): // made on the way, not kept beside the message
			var err error
			if value, err = convertedValue(res, v, rev); err != nil {
				return nil, err
			}
		case rev != v.Revision && v.RevisionOffset != 0:
			value = withRevision(value, v.RevisionOffset, rev)
		}
		return marshaled(res.GVK(), value)
	})
}

// revisedTree is DecodeStored with the resourceVersion of rev.
func revisedTree(res *kinds.Resource, v *mvcc.Version, rev proto.Revision) (map[string]any, error) {
	value := v.Value()
	if rev != v.Revision && v.RevisionOffset != 0 {
		value = withRevision(value, v.RevisionOffset, rev)
	}
	return decodeValue(res, v, value)
}

// partialGVK is the kind that both versions of PartialObjectMetadata are made
// by: they have the same fields.
var partialGVK = metav1.SchemeGroupVersion.WithKind(partialKind)

// metadataMessage is a version's PartialObjectMetadata as a protobuf message.
func metadataMessage(res *kinds.Resource, v *mvcc.Version, rev proto.Revision) ([]byte, error) {
	return deriveBytes(metadataProto, res, v, rev, func() ([]byte, error) {
		text, err := appendPartial(nil, "v1", res, v, rev)
		if err != nil {
			return nil, err
		}
		return marshaled(partialGVK, text)
	})
}

// appendEnvelope appends the beginning of a document up to the message of size
// bytes; envelopeEnd follows the message. It is runtime.Unknown with its fields
// in order: type (1), message (2), encoding (3) and content type (4), both empty.
func appendEnvelope(b []byte, apiVersion, kind string, size int) []byte {
	typeSize := 2 + uvarintSize(len(apiVersion)) + uvarintSize(len(kind)) + len(apiVersion) + len(kind)
	b = append(b, magic...)
	b = append(b, 0x0a)
	b = binary.AppendUvarint(b, uint64(typeSize))
	b = appendField(b, 0x0a, apiVersion)
	b = appendField(b, 0x12, kind)
	b = append(b, 0x12)
	return binary.AppendUvarint(b, uint64(size))
}

const envelopeEnd = "\x1a\x00\x22\x00"

// envelopeSize is the length of a whole document.
func envelopeSize(apiVersion, kind string, size int) int {
	typeSize := 2 + uvarintSize(len(apiVersion)) + uvarintSize(len(kind)) + len(apiVersion) + len(kind)
	return len(magic) + 1 + uvarintSize(typeSize) + typeSize + 1 + uvarintSize(size) + size + len(envelopeEnd)
}

func appendField(b []byte, tag byte, s string) []byte {
	b = append(b, tag)
	b = binary.AppendUvarint(b, uint64(len(s)))
	return append(b, s...)
}

func uvarintSize(n int) int {
	size := 1
	for ; n >= 0x80; n >>= 7 {
		size++
	}
	return size
}

// appendDocument appends a whole document.
func appendDocument(b []byte, apiVersion, kind string, msg []byte) []byte {
	b = appendEnvelope(b, apiVersion, kind, len(msg))
	b = append(b, msg...)
	return append(b, envelopeEnd...)
}

// decodeProtobuf reads a document into a tree; text is the object as JSON. fallback is the kind of a
// document that does not name one.
func decodeProtobuf(body []byte, fallback schema.GroupVersionKind) (tree map[string]any, text []byte, gvk schema.GroupVersionKind, err error) {
	u, err := openEnvelope(body)
	if err != nil {
		return nil, nil, gvk, err
	}
	gvk = schema.FromAPIVersionAndKind(u.APIVersion, u.Kind)
	if gvk.Kind == "" {
		gvk.Kind = fallback.Kind
	}
	if gvk.Version == "" {
		gvk.Group, gvk.Version = fallback.Group, fallback.Version
	}
	m, err := newMessage(gvk)
	if err != nil {
		return nil, nil, gvk, err
	}
	if err := checkDepth(u.Raw); err != nil {
		return nil, nil, gvk, err
	}
	if err := m.Unmarshal(u.Raw); err != nil {
		return nil, nil, gvk, err
	}
	tree, text, err = treeOf(m)
	if err != nil {
		return nil, nil, gvk, err
	}
	tree["kind"], tree["apiVersion"] = gvk.Kind, gvk.GroupVersion().String()
	return tree, text, gvk, nil
}

// openEnvelope reads a document's envelope.
func openEnvelope(body []byte) (u runtime.Unknown, err error) {
	if !bytes.HasPrefix(body, magic) {
		return u, errNoMagic
	}
	if len(body) == len(magic) {
		return u, errNoBody
	}
	err = u.Unmarshal(body[len(magic):])
	return u, err
}

// treeOf is a typed object as a tree and as JSON.
func treeOf(m message) (map[string]any, []byte, error) {
	text, err := json.Marshal(m)
	if err != nil {
		return nil, nil, err
	}
	tree, _, err := parseJSON(stringOf(text))
	if err != nil {
		return nil, nil, err
	}
	return tree.(map[string]any), text, nil
}

// apiVersionOf is "v1" or "apps/v1".
func apiVersionOf(group, version string) string {
	if group == "" {
		return version
	}
	return strings.Join([]string{group, version}, "/")
}
