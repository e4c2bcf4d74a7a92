package codec

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"net/http"
	"strconv"
	"sync/atomic"

	"github.com/quorate/quorate/apiserver/types/kinds"
	"github.com/quorate/quorate/proto"
	"github.com/quorate/quorate/raftstore/mvcc"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// ListMeta is a list's metadata.
type ListMeta struct {
	Revision  proto.Revision
	Continue  string
	Remaining int64 // < 0: left out
}

// append appends the metadata object.
func (m ListMeta) append(b []byte) []byte {
	b = append(b, `{"resourceVersion":"`...)
	if m.Revision != 0 {
		b = strconv.AppendUint(b, uint64(m.Revision), 10)
	}
	b = append(b, '"')
	if m.Continue != "" {
		b = append(b, `,"continue":`...)
		b = appendString(b, m.Continue)
	}
	if m.Remaining >= 0 {
		b = append(b, `,"remainingItemCount":`...)
		b = strconv.AppendInt(b, m.Remaining, 10)
	}
	return append(b, '}')
}

// typed is the metadata as upstream's type.
func (m ListMeta) typed() metav1.ListMeta {
	t := metav1.ListMeta{Continue: m.Continue}
	if m.Revision != 0 {
		t.ResourceVersion = m.Revision.String()
	}
	if m.Remaining >= 0 {
		t.RemainingItemCount = &m.Remaining
	}
	return t
}

// List answers with a list, item by item: the memory it takes does not grow with the
// list (but for tables that are not plain JSON, which are bounded). After the first bytes
// are sent, an error can only end the connection early; the caller should then abort the
// handler.
func (rs Responder) List(res *kinds.Resource, m ListMeta, items []*mvcc.Version) error {
	body := rs.output(http.StatusOK, res)
	if len(items) > fewItems && cap(body.buf) < chunk {
		body.buf = getChunk()
	}
	switch {
	case rs.f.As == AsTable:
		return body.complete(body.table(m, items))
	case rs.f.MediaType == Protobuf:
		return body.complete(body.protobufList(m, items))
	case rs.f.Pretty:
		err := body.prettyList(m, items)
		body.f.Pretty = false // it is already
		return body.complete(err)
	case rs.f.MediaType == YAML:
		err := body.yamlList(m, items)
		body.f.MediaType = JSON // nothing is left to do
		return body.complete(err)
	}
	return body.complete(body.jsonList(m, items))
}

// fewItems hardly fill a chunk; for more, a whole one is taken at once.
const fewItems = 64

// head appends a list up to its metadata.
func (o *output) head(m ListMeta) {
	if o.f.As == AsMetadata {
		o.buf = appendType(o.buf, partialKind+"List", metav1.GroupName, o.f.AsVersion)
	} else {
		o.buf = appendType(o.buf, o.res.ListKindName(), o.res.Group, o.res.Version)
	}
	o.buf = append(o.buf, `"metadata":`...)
	o.buf = m.append(o.buf)
}

// item appends a list item: only custom resources and metadata carry their type.
func (o *output) item(v *mvcc.Version) error {
	var err error
	switch {
	case o.f.As == AsMetadata:
		o.buf, err = appendPartial(o.buf, o.f.AsVersion, o.res, v, v.Revision)
	case o.res.Custom && asStored(o.res, v) && o.shares(v.ValueSize()):
		o.buf = appendType(o.buf, o.res.Kind, o.res.Group, o.res.Version)
		o.shared(v.Value()[1:])
	case o.res.Custom:
		o.buf, err = appendObject(o.buf, o.res, v, v.Revision)
	case o.res.Converts():
		var value []byte
		value, err = content(o.res, v, v.Revision)
		o.buf = append(o.buf, value...)
	case o.shares(v.ValueSize()):
		o.shared(v.Value())
	default:
		o.buf = v.AppendValue(o.buf)
	}
	return err
}

