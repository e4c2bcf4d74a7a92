package openapi

import (
	"bytes"
	"crypto/sha512"
	"fmt"
	"sync"

	"github.com/klauspost/compress/gzip"
)

// blob is bytes that are made on first demand and kept, with their compressed form.
type blob struct {
	build func() ([]byte, error)

	once sync.Once
	data []byte
	err  error

	zipOnce sync.Once
	zipped  []byte
}

func (b *blob) plain() ([]byte, error) {
	b.once.Do(func() { b.data, b.err = b.build() })
	return b.data, b.err
}

// compressed must be called after plain succeeded.
func (b *blob) compressed() []byte {
	b.zipOnce.Do(func() {
		var buf bytes.Buffer
		w, err := gzip.NewWriterLevel(&buf, gzip.BestSpeed)
		if err != nil {
			panic(err) // the level is a constant
		}
		_, _ = w.Write(b.data) // a bytes.Buffer does not fail
		_ = w.Close()
		b.zipped = buf.Bytes()
	})
	return b.zipped
}

// document is one OpenAPI document in both formats.
type document struct {
	json, protobuf blob

	// name, if set, makes what stands for the content, so that this need not be built to
	// know whether it is another one. Otherwise the content itself does.
	name func() (string, error)

	hashOnce sync.Once
	sum      string
	err      error
}

func newDocument(build func() ([]byte, error), toProtobuf func([]byte) ([]byte, error)) *document {
	d := &document{}
	d.json.build = build
	d.protobuf.build = func() ([]byte, error) {
		data, err := d.json.plain()
		if err != nil {
			return nil, err
		}
		if data, err = toProtobuf(data); err != nil {
			return nil, fmt.Errorf("encode OpenAPI as protobuf: %w", err)
		}
		return data, nil
	}
	return d
}

// hash is the SHA-512 of the JSON form, or of what stands for it, in upper-case hex. It
// names both forms: the answers vary by Accept.
func (d *document) hash() (string, error) {
	d.hashOnce.Do(func() {
		var data []byte
		if d.name == nil {
			data, d.err = d.json.plain()
		} else {
			var name string
			name, d.err = d.name()
			data = []byte(name)
		}
		if d.err == nil {
			d.sum = fmt.Sprintf("%X", sha512.Sum512(data))
		}
	})
	return d.sum, d.err
}
