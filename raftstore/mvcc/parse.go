package mvcc

import (
	"unicode/utf8"

	"github.com/quorate/quorate/proto"
	"google.golang.org/protobuf/encoding/protowire"
)

// Parser parses the bodies of writes one after the other, in a fraction of the time that package
// protobuf needs: every node parses every entry. What is unusual is protobuf's: a write with
// ranges of rules, with usage or limits, or with anything that is not known here. The zero Parser
// is ready; it is not safe for concurrent use.
type Parser struct {
	write  proto.Write // the usual write, again and again
	guards [2]proto.Guard
	made   []*proto.Attribute // for labels and fields, in turns

	text   []byte
	labels []attribute
	fields []attribute
}

// What a Parser keeps for the next write at most: the longest write there has been would else take
// memory for ever, in every state machine.
const (
	keptAttributes = 256
	keptText       = 64 << 10
)

// attribute is a label or field in the bytes that are parsed.
type attribute struct{ name, value []byte }

// writeTexts are the texts of a usual write, but for labels and fields.
type writeTexts struct {
	table, key, expectUID, uid []byte
	guards                     [2]attribute // table and key
	seen                       uint32       // the numbers of the fields that cannot be repeated
}

func (t *writeTexts) has(number protowire.Number) bool { return t.seen>>number&1 != 0 }

// Parse is proto.Decode of a write. What it returns is valid until the next call, and its value
// and request id are part of the body; its texts may be kept.
func (p *Parser) Parse(body []byte) (*proto.Write, error) {
	if len(p.made) > keptAttributes || cap(p.text) > keptText {
		*p = Parser{}
	}
	if p.usual(body) {
		return &p.write, nil
	}
	w := new(proto.Write)
	if err := proto.Decode(body, w); err != nil {
		return nil, err
	}
	return w, nil
}

// usual parses a usual write into p.write and reports whether it was one. If not, what is there
// means nothing.
func (p *Parser) usual(b []byte) bool {
	var t writeTexts
	w := &p.write
	w.Op, w.Condition, w.ExpectRevision, w.RevisionOffset, w.Flags = 0, 0, 0, 0, 0
	w.Since, w.Term, w.DecidedAt, w.Rules, w.EnforceLimits = 0, 0, 0, 0, false
	w.Value, w.RequestId = nil, nil
	p.labels, p.fields = p.labels[:0], p.fields[:0]
	// Of a number that comes again the last one counts (proto.InTerm), as in protobuf.
	for len(b) > 0 {
		number, form, n := protowire.ConsumeTag(b)
		if n < 0 {
			return false
		}
		b = b[n:]
		switch form {
		case protowire.VarintType:
			v, n := protowire.ConsumeVarint(b)
			if n < 0 || !setNumber(w, number, v) {
				return false
			}
			b = b[n:]
		case protowire.BytesType:
			v, n := protowire.ConsumeBytes(b)
			if n < 0 || !p.setBytes(&t, number, v) {
				return false
			}
			b = b[n:]
		default:
			return false
		}
	}
	return p.setTexts(&t)
}

// setNumber sets a field that is a number.
func setNumber(w *proto.Write, number protowire.Number, v uint64) bool {
	small := v <= 1<<31-1 // enums and 32 bits: the rest is protobuf's
	switch number {
	case 3:
		w.Op = proto.Op(v)
	case 4:
		w.Condition = proto.Condition(v)
	case 5:
		w.ExpectRevision, small = v, true
	case 9:
		w.RevisionOffset = uint32(v)
	case 13:
		w.Flags = uint32(v)
	case 15:
		w.Since, small = v, true
	case 16:
		w.Term, small = v, true
	case 18:
		w.DecidedAt, small = v, true
	case 19:
		w.Rules = uint32(v)
	case 23:
		w.EnforceLimits, small = v == 1, v <= 1
	default:
		return false
	}
	return small
}

// setBytes notes a field that is text, bytes or a message.
func (p *Parser) setBytes(t *writeTexts, number protowire.Number, v []byte) bool {
	if t.has(number) {
		return false // guards are merged then, and what a text replaces must be text too
	}
	ok := true
	switch number {
	case 1:
		t.table = v
	case 2:
		t.key = v
	case 6:
		t.expectUID = v
	case 7:
		t.guards[0], ok = parseAttribute(v)
	case 17:
		t.guards[1], ok = parseAttribute(v)
	case 8:
		p.write.Value = v[:len(v):len(v)]
	case 10:
		t.uid = v
	case 11, 12:
		a, ok := parseAttribute(v)
		if number == 11 {
			p.labels = append(p.labels, a)
		} else {
			p.fields = append(p.fields, a)
		}
		return ok
	case 14:
		p.write.RequestId = v[:len(v):len(v)]
	default:
		return false
	}
	t.seen |= 1 << number
	return ok
}

// parseAttribute parses a message of two texts with the numbers 1 and 2, as Attribute and Guard are.
func parseAttribute(b []byte) (a attribute, ok bool) {
	for len(b) > 0 {
		number, form, n := protowire.ConsumeTag(b)
		if n < 0 || form != protowire.BytesType || number > 2 {
			return a, false
		}
		to := &a.name
		if number == 2 {
			to = &a.value
		}
		v, m := protowire.ConsumeBytes(b[n:])
		if m < 0 || *to != nil {
			return a, false
		}
		*to, b = v, b[n+m:]
	}
	return a, true
}

// setTexts makes the texts of the write, all of them parts of one string. It reports whether they
// are texts.
func (p *Parser) setTexts(t *writeTexts) bool {
	ok := true
	add := func(text []byte) {
		ok = ok && utf8.Valid(text)
		p.text = append(p.text, text...)
	}
	p.text = p.text[:0]
	for _, text := range [...][]byte{t.table, t.key, t.expectUID, t.uid, t.guards[0].name, t.guards[0].value, t.guards[1].name, t.guards[1].value} {
		add(text)
	}
	for _, list := range [...][]attribute{p.labels, p.fields} {
		for _, a := range list {
			add(a.name)
			add(a.value)
		}
	}
	if !ok {
		return false
	}
	text := string(p.text)
	next := func(n int) (out string) {
		out, text = text[:n], text[n:]
		return out
	}
	w := &p.write
	w.Table, w.Key, w.ExpectUid, w.Uid = next(len(t.table)), next(len(t.key)), next(len(t.expectUID)), next(len(t.uid))
	w.Guard, w.SecondGuard = nil, nil
	for i := range p.guards {
		p.guards[i].Table, p.guards[i].Key = next(len(t.guards[i].name)), next(len(t.guards[i].value))
	}
	if t.has(7) {
		w.Guard = &p.guards[0]
	}
	if t.has(17) {
		w.SecondGuard = &p.guards[1]
	}
	for len(p.made) < len(p.labels)+len(p.fields) {
		p.made = append(p.made, &proto.Attribute{})
	}
	for i, a := range p.labels {
		p.made[i].Name, p.made[i].Value = next(len(a.name)), next(len(a.value))
	}
	n := len(p.labels)
	for i, a := range p.fields {
		p.made[n+i].Name, p.made[n+i].Value = next(len(a.name)), next(len(a.value))
	}
	w.Labels, w.Fields = p.made[:n:n], p.made[n:n+len(p.fields):n+len(p.fields)]
	return true
}
