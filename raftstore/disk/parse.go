package disk

import (
	"slices"
	"unicode/utf8"

	"github.com/quorate/quorate/proto"
	"google.golang.org/protobuf/encoding/protowire"
)

// versionParser parses version records one after the other, in a third of the time that
// package protobuf needs: a start is made of little else. What is unusual, a record with
// usage, with limits, or with anything that is not known here, is protobuf's.
type versionParser struct {
	table      string // of the record before, which most often is this one's too
	text       []byte
	attributes []nameValue
}

// nameValue is an attribute: its name and value.
type nameValue struct{ name, value []byte }

// parse is decodeVersion into a record that was used before. Labels and fields are valid until
// the record is parsed into again; nothing aliases the payload.
func (p *versionParser) parse(payload []byte, r *proto.VersionRecord) error {
	if p.usual(payload, r) {
		return nil
	}
	r.Reset()
	return decodeVersion(payload, r)
}

// rawVersion is a version record as its fields are in the payload, but for labels and fields.
type rawVersion struct {
	table, key, value, uid, request           []byte
	revision, created, deleted, offset, flags uint64
	labels                                    int // so many of the attributes are labels
}

// usual parses a usual record and reports whether it was one. If not, what is in r means nothing.
func (p *versionParser) usual(payload []byte, r *proto.VersionRecord) bool {
	kind, b, err := proto.Split(payload)
	if err != nil || kind != proto.KindVersionRecord || r.Usage != nil || r.Limits != nil || len(r.ProtoReflect().GetUnknown()) > 0 {
		return false
	}
	var v rawVersion
	p.attributes = p.attributes[:0]
	// Fields come in the order of their numbers, as they are written; else it is protobuf's.
	for last := protowire.Number(0); len(b) > 0; {
		number, form, n := protowire.ConsumeTag(b)
		repeated := number == 9 || number == 10
		if n < 0 || number < last || number == last && !repeated {
			return false
		}
		last, b = number, b[n:]
		var bytes []byte
		var varint uint64
		switch form {
		case protowire.VarintType:
			varint, n = protowire.ConsumeVarint(b)
		case protowire.BytesType:
			bytes, n = protowire.ConsumeBytes(b)
		default:
			return false
		}
		isText := number == 3 || number == 4 || number == 6 || number == 8 || repeated || number == 12
		if n < 0 || isText != (form == protowire.BytesType) || isText && len(bytes) == 0 || !p.field(&v, number, varint, bytes) {
			return false
		}
		b = b[n:]
	}
	return p.fill(r, &v)
}

// field takes a field's value, which is a number or bytes, and reports whether the field is known.
func (p *versionParser) field(v *rawVersion, number protowire.Number, varint uint64, bytes []byte) bool {
	switch number {
	case 1:
		v.revision = varint
	case 2:
		v.created = varint
	case 3:
		v.table = bytes
	case 4:
		v.key = bytes
	case 5:
		v.deleted = varint
	case 6:
		v.value = bytes
	case 7:
		v.offset = varint
	case 8:
		v.uid = bytes
	case 9, 10:
		a, ok := usualAttribute(bytes)
		if !ok {
			return false
		}
		if p.attributes = append(p.attributes, a); number == 9 {
			v.labels++
		}
	case 11:
		v.flags = varint
	case 12:
		v.request = bytes
	default:
		return false
	}
	return true
}

// fill makes a record of its fields, and reports whether they are what a record may have.
func (p *versionParser) fill(r *proto.VersionRecord, v *rawVersion) bool {
	if v.deleted > 1 || v.offset>>32 != 0 || v.flags>>32 != 0 {
		return false
	}
	if string(v.table) != p.table {
		if !utf8.Valid(v.table) {
			return false
		}
		p.table = string(v.table)
	}
	// All other texts are parts of one string.
	p.text = append(append(p.text[:0], v.key...), v.uid...)
	for _, a := range p.attributes {
		p.text = append(append(p.text, a.name...), a.value...)
		if !utf8.Valid(a.name) || !utf8.Valid(a.value) {
			return false
		}
	}
	if !utf8.Valid(v.key) || !utf8.Valid(v.uid) {
		return false
	}
	text := string(p.text)
	next := func(n int) (out string) {
		out, text = text[:n], text[n:]
		return out
	}
	r.Revision, r.CreateRevision, r.Table = v.revision, v.created, p.table
	r.Key, r.Uid = next(len(v.key)), next(len(v.uid))
	r.Deleted, r.RevisionOffset, r.Flags = v.deleted == 1, uint32(v.offset), uint32(v.flags)
	r.Value, r.RequestId = slices.Clone(v.value), append(r.RequestId[:0], v.request...)
	r.Labels = setAttributes(r.Labels, p.attributes[:v.labels], next)
	r.Fields = setAttributes(r.Fields, p.attributes[v.labels:], next)
	return true
}

func usualAttribute(b []byte) (a nameValue, ok bool) {
	for last := protowire.Number(0); len(b) > 0; {
		number, form, n := protowire.ConsumeTag(b)
		if n < 0 || form != protowire.BytesType || number <= last || number > 2 {
			return a, false
		}
		last, b = number, b[n:]
		text, n := protowire.ConsumeBytes(b)
		if n < 0 {
			return a, false
		}
		b = b[n:]
		if number == 1 {
			a.name = text
		} else {
			a.value = text
		}
	}
	return a, true
}

// setAttributes takes the attributes that a record had for the new ones.
func setAttributes(to []*proto.Attribute, from []nameValue, next func(int) string) []*proto.Attribute {
	to = to[:min(len(from), cap(to))]
	for len(to) < len(from) {
		to = append(to, nil)
	}
	for i, a := range from {
		if to[i] == nil {
			to[i] = &proto.Attribute{}
		}
		to[i].Name, to[i].Value = next(len(a.name)), next(len(a.value))
	}
	return to
}
