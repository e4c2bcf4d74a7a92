package codec

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/quorate/quorate/apiserver/types/kinds"
	"github.com/quorate/quorate/apiserver/wire/status"
	"github.com/quorate/quorate/proto"
	"github.com/quorate/quorate/raftstore/mvcc"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

const (
	metaV1      = "meta.k8s.io/"
	partialKind = "PartialObjectMetadata"
)

// Responder answers one request, in the format that was negotiated for it. If a method
// returns an error before anything was sent, the caller may still answer with a Status.
type Responder struct {
	w http.ResponseWriter
	r *http.Request
	f Format
}

// Respond returns what answers r.
func Respond(w http.ResponseWriter, r *http.Request, f Format) Responder {
	return Responder{w: w, r: r, f: f}
}

// Object answers with one version of res. Nothing is sent before the whole object is
// encoded.
func (rs Responder) Object(code int, res *kinds.Resource, v *mvcc.Version) error {
	body := rs.output(code, res)
	var err error
	switch {
	case rs.f.As == AsTable:
		err = body.table(listMetaOf(v), []*mvcc.Version{v})
	case rs.f.MediaType == Protobuf:
		err = body.protobuf(v)
	case rs.f.As == AsObject && asStored(res, v) && body.shares(v.ValueSize()):
		body.buf = appendType(body.buf, res.Kind, res.Group, res.Version)
		body.length = len(body.buf) + v.ValueSize() // without a brace, with a newline
		body.shared(v.Value()[1:])
		body.buf = append(body.buf, '\n')
	default:
		body.buf, err = appendJSON(body.buf, rs.f, res, v, v.Revision)
		body.buf = append(body.buf, '\n')
	}
	return body.complete(err)
}

// protobuf is the body of one object.
func (o *output) protobuf(v *mvcc.Version) error {
	msg, err := protobufItem(o.f, o.res, v, v.Revision)
	if err != nil {
		return err
	}
	apiVersion, kind := protobufType(o.f, o.res)
	if !o.shares(len(msg)) {
		o.buf = appendDocument(o.buf, apiVersion, kind, msg)
		return nil
	}
	o.length = envelopeSize(apiVersion, kind, len(msg))
	o.buf = appendEnvelope(o.buf, apiVersion, kind, len(msg))
	o.shared(msg)
	o.buf = append(o.buf, envelopeEnd...)
	return nil
}

func listMetaOf(v *mvcc.Version) ListMeta { return ListMeta{Revision: v.Revision, Remaining: -1} }

// complete turns the JSON that was collected into what the format asks for and sends it.
// If there is an error and nothing was sent, it gives up the output and returns the error.
func (o *output) complete(err error) error {
	if err == nil && !o.started {
		switch {
		case o.f.MediaType == YAML:
			o.buf, err = yamlOf(o.r, o.buf, false)
		case o.f.Pretty:
			o.buf, err = indented(o.buf)
		}
	}
	if err != nil && !o.started {
		o.w.Header().Del("Content-Type")
		o.release()
		return err
	}
	if ferr := o.finish(); err == nil {
		err = ferr
	}
	return err
}

// indented is JSON as upstream prints it for people: without a newline at the end.
func indented(compact []byte) ([]byte, error) {
	var b bytes.Buffer
	b.Grow(len(compact) * 3 / 2)
	if err := json.Indent(&b, bytes.TrimSuffix(compact, []byte{'\n'}), "", "  "); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}

// appendJSON appends an object or its metadata.
func appendJSON(b []byte, f Format, res *kinds.Resource, v *mvcc.Version, rev proto.Revision) ([]byte, error) {
	if f.As == AsMetadata {
		return appendPartial(b, f.AsVersion, res, v, rev)
	}
	return appendObject(b, res, v, rev)
}

// appendObject appends an object with kind and apiVersion.
func appendObject(b []byte, res *kinds.Resource, v *mvcc.Version, rev proto.Revision) ([]byte, error) {
	if v.ValueSize() < len(metadataStart) {
		return b, errNoMetadata(v.Key)
	}
	b = appendType(b, res.Kind, res.Group, res.Version)
	if asStored(res, v) {
		if rev == v.Revision || v.RevisionOffset == 0 {
			return appendFields(b, v), nil
		}
		value := v.Value()
		b = append(b, value[1:v.RevisionOffset]...)
		b = strconv.AppendUint(b, uint64(rev), 10)
		return append(b, value[digitsEnd(value, v.RevisionOffset):]...), nil
	}
	value, err := content(res, v, rev)
	if err != nil {
		return b, err
	}
	return append(b, value[1:]...), nil
}

// appendFields appends the value of a version without its opening brace, in place of the comma that
// ends b.
func appendFields(b []byte, v *mvcc.Version) []byte {
	last := len(b) - 1
	b = v.AppendValue(b[:last])
	b[last] = ','
	return b
}

func appendPartial(b []byte, version string, res *kinds.Resource, v *mvcc.Version, rev proto.Revision) ([]byte, error) {
	value := v.Value()
	if rev != v.Revision && v.RevisionOffset != 0 {
		value = withRevision(value, v.RevisionOffset, rev)
	}
	if res.Converts() { // it may lead into metadata
		var err error
		if value, err = content(res, v, rev); err != nil {
			return b, err
		}
	}
	meta, err := metadataOf(v.Key, value)
	if err != nil {
		return b, err
	}
	return appendPartialMeta(b, version, meta), nil
}

