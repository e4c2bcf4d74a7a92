package codec

import (
	"encoding/binary"
	"errors"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/quorate/quorate/apiserver/types/kinds"
	"github.com/quorate/quorate/proto"
	"github.com/quorate/quorate/raftstore/mvcc"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// initialEventsEnd marks the bookmark that ends the initial events.
const initialEventsEnd = "k8s.io/initial-events-end"

// EventWriter writes the frames of one watch. Not safe for concurrent use.
//
// A JSON frame is put together from the stored bytes every time: for an event of
// 1.5 KiB that is a copy of tens of nanoseconds, less than it costs to look up and
// to keep a shared frame. Forms that take more (protobuf, moved fields) are made
// once and shared, rows of Tables for a second. Large values are written as they are
// (shared.go).
type EventWriter struct {
	w       http.ResponseWriter
	flusher http.Flusher
	message func([]byte) error // instead of w: sends one event
	f       Format
	res     *kinds.Resource
	prefix  []byte // of an object, in JSON: kind and apiVersion
	table   *table
	headed  bool // the columns were sent
	clock   func() time.Time
	buf     *[]byte
}

// frames are the buffers of writers that have something to flush: an idle watch
// holds none.
var frames = sync.Pool{New: func() any { b := make([]byte, 0, 4<<10); return &b }}

// NewEventWriter writes the response's headers, which the first Flush sends, and
// returns the writer.
func NewEventWriter(w http.ResponseWriter, f Format, res *kinds.Resource) (*EventWriter, error) {
	flusher, ok := w.(http.Flusher)
	if !ok {
		return nil, errors.New("watch: the connection cannot be flushed")
	}
	e, err := newEventWriter(f, res)
	if err != nil {
		return nil, err
	}
	e.w, e.flusher = w, flusher
	contentType := f.MediaType
	if f.MediaType == Protobuf {
		contentType += ";stream=watch"
	}
	w.Header()["Content-Type"] = contentTypes(contentType)
	w.WriteHeader(http.StatusOK)
	return e, nil
}

// NewMessageWriter returns a writer for a connection that keeps events apart by
// itself: send is called with each event, without a frame around it, and must not
// keep the bytes.
func NewMessageWriter(send func([]byte) error, f Format, res *kinds.Resource) (*EventWriter, error) {
	e, err := newEventWriter(f, res)
	if err != nil {
		return nil, err
	}
	e.message = send
	return e, nil
}

func newEventWriter(f Format, res *kinds.Resource) (*EventWriter, error) {
	e := &EventWriter{f: f, res: res, clock: time.Now, prefix: appendType(nil, res.Kind, res.Group, res.Version)}
	if f.As == AsTable {
		t, err := newTable(res)
		if err != nil {
			return nil, err
		}
		e.table = t
	}
	return e, nil
}

// begin returns the buffer for the next frame.
func (e *EventWriter) begin() []byte {
	if e.buf == nil {
		e.buf = frames.Get().(*[]byte)
	}
	return *e.buf
}

// end takes the buffer back; on an error the frame is dropped.
func (e *EventWriter) end(b []byte, err error) error {
	if err != nil {
		return err
	}
	*e.buf = b
	if len(b) >= chunk || e.message != nil {
		return e.send()
	}
	return nil
}

// frameLength is what stands before an event in protobuf, in bytes.
const frameLength = 4

func (e *EventWriter) send() (err error) {
	switch {
	case e.message == nil:
		_, err = e.w.Write(*e.buf)
	case e.f.MediaType == Protobuf:
		err = e.message((*e.buf)[frameLength:])
	default:
		err = e.message(*e.buf)
	}
	if err != nil {
		e.buf = nil // not for others: see output.release
		return err
	}
	*e.buf = (*e.buf)[:0]
	return nil
}

func appendFrameStart(b []byte, eventType string) []byte {
	b = append(b, `{"type":"`...)
	b = append(b, eventType...)
	return append(b, `","object":`...)
}

const frameEnd = "}\n"

// Event writes one event; type is ADDED, MODIFIED or DELETED. For DELETED on a
// tombstone the stored value already has the delete's revision. content is the
// version whose content is sent; for a DELETED caused by a selector that no
// longer matches it is the previous version and rev the revision of the change.
func (e *EventWriter) Event(eventType string, content *mvcc.Version, rev proto.Revision) error {
	b := e.begin()
	var err error
	switch {
	case e.f.MediaType == Protobuf:
		b, err = e.protobuf(b, eventType, content, rev)
	case e.f.As == AsTable:
		b = appendFrameStart(b, eventType)
		b = e.table.head(b, e.f.AsVersion, ListMeta{Revision: rev, Remaining: -1}, !e.headed)
		e.table.now = e.clock()
		b, err = e.table.versionRow(b, e.f, e.res, content, rev)
		b = append(b, tableEnd+frameEnd...)
		e.headed = e.headed || err == nil
	case e.f.As == AsObject && asStored(e.res, content) && rev == content.Revision && content.ValueSize() > 0:
		b = appendFrameStart(b, eventType)
		b = append(b, e.prefix...)
		if e.shares(content.ValueSize()) {
			b, err = e.shared(b, content.Value()[1:])
		} else {
			b = appendFields(b, content)
		}
		b = append(b, frameEnd...)
	default:
		b = appendFrameStart(b, eventType)
		b, err = appendJSON(b, e.f, e.res, content, rev)
		b = append(b, frameEnd...)
	}
	return e.end(b, err)
}

func (e *EventWriter) protobuf(b []byte, eventType string, v *mvcc.Version, rev proto.Revision) ([]byte, error) {
	msg, err := protobufItem(e.f, e.res, v, rev)
	if err != nil {
		return b, err
	}
	apiVersion, kind := protobufType(e.f, e.res)
	if !e.shares(len(msg)) {
		return appendProtobufFrame(b, eventType, apiVersion, kind, msg), nil
	}
	b, err = e.shared(appendProtobufFrameStart(b, eventType, apiVersion, kind, len(msg)), msg)
	return append(b, envelopeEnd...), err
}

// appendProtobufFrame appends a frame.
func appendProtobufFrame(b []byte, eventType, apiVersion, kind string, msg []byte) []byte {
	b = appendProtobufFrameStart(b, eventType, apiVersion, kind, len(msg))
	b = append(b, msg...)
	return append(b, envelopeEnd...)
}

// appendProtobufFrameStart appends a frame up to the message of size bytes; envelopeEnd follows the message. It is
// the length in four bytes, then a WatchEvent of type (1) and RawExtension (2), whose only field (1) is the document.
func appendProtobufFrameStart(b []byte, eventType, apiVersion, kind string, size int) []byte {
	document := envelopeSize(apiVersion, kind, size)
	raw := 1 + uvarintSize(document) + document
	event := 1 + uvarintSize(len(eventType)) + len(eventType) + 1 + uvarintSize(raw) + raw
	b = binary.BigEndian.AppendUint32(b, uint32(event))
	b = appendField(b, 0x0a, eventType)
	b = append(b, 0x12)
	b = binary.AppendUvarint(b, uint64(raw))
	b = append(b, 0x0a)
	b = binary.AppendUvarint(b, uint64(document))
	return appendEnvelope(b, apiVersion, kind, size)
}

// Bookmark writes a BOOKMARK; initialEnd adds k8s.io/initial-events-end.
func (e *EventWriter) Bookmark(rev proto.Revision, initialEnd bool) error {
	b := e.begin()
	var err error
	switch {
	case e.f.MediaType == Protobuf:
		b, err = e.protobufBookmark(b, rev, initialEnd)
	case e.f.As == AsTable:
		b, err = e.tableBookmark(b, rev, initialEnd)
	case e.f.As == AsMetadata:
		b = appendFrameStart(b, "BOOKMARK")
		b = appendPartialMeta(b, e.f.AsVersion, bookmarkMeta(nil, rev, initialEnd))
		b = append(b, frameEnd...)
	default:
		b = appendFrameStart(b, "BOOKMARK")
		b = append(b, e.prefix...)
		b = append(b, `"metadata":`...)
		b = bookmarkMeta(b, rev, initialEnd)
		b = append(b, "}"+frameEnd...)
	}
	return e.end(b, err)
}

func bookmarkMeta(b []byte, rev proto.Revision, initialEnd bool) []byte {
	b = append(b, `{"resourceVersion":"`...)
	b = strconv.AppendUint(b, uint64(rev), 10)
	if initialEnd {
		return append(b, `","annotations":{"`+initialEventsEnd+`":"true"}}`...)
	}
	return append(b, `"}`...)
}

// bookmarkTree is a bookmark's object.
func (e *EventWriter) bookmarkTree(rev proto.Revision, initialEnd bool) map[string]any {
	meta := map[string]any{"resourceVersion": rev.String()}
	if initialEnd {
		meta["annotations"] = map[string]any{initialEventsEnd: "true"}
	}
	return map[string]any{
		"kind": e.res.Kind, "apiVersion": e.res.GroupVersion().String(), "metadata": meta,
	}
}

func (e *EventWriter) protobufBookmark(b []byte, rev proto.Revision, initialEnd bool) ([]byte, error) {
	apiVersion, kind := protobufType(e.f, e.res)
	gvk := e.res.GVK()
	if e.f.As == AsMetadata {
		gvk = partialGVK
	}
	text := append(bookmarkMeta([]byte(metadataStart), rev, initialEnd), '}')
	msg, err := marshaled(gvk, text)
	if err != nil {
		return b, err
	}
	return appendProtobufFrame(b, "BOOKMARK", apiVersion, kind, msg), nil
}

// tableBookmark writes a Table with one row. The end of the initial events keeps
// its metadata even if no objects were asked for. Columns may not be printable
// for an object with nothing in it; the cells are empty then.
func (e *EventWriter) tableBookmark(b []byte, rev proto.Revision, initialEnd bool) ([]byte, error) {
	policy := e.f.IncludeObject
	if initialEnd && policy == metav1.IncludeNone {
		policy = metav1.IncludeMetadata
	}
	b = appendFrameStart(b, "BOOKMARK")
	e.table.now = e.clock()
	b = e.table.head(b, e.f.AsVersion, ListMeta{Revision: rev, Remaining: -1}, !e.headed)
	tree := e.bookmarkTree(rev, initialEnd)
	start := len(b)
	b, err := e.table.treeRow(b, e.f, tree, policy)
	if err != nil {
		blank := *e.table
		blank.rows = blankRows(len(e.table.columns))
		b, err = blank.treeRow(b[:start], e.f, tree, policy)
	}
	e.headed = e.headed || err == nil
	return append(b, tableEnd+frameEnd...), err
}

// Error writes an ERROR event. A Status is never transformed.
func (e *EventWriter) Error(s *metav1.Status) error {
	b := e.begin()
	var err error
	if e.f.MediaType == Protobuf {
		var msg []byte
		if msg, err = s.Marshal(); err == nil {
			b = appendProtobufFrame(b, "ERROR", "v1", "Status", msg)
		}
	} else {
		b = appendFrameStart(b, "ERROR")
		b, err = appendStatus(b, s)
		b = append(b, frameEnd...)
	}
	return e.end(b, err)
}

// Flush sends what was written, the headers too.
func (e *EventWriter) Flush() (err error) {
	if e.buf != nil {
		if len(*e.buf) > 0 {
			err = e.send()
		}
		if e.buf != nil && cap(*e.buf) <= 2*chunk {
			frames.Put(e.buf)
		}
		e.buf = nil
	}
	if err == nil && e.flusher != nil {
		e.flusher.Flush()
	}
	return err
}
