package codec

import (
	"strconv"
	"strings"

	"github.com/quorate/quorate/apiserver/kinds"
	"github.com/quorate/quorate/apiserver/tree"
	"github.com/quorate/quorate/proto"
	"github.com/quorate/quorate/raftstore/mvcc"
)

type direction bool

const (
	toStored   direction = true
	fromStored direction = false
)

// moved returns obj with the fields of the other version. All fields are taken
// out before any is put back, so that moves may exchange fields. Maps on the
// paths are copied, the rest is shared with obj.
func moved(res *kinds.Resource, obj map[string]any, d direction) map[string]any {
	out := make(map[string]any, len(obj))
	for k, v := range obj {
		out[k] = v
	}
	taken := make([]any, len(res.Moves))
	found := make([]bool, len(res.Moves))
	for i, m := range res.Moves {
		from := m.From
		if d == fromStored {
			from = m.To
		}
		taken[i], found[i] = take(out, strings.Split(from, "."))
	}
	for i, m := range res.Moves {
		to := m.To
		if d == fromStored {
			to = m.From
		}
		if found[i] {
			put(out, strings.Split(to, "."), taken[i])
		}
	}
	return out
}

// converted is moved, and what else leads to the other version.
func converted(res *kinds.Resource, obj map[string]any, d direction) (map[string]any, error) {
	switch {
	case res.Conversion == "":
		return moved(res, obj, d), nil
	case d == toStored:
		return res.ToStored(obj)
	}
	return res.FromStored(obj)
}

// Convert returns an object of one version of a resource in another; obj itself is
// not changed, but shares what is not moved.
func Convert(obj map[string]any, from, to *kinds.Resource) (map[string]any, error) {
	stored, err := converted(from, obj, toStored)
	if err != nil {
		return nil, err
	}
	out, err := converted(to, stored, fromStored)
	if err != nil {
		return nil, err
	}
	out["kind"], out["apiVersion"] = to.Kind, to.GroupVersion().String()
	return out, nil
}

// take removes the field at path. m itself may be changed, what is below is
// copied first.
func take(m map[string]any, path []string) (any, bool) {
	v, ok := m[path[0]]
	if !ok {
		return nil, false
	}
	if len(path) == 1 {
		delete(m, path[0])
		return v, true
	}
	child, ok := v.(map[string]any)
	if !ok {
		return nil, false
	}
	child = tree.Clone(child)
	v, ok = take(child, path[1:])
	if ok {
		m[path[0]] = child
	}
	return v, ok
}

func put(m map[string]any, path []string, v any) {
	if len(path) == 1 {
		m[path[0]] = v
		return
	}
	child, _ := m[path[0]].(map[string]any)
	child = tree.Clone(child)
	m[path[0]] = child
	put(child, path[1:], v)
}

// moveValue is a version in stored form with the fields of res.
func moveValue(res *kinds.Resource, v *mvcc.Version, rev proto.Revision) ([]byte, error) {
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