func appendPartialMeta(b []byte, version string, meta []byte) []byte {
	b = appendType(b, partialKind, metav1.GroupName, version)
	b = append(b, `"metadata":`...)
	b = append(b, meta...)
	return append(b, '}')
}

// protobufItem is an item's message, without its envelope.
func protobufItem(f Format, res *kinds.Resource, v *mvcc.Version, rev proto.Revision) (msg []byte, err error) {
	if f.As == AsMetadata {
		return metadataMessage(res, v, rev)
	}
	return objectMessage(res, v, rev)
}

// protobufType is the apiVersion and kind of an item's envelope.
func protobufType(f Format, res *kinds.Resource) (apiVersion, kind string) {
	if f.As == AsMetadata {
		return metaV1 + f.AsVersion, partialKind
	}
	return apiVersionOf(res.Group, res.Version), res.Kind
}

// Tree answers with an object that is not stored (dry run, reviews, scale). The tree has
// kind and apiVersion, which need not be those of res.
func (rs Responder) Tree(code int, res *kinds.Resource, obj map[string]any) error {
	body := rs.output(code, res)
	var err error
	switch {
	case rs.f.As == AsTable && res != nil:
		err = body.treeTable(obj)
	case rs.f.MediaType == Protobuf:
		body.buf, err = appendTreeProtobuf(body.buf, rs.f, obj)
	default:
		body.buf, err = appendTree(body.buf, rs.f, obj)
		body.buf = append(body.buf, '\n')
	}
	return body.complete(err)
}

func appendTree(b []byte, f Format, obj map[string]any) ([]byte, error) {
	if f.As == AsMetadata {
		obj = map[string]any{"kind": partialKind, "apiVersion": metaV1 + f.AsVersion, "metadata": obj["metadata"]}
	}
	e := getEncoder()
	defer putEncoder(e)
	if err := e.object(obj, false, slotKeep); err != nil {
		return b, fmt.Errorf("encode object: %w", err)
	}
	return append(b, e.b...), nil
}

func appendTreeProtobuf(b []byte, f Format, obj map[string]any) ([]byte, error) {
	apiVersion, _ := obj["apiVersion"].(string)
	kind, _ := obj["kind"].(string)
	if f.As == AsMetadata {
		apiVersion, kind = metaV1+f.AsVersion, partialKind
		obj = map[string]any{"metadata": obj["metadata"]}
	}
	gvk := schema.FromAPIVersionAndKind(apiVersion, kind)
	if !scheme.Recognizes(gvk) {
		return b, status.NotAcceptable([]string{JSON, YAML})
	}
	text, err := appendTree(nil, Format{}, obj)
	if err != nil {
		return b, err
	}
	msg, err := marshaled(gvk, text)
	if err != nil {
		return b, err
	}
	return appendDocument(b, apiVersion, kind, msg), nil
}

// retryAfter is the header for what Details.RetryAfterSeconds says: the seconds, or for what lasts on, the time. Both are of
// HTTP (RFC 9110, 10.2.3). Who reads only seconds, as client-go does, does not try again by itself then: ten times, before it
// tells anybody.
func retryAfter(s *metav1.Status) string {
	if status.LastsOn(s) {
		return time.Now().Add(time.Duration(s.Details.RetryAfterSeconds) * time.Second).UTC().Format(http.TimeFormat)
	}
	return strconv.Itoa(int(s.Details.RetryAfterSeconds))
}

// WriteStatus answers with an error or a Success status. err is turned into a
// Status by package status before it gets here. Retry-After is set from
// retryAfterSeconds, unless the failure lasts on. If Accept cannot be met, JSON is sent all the same, indented.
func WriteStatus(w http.ResponseWriter, r *http.Request, s *metav1.Status) {
	code := int(s.Code)
	switch {
	case code == 0:
		code = http.StatusOK
	case code < http.StatusOK || code > 999:
		code = http.StatusInternalServerError // a webhook's word; net/http panics at it
	}
	f, err := Negotiate(r, nil, ShapeOther)
	if err != nil {
		f = Format{MediaType: JSON, Pretty: true}
	}
	if s.Details != nil && s.Details.RetryAfterSeconds > 0 {
		w.Header().Set("Retry-After", retryAfter(s))
	}
	if code == http.StatusForbidden {
		w.Header().Set("X-Content-Type-Options", "nosniff")
	}
	body := Respond(w, r, f).output(code, nil)
	if f.MediaType == Protobuf {
		body.buf, err = appendStatusProtobuf(body.buf, s)
	} else {
		body.buf, err = appendStatus(body.buf, s)
		body.buf = append(body.buf, '\n')
	}
	// The only errors left are the connection's: there is nobody to tell.
	_ = body.complete(err)
}

func appendStatus(b []byte, s *metav1.Status) ([]byte, error) {
	named := *s
	named.Kind, named.APIVersion = "Status", "v1"
	raw, err := json.Marshal(&named)
	return append(b, raw...), err
}

func appendStatusProtobuf(b []byte, s *metav1.Status) ([]byte, error) {
	msg, err := s.Marshal()
	if err != nil {
		return b, err
	}
	return appendDocument(b, "v1", "Status", msg), nil
}
