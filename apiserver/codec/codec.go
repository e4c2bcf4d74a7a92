// Package codec turns request bodies into trees and stored versions into
// answers: JSON, YAML and Kubernetes protobuf, as the object itself, as a Table
// or as PartialObjectMetadata; single, in lists and in watch streams.
//
// What is stored. A stored value is compact canonical JSON of the object
// WITHOUT kind and apiVersion, metadata first, with a slot for the
// resourceVersion's digits. A list item of a built-in resource is exactly these
// bytes; a single object is `{"kind":"K","apiVersion":"V",` and the rest.
package codec

import (
	"errors"
	"net/http"

	"github.com/quorate/quorate/apiserver/kinds"
	"github.com/quorate/quorate/proto"
	"github.com/quorate/quorate/raftstore/mvcc"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

var errTodo = errors.New("codec: under construction")

// Body is a decoded request body.
type Body struct {
	// Object is the tree as sent, kind and apiVersion included.
	Object map[string]any
	// Duplicates are strict-decoding findings of the syntax: duplicate fields,
	// in upstream's words (`duplicate field "spec.replicas"`).
	Duplicates []string
}

// Decode parses a body of the given Content-Type (empty: JSON). res says which
// Go type a protobuf body may hold; nil allows any known one (DeleteOptions,
// Eviction...). Errors are *apierrors.StatusError: 400 for what does not parse,
// 415 for an unknown Content-Type.
func Decode(contentType string, body []byte, res *kinds.Resource) (Body, error) {
	return Body{}, errTodo
}

// Encode makes the stored form of a tree. The metadata's resourceVersion, if
// any, is replaced by the slot. offset is where the digits go (mvcc fills it in).
func Encode(obj map[string]any) (value []byte, offset uint32, err error) { return nil, 0, errTodo }

// DecodeStored parses a stored value into a fresh tree, with kind and
// apiVersion of res set.
func DecodeStored(res *kinds.Resource, v *mvcc.Version) (map[string]any, error) { return nil, errTodo }

// As is the form in which objects are asked for.
type As int

const (
	AsObject As = iota
	AsTable
	AsMetadata // PartialObjectMetadata or PartialObjectMetadataList
)

// Format is the outcome of content negotiation.
type Format struct {
	MediaType     string // application/json, application/yaml, application/vnd.kubernetes.protobuf
	As            As
	AsVersion     string // v1 or v1beta1, for As != AsObject
	Pretty        bool
	IncludeObject metav1.IncludeObjectPolicy // for AsTable; default Metadata
	Stream        bool
}

// Shape says what the answer will be, for negotiation.
type Shape int

const (
	ShapeObject Shape = iota
	ShapeList
	ShapeWatch
	ShapeOther // Status and the like: never a Table
)

// Negotiate reads Accept, pretty, includeObject and User-Agent. res may be nil.
// Errors: 406 and 400 as *apierrors.StatusError.
func Negotiate(r *http.Request, res *kinds.Resource, shape Shape) (Format, error) {
	return Format{}, errTodo
}

// WriteObject answers with one version of res.
func WriteObject(w http.ResponseWriter, r *http.Request, f Format, code int, res *kinds.Resource, v *mvcc.Version) error {
	return errTodo
}

// WriteTree answers with an object that is not stored (dry run, reviews, scale).
// The tree has kind and apiVersion.
func WriteTree(w http.ResponseWriter, r *http.Request, f Format, code int, res *kinds.Resource, obj map[string]any) error {
	return errTodo
}

// ListMeta is a list's metadata.
type ListMeta struct {
	Revision  proto.Revision
	Continue  string
	Remaining int64 // < 0: left out
}

// WriteList answers with a list, item by item.
func WriteList(w http.ResponseWriter, r *http.Request, f Format, res *kinds.Resource, m ListMeta, items []*mvcc.Version) error {
	return errTodo
}

// WriteStatus answers with an error or a Success status. err is turned into a
// Status by package status before it gets here. Retry-After is set from
// retryAfterSeconds. If Accept cannot be met, JSON is sent all the same.
func WriteStatus(w http.ResponseWriter, r *http.Request, s *metav1.Status) {}

// EventWriter writes the frames of one watch. Not safe for concurrent use.
type EventWriter struct{}

// NewEventWriter sends the response's headers and returns the writer.
func NewEventWriter(w http.ResponseWriter, f Format, res *kinds.Resource) (*EventWriter, error) {
	return nil, errTodo
}

// Event writes one event; type is ADDED, MODIFIED or DELETED. For DELETED on a
// tombstone the stored value already has the delete's revision. content is the
// version whose content is sent; for a DELETED caused by a selector that no
// longer matches it is the previous version and rev the revision of the change.
// The frame of (version, type, format) is encoded once and shared.
func (e *EventWriter) Event(eventType string, content *mvcc.Version, rev proto.Revision) error {
	return errTodo
}

// Bookmark writes a BOOKMARK; initialEnd adds k8s.io/initial-events-end.
func (e *EventWriter) Bookmark(rev proto.Revision, initialEnd bool) error { return errTodo }

// Error writes an ERROR event.
func (e *EventWriter) Error(s *metav1.Status) error { return errTodo }

// Flush sends what was written.
func (e *EventWriter) Flush() error { return errTodo }
