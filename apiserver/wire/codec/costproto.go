package codec

import (
	"encoding/binary"
	"reflect"
	"strconv"
	"strings"
	"sync"

	"github.com/quorate/quorate/apiserver/types/kinds"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// grown is how much larger than its elements a list is while they are appended: half of the new
// array is empty, and the old one is still there.
const grown = 3

// field weights of protobuf: of any field that is there, and of an entry of a map, whose Go
// form is decoded, written as JSON and decoded again.
const (
	protoField = 300
	protoEntry = 600
)

// layout says what a message of a Go type is made of. It is immutable.
type layout struct {
	size   int64
	fields []*layoutField // by number; nil for those that there are none of
}

type layoutField struct {
	cost    int64
	message *layout // nil: not a message
	entry   bool    // of a map: message is its value's
	json    bool    // JSON as bytes, which becomes a part of the tree
}

// goTypes are the types of the built-in kinds.
var goTypes = scheme.AllKnownTypes()

// layouts are those of the types that were seen; there are as many as the scheme has.
var layouts = struct {
	sync.Mutex
	of map[reflect.Type]*layout
}{of: map[reflect.Type]*layout{}}

func layoutOf(t reflect.Type) *layout {
	layouts.Lock()
	defer layouts.Unlock()
	return layoutLocked(t)
}

// layoutLocked needs layouts. Types may be within themselves.
func layoutLocked(t reflect.Type) *layout {
	if l := layouts.of[t]; l != nil {
		return l
	}
	l := &layout{size: int64(t.Size())}
	layouts.of[t] = l
	if t.Kind() == reflect.Slice { // as a value of a map: a message with the elements
		l.set(1, &layoutField{cost: protoField + grown*int64(t.Elem().Size())})
		return l
	}
	for i := range t.NumField() {
		f := t.Field(i)
		parts := strings.Split(f.Tag.Get("protobuf"), ",")
		if len(parts) < 2 {
			continue
		}
		if number, err := strconv.ParseUint(parts[1], 10, 16); err == nil {
			l.set(int(number), fieldLocked(f.Type, f.Name))
		}
	}
	return l
}

func (l *layout) set(number int, f *layoutField) {
	for len(l.fields) <= number {
		l.fields = append(l.fields, nil)
	}
	l.fields[number] = f
}

// field is that of a number, or nil.
func (l *layout) field(number uint64) *layoutField {
	if number >= uint64(len(l.fields)) {
		return nil
	}
	return l.fields[number]
}

func fieldLocked(t reflect.Type, name string) *layoutField {
	f := &layoutField{cost: protoField}
	switch {
	case t.Kind() == reflect.Map:
		f.cost, f.entry = protoEntry+grown*int64(t.Key().Size()+t.Elem().Size()), true
		t = t.Elem()
	case t.Kind() == reflect.Slice && t.Elem().Kind() == reflect.Uint8:
		f.json = name == "Raw"
		return f
	case t.Kind() == reflect.Slice:
		t = t.Elem()
		f.cost += grown * int64(t.Size())
	}
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
		f.cost += int64(t.Size())
	}
	if t.Kind() == reflect.Struct || f.entry && t.Kind() == reflect.Slice && t.Elem().Kind() != reflect.Uint8 {
		f.cost += wholeBuiltin.object
		f.message = layoutLocked(t)
	}
	return f
}

// costOfProtobuf is that of a document; of one that cannot be read, that of its bytes.
func costOfProtobuf(body []byte, res *kinds.Resource) int64 {
	cost := int64(len(body)) * wholeBuiltin.raw
	raw, gvk, ok := unwrap(body)
	if !ok {
		return cost
	}
	if gvk.Kind == "" && res != nil {
		gvk.Kind = res.Kind
	}
	if gvk.Version == "" && res != nil {
		gvk.Group, gvk.Version = res.Group, res.Version
	}
	t := goTypes[gvk]
	if t == nil {
		m, err := newMessage(gvk)
		if err != nil {
			return cost
		}
		t = reflect.TypeOf(m).Elem()
	}
	w := costWalk{left: 2*MaxCost + 1 - cost}
	l := layoutOf(t)
	w.left -= l.size
	w.message(raw, l, 0)
	return 2*MaxCost + 1 - w.left
}

// costWalk sums up until nothing is left.
type costWalk struct{ left int64 }

func (w *costWalk) message(b []byte, l *layout, depth int) {
	for at := 0; at < len(b) && w.left > 0 && depth < maxDepth; {
		tag, next, size, has := uint64(b[at]), 2, 0, true
		if at+1 < len(b) && tag < 0x80 && tag&7 == 2 && b[at+1] < 0x80 { // nearly all of them
			size = int(b[at+1])
		} else {
			tag, _ = binary.Uvarint(b[at:])
			next, size, has = field(b[at:])
		}
		if next == 0 || size > len(b)-at-next {
			return
		}
		at += next
		inner := b[at : at+size]
		at += size
		f := l.field(tag >> 3)
		if f == nil {
			continue // it is skipped when it is decoded
		}
		w.left -= f.cost
		switch {
		case !has:
		case f.json:
			w.left -= costOfJSON(inner, &wholeBuiltin)
		case f.entry:
			w.entry(inner, f, depth+1)
		case f.message != nil:
			w.message(inner, f.message, depth+1)
		}
	}
}

// entry is a message of a key (1) and a value (2), which may be a message.
func (w *costWalk) entry(b []byte, f *layoutField, depth int) {
	if f.message == nil {
		return
	}
	value := layout{fields: []*layoutField{2: {message: f.message}}}
	w.message(b, &value, depth)
}

// unwrap finds the message in a document, and what kind it says that it is.
func unwrap(body []byte) (raw []byte, gvk schema.GroupVersionKind, ok bool) {
	if len(body) < len(magic) || string(body[:len(magic)]) != string(magic) {
		return nil, gvk, false
	}
	var apiVersion, kind string
	each(body[len(magic):], func(number uint64, inner []byte) {
		switch number {
		case 1:
			each(inner, func(number uint64, text []byte) {
				switch number {
				case 1:
					apiVersion = string(text)
				case 2:
					kind = string(text)
				}
			})
		case 2:
			raw = inner
		}
	})
	return raw, schema.FromAPIVersionAndKind(apiVersion, kind), true
}

// each calls f for the fields of a message that have a length.
func each(b []byte, f func(number uint64, inner []byte)) {
	for at := 0; at < len(b); {
		tag, _ := binary.Uvarint(b[at:])
		next, size, has := field(b[at:])
		if next == 0 {
			return
		}
		at += next
		if has {
			f(tag>>3, b[at:at+size])
		}
		at += size
	}
}
