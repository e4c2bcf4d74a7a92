package codec

import (
	"fmt"

	"github.com/quorate/quorate/apiserver/types/kinds"
	"github.com/quorate/quorate/proto"
	"github.com/quorate/quorate/raftstore/mvcc"
)

// InForm is a version as it would be if it were stored in the form of res, with
// the content obj: what this package is given in place of a version that only others
// can convert. It has no Prev. obj is not changed.
func InForm(res *kinds.Resource, v *mvcc.Version, obj map[string]any) (*mvcc.Version, error) {
	value, offset, err := Encode(obj)
	if err != nil {
		return nil, fmt.Errorf("convert %s %s: %w", res.Plural, v.Key, err)
	}
	labels, fields := res.Attributes(obj)
	return (&mvcc.Version{
		Key: v.Key, Revision: v.Revision, CreateRevision: v.CreateRevision, Deleted: v.Deleted, Flags: v.Flags,
		RevisionOffset: offset,
		UID:            v.UID, Labels: attributes(labels), Fields: attributes(fields),
	}).SetValue(withRevision(value, offset, v.Revision)), nil
}

func attributes(in []*proto.Attribute) mvcc.Attributes {
	out := make([]mvcc.Pair, len(in))
	for i, a := range in {
		out[i] = mvcc.Pair{Name: a.Name, Value: a.Value}
	}
	return mvcc.AttributesOf(out...)
}
