package discovery

import (
	"bytes"
	"crypto/sha512"
	"encoding/json"
	"fmt"
	"sync"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"sigs.k8s.io/yaml"
)

// document is one answer, encoded on first demand in each format.
type document struct {
	object runtime.Object

	once  [formats]sync.Once
	bytes [formats][]byte
	err   [formats]error

	tagOnce sync.Once
	tag     string
	tagErr  error
}

type format int

const (
	formatJSON format = iota
	formatYAML
	formatProtobuf
	formats
)

var mediaTypes = [formats]string{"application/json", "application/yaml", "application/vnd.kubernetes.protobuf"}

// encoded returns the shared bytes; they are not to be changed.
func (d *document) encoded(f format) ([]byte, error) {
	d.once[f].Do(func() { d.bytes[f], d.err[f] = encode(d.object, f) })
	if d.err[f] != nil {
		return nil, fmt.Errorf("encode discovery as %s: %w", mediaTypes[f], d.err[f])
	}
	return d.bytes[f], nil
}

// etag is the SHA-512 of the content, upper-case hex in quotes. It is the same in
// every format, and on every node that serves the same resources.
func (d *document) etag() (string, error) {
	d.tagOnce.Do(func() {
		var data []byte
		if data, d.tagErr = d.encoded(formatJSON); d.tagErr == nil {
			d.tag = fmt.Sprintf("\"%X\"", sha512.Sum512(data))
		}
	})
	return d.tag, d.tagErr
}

func encode(object runtime.Object, f format) ([]byte, error) {
	if f == formatProtobuf {
		var buf bytes.Buffer
		s := protobuf.NewSerializer(nil, nil)
		if err := s.Encode(object, &buf); err != nil {
			return nil, err
		}
		return buf.Bytes(), nil
	}
	data, err := json.Marshal(object)
	if err != nil {
		return nil, err
	}
	if f == formatYAML {
		return yaml.JSONToYAML(data)
	}
	return append(data, '\n'), nil
}