func (o *output) jsonList(m ListMeta, items []*mvcc.Version) error {
	o.head(m)
	o.buf = append(o.buf, `,"items":[`...)
	for i, v := range items {
		if i > 0 {
			o.buf = append(o.buf, ',')
		}
		if err := o.item(v); err != nil {
			return err
		}
		if err := o.spill(); err != nil {
			return err
		}
	}
	o.buf = append(o.buf, ']', '}', '\n')
	return nil
}

// prettyList is the list as json.Indent would print it, item by item.
func (o *output) prettyList(m ListMeta, items []*mvcc.Version) error {
	o.head(m)
	top, err := indented(append(o.buf, '}'))
	if err != nil {
		return err
	}
	o.buf = append(o.buf[:0], bytes.TrimSuffix(top, []byte("\n}"))...)
	o.buf = append(o.buf, ",\n  \"items\": ["...)
	var b bytes.Buffer
	for i, v := range items {
		if i > 0 {
			o.buf = append(o.buf, ',')
		}
		o.buf = append(o.buf, "\n    "...)
		at := len(o.buf)
		if err := o.item(v); err != nil {
			return err
		}
		b.Reset()
		if err := json.Indent(&b, o.buf[at:], "    ", "  "); err != nil {
			return err
		}
		o.buf = append(o.buf[:at], b.Bytes()...)
		if err := o.spill(); err != nil {
			return err
		}
	}
	if len(items) > 0 {
		o.buf = append(o.buf, "\n  "...)
	}
	o.buf = append(o.buf, "]\n}"...)
	return nil
}

// held bounds the bytes of messages that a protobuf list keeps between its two
// passes, heldByAll those of all lists together.
const (
	held      = 4 << 20
	heldByAll = 16 << 20
)

// heldNow is what all lists keep.
var heldNow atomic.Int64

// protobufList writes the list in two passes, as the length of all items comes
// before the first one. What does not fit into held, nor stays with the versions,
// is encoded twice; that is the price for constant memory.
func (o *output) protobufList(m ListMeta, items []*mvcc.Version) error {
	meta, err := marshalListMeta(m)
	if err != nil {
		return err
	}
	total := 1 + uvarintSize(len(meta)) + len(meta)
	metaTag, itemTag := byte(0x0a), byte(0x12)
	var keep [][]byte
	kept := 0
	defer func() { heldNow.Add(-int64(kept)) }()
	for i, v := range items {
		msg, err := protobufItem(o.f, o.res, v, v.Revision)
		if err != nil {
			return err
		}
		total += 1 + uvarintSize(len(msg)) + len(msg)
		if len(keep) == i && kept+len(msg) <= held {
			if n := int64(len(msg)); heldNow.Add(n) > heldByAll {
				heldNow.Add(-n)
			} else {
				keep = append(keep, msg)
				kept += len(msg)
			}
		}
	}
	apiVersion, kind := apiVersionOf(o.res.Group, o.res.Version), o.res.ListKindName()
	if o.f.As == AsMetadata {
		apiVersion, kind = metaV1+o.f.AsVersion, partialKind+"List"
	}
	o.buf = appendEnvelope(o.buf, apiVersion, kind, total)
	if o.f.As == AsMetadata && o.f.AsVersion == "v1beta1" {
		metaTag, itemTag = itemTag, metaTag // this type numbers its fields the other way round
	} else {
		o.buf = appendField(o.buf, metaTag, stringOf(meta))
	}
	for i, v := range items {
		var msg []byte
		if i < len(keep) {
			msg = keep[i]
		} else if msg, err = protobufItem(o.f, o.res, v, v.Revision); err != nil {
			return err
		}
		o.buf = append(o.buf, itemTag)
		o.buf = binary.AppendUvarint(o.buf, uint64(len(msg)))
		if o.shares(len(msg)) {
			o.shared(msg)
		} else {
			o.buf = append(o.buf, msg...)
		}
		if err := o.spill(); err != nil {
			return err
		}
	}
	if metaTag != 0x0a {
		o.buf = appendField(o.buf, metaTag, stringOf(meta))
	}
	o.buf = append(o.buf, envelopeEnd...)
	return nil
}

func marshalListMeta(m ListMeta) ([]byte, error) {
	t := m.typed()
	return t.Marshal()
}
