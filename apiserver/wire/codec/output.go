package codec

import (
	"net/http"
	"strconv"
	"strings"
	"sync"

	"github.com/klauspost/compress/gzip"
	"github.com/quorate/quorate/apiserver/types/kinds"
)

const (
	// gzipAbove is the size of a body, in bytes, above which it is compressed.
	gzipAbove = 128 << 10
	// chunk is what is collected before it is sent, in bytes.
	chunk = 32 << 10
)

// output is a response body. It holds back the header until it knows whether the
// body is long enough to be compressed, and then writes in large pieces.
type output struct {
	Responder
	res     *kinds.Resource // what it is an object or a list of; nil for a Status
	code    int
	buf     []byte   // not yet written; encoders append to it and call spill
	early   [][]byte // what comes before buf, until it is known whether to compress
	waiting int      // the bytes of early
	gz      *gzip.Writer
	zipped  zipped // what gz has made and nobody has sent yet
	length  int    // of the whole body; zero: it is not known before its end
	mayGzip bool
	started bool
	err     error // the first error of a write
}

// zipped collects what a gzip writer makes: it works in memory that it borrows, and
// must not keep that while a client takes its time.
type zipped []byte

func (z *zipped) Write(b []byte) (int, error) {
	*z = append(*z, b...)
	return len(b), nil
}

var outputs = sync.Pool{New: func() any { return new(output) }}

var gzips = sync.Pool{New: func() any {
	// Stateless: a writer with a window of its own holds most of a megabyte for as
	// long as its client takes to read; this one borrows it for each piece.
	z, err := gzip.NewWriterLevel(nil, gzip.StatelessCompression)
	if err != nil {
		panic(err) // the level is a constant
	}
	return z
}}

// output begins the body of an answer.
func (rs Responder) output(code int, res *kinds.Resource) *output {
	o := outputs.Get().(*output)
	*o = output{Responder: rs, res: res, code: code, buf: o.buf[:0], zipped: o.zipped[:0], mayGzip: rs.r != nil && acceptsGzip(rs.r.Header)}
	rs.w.Header()["Content-Type"] = contentTypes(rs.f.MediaType)
	return o
}

// contentTypes returns header values that are shared by all responses.
func contentTypes(t string) []string {
	switch t {
	case JSON:
		return jsonHeader
	case YAML:
		return yamlHeader
	case Protobuf:
		return protobufHeader
	}
	return []string{t}
}

var jsonHeader, yamlHeader, protobufHeader = []string{JSON}, []string{YAML}, []string{Protobuf}

// acceptsGzip reports whether one token of Accept-Encoding is exactly gzip.
func acceptsGzip(h http.Header) bool {
	list := firstValue(h, "Accept-Encoding")
	for list != "" {
		token, rest, _ := strings.Cut(list, ",")
		if strings.TrimSpace(token) == "gzip" {
			return true
		}
		list = rest
	}
	return false
}

// spill writes what has been collected if it is enough. It returns the first
// error of all writes.
func (o *output) spill() error {
	if len(o.buf) <= chunk {
		return o.err
	}
	if !o.started {
		if o.mayGzip && o.waiting+len(o.buf) <= gzipAbove {
			o.early = append(o.early, o.buf)
			o.waiting += len(o.buf)
			o.buf = getChunk()
			return nil
		}
		o.start()
	}
	o.write()
	if p, ok := o.w.(Pieces); ok {
		p.NextPiece()
	}
	return o.err
}

// Pieces is a ResponseWriter that is told when another piece of a body is about to be encoded, behind one that was written.
type Pieces interface{ NextPiece() }

// chunks are buffers for pieces that wait: one that grew until it is known whether
// to compress would stay large for as long as its client reads.
var chunks sync.Pool

func getChunk() []byte {
	if b, ok := chunks.Get().(*[]byte); ok {
		return (*b)[:0]
	}
	return make([]byte, 0, chunk+chunk/4)
}

func putChunk(b []byte) {
	if cap(b) <= 2*chunk {
		chunks.Put(&b)
	}
}

// start sends the header of a body that is longer than the buffer, and what waits.
func (o *output) start() {
	if o.mayGzip {
		h := o.w.Header()
		h.Set("Content-Encoding", "gzip")
		h.Add("Vary", "Accept-Encoding")
		o.gz = gzips.Get().(*gzip.Writer)
		o.gz.Reset(&o.zipped)
	} else if o.length > 0 {
		o.w.Header().Set("Content-Length", strconv.Itoa(o.length))
	}
	o.begin()
}

// begin sends the header and what waits.
func (o *output) begin() {
	o.started = true
	o.w.WriteHeader(o.code)
	for _, b := range o.early {
		o.writeOf(b)
		if o.err == nil {
			putChunk(b)
		}
	}
	o.early, o.waiting = nil, 0
}

func (o *output) write() {
	o.writeOf(o.buf)
	o.buf = o.buf[:0]
}

func (o *output) writeOf(b []byte) {
	switch {
	case o.err != nil || len(b) == 0:
	case o.gz == nil:
		_, o.err = o.w.Write(b)
	default:
		if _, o.err = o.gz.Write(b); o.err == nil {
			o.send()
		}
	}
}

// send writes what has been compressed.
func (o *output) send() {
	_, o.err = o.w.Write(o.zipped)
	o.zipped = o.zipped[:0]
}

// finish sends the rest. The output must not be used after it.
func (o *output) finish() error {
	if !o.started {
		if n := o.waiting + len(o.buf); o.mayGzip && n > gzipAbove {
			o.start()
		} else {
			o.w.Header().Set("Content-Length", strconv.Itoa(n))
			o.begin()
		}
	}
	o.write()
	if o.gz != nil {
		if err := o.gz.Close(); o.err == nil {
			o.err = err
		}
		if o.err == nil {
			o.send()
		}
		o.gz.Reset(nil)
		gzips.Put(o.gz)
	}
	err := o.err
	o.release()
	return err
}

// release gives up an output of which nothing may be sent any more. After a failed
// write its buffers are not used again: on HTTP/2 a write returns when its stream is
// closed, while the connection may still be sending what it was given, and that must
// not become somebody else's answer.
func (o *output) release() {
	buf, zipped := o.buf, o.zipped
	if o.err != nil {
		buf, zipped = nil, nil
	}
	if cap(buf) > 4*chunk {
		buf = nil
	}
	if cap(zipped) > 4*chunk {
		zipped = nil
	}
	*o = output{buf: buf[:0], zipped: zipped[:0]}
	outputs.Put(o)
}
