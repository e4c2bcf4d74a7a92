package objects

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/quorate/quorate/proto"
	"github.com/quorate/quorate/raftstore/mvcc"
)

// expiresField is stored beside an object that expires, among the values of its
// selectable fields: the end of its time in Unix seconds. It is no field that a
// selector can name, and as a part of the entry it is the same on all nodes. A
// write of the object sets it again; an update that changes nothing does not.
const expiresField = "\x00expires"

func (s *Store) withExpiry(fields []*proto.Attribute) []*proto.Attribute {
	end := s.Now().Add(s.EventTTL + time.Second - time.Nanosecond).Unix()
	fields = append(fields, &proto.Attribute{Name: expiresField, Value: strconv.FormatInt(end, 10)})
	slices.SortFunc(fields, func(a, b *proto.Attribute) int { return strings.Compare(a.Name, b.Name) })
	return fields
}

// Expired reports whether a version has outlived its time.
func Expired(v *mvcc.Version, now int64) bool {
	value, ok := v.Fields.Get(expiresField)
	end, err := strconv.ParseInt(value, 10, 64)
	return ok && err == nil && end <= now
}
