package codec

import (
	"fmt"

	"github.com/quorate/quorate/raftstore/mvcc"
)

// RawMetadata returns the part of a stored value that is the object's metadata,
// as JSON. It must not be changed.
func RawMetadata(v *mvcc.Version) ([]byte, error) { return metadataOf(v.Key, v.Value()) }

// ParseMetadata decodes what RawMetadata returned. The strings of the tree are
// parts of raw: who keeps one keeps all of it.
func ParseMetadata(raw []byte) (map[string]any, error) {
	tree, _, err := parseJSON(stringOf(raw))
	if err != nil {
		return nil, fmt.Errorf("decode stored metadata: %w", err)
	}
	meta, ok := tree.(map[string]any)
	if !ok {
		return nil, fmt.Errorf("decode stored metadata: not an object")
	}
	return meta, nil
}
