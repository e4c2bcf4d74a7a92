package codec

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"sync"
	"unicode/utf8"
	"unsafe"
)

// errFloat is returned for numbers that JSON cannot say.
var errFloat = errors.New("number is NaN or infinite")

// metadataOrder is the order in which upstream's Go type has the fields of
// metadata; selfLink has a place although nobody sets it any more.
var metadataOrder = [...]string{
	"name", "generateName", "namespace", "selfLink", "uid", "resourceVersion", "generation",
	"creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds", "labels", "annotations",
	"ownerReferences", "finalizers", "managedFields",
}

// revisionSlot is the place of resourceVersion in metadataOrder.
const revisionSlot = 5

// encoder appends canonical JSON: the bytes that encoding/json would make of the
// tree, but for the order of the fields that Encode names.
type encoder struct {
	b      []byte
	keys   []string // of the maps that are open
	offset int      // of the resourceVersion's digits
	stored bool     // an object is stored, and not shown
}

var encoders = sync.Pool{New: func() any { return new(encoder) }}

func getEncoder() *encoder {
	e := encoders.Get().(*encoder)
	e.b, e.keys, e.offset, e.stored = e.b[:0], e.keys[:0], 0, false
	return e
}

func putEncoder(e *encoder) {
	clear(e.keys[:cap(e.keys)])
	if cap(e.b) <= 256<<10 && cap(e.keys) <= 4096 {
		encoders.Put(e)
	}
}

// slotMode says what becomes of metadata.resourceVersion.
type slotMode int

const (
	slotEmpty slotMode = iota // always there, without digits
	slotKeep                  // as in the tree
)

// object appends a whole object. skipType leaves kind and apiVersion out,
// otherwise they come first.
func (e *encoder) object(obj map[string]any, skipType bool, mode slotMode) error {
	e.stored = mode == slotEmpty
	e.b = append(e.b, '{')
	if !skipType {
		for _, name := range [...]string{"kind", "apiVersion"} {
			if s, ok := obj[name].(string); ok {
				e.comma()
				e.name(name)
				e.str(s)
			}
		}
	}
	metaValue, hasMeta := obj["metadata"]
	meta, isMap := metaValue.(map[string]any)
	if hasMeta && metaValue != nil && !isMap {
		return fmt.Errorf("metadata is %T, not an object", metaValue)
	}
	if hasMeta || mode == slotEmpty {
		e.comma()
		e.b = append(e.b, `"metadata":`...)
		if err := e.metadata(meta, mode); err != nil {
			return err
		}
	}
	base := len(e.keys)
	for k := range obj {
		switch k {
		case "metadata", "kind", "apiVersion":
		default:
			e.keys = append(e.keys, k)
		}
	}
	if err := e.sorted(obj, base); err != nil {
		return err
	}
	e.b = append(e.b, '}')
	return nil
}

// metadata appends an object's metadata in upstream's order; what upstream does
// not know comes last.
func (e *encoder) metadata(meta map[string]any, mode slotMode) error {
	e.b = append(e.b, '{')
	known := 0
	for i, name := range metadataOrder {
		v, ok := meta[name]
		if ok {
			known++
		}
		if i == revisionSlot && mode == slotEmpty {
			e.comma()
			e.b = append(e.b, `"resourceVersion":"`...)
			e.offset = len(e.b)
			e.b = append(e.b, '"')
			continue
		}
		if !ok {
			continue
		}
		e.comma()
		e.name(name)
		if err := e.value(v, 2); err != nil {
			return err
		}
	}
	if known < len(meta) {
		base := len(e.keys)
		for k := range meta {
			if !slices.Contains(metadataOrder[:], k) {
				e.keys = append(e.keys, k)
			}
		}
		if err := e.sorted(meta, base); err != nil {
			return err
		}
	}
	e.b = append(e.b, '}')
	return nil
}

func (e *encoder) comma() {
	if e.b[len(e.b)-1] != '{' {
		e.b = append(e.b, ',')
	}
}

// name appends a name that needs no escaping.
func (e *encoder) name(s string) {
	e.b = append(e.b, '"')
	e.b = append(e.b, s...)
	e.b = append(e.b, '"', ':')
}

// sorted appends the fields of m whose names are in e.keys from base on, sorted.
func (e *encoder) sorted(m map[string]any, base int) error {
	return e.fields(m, base, 1)
}

func (e *encoder) fields(m map[string]any, base, depth int) error {
	slices.Sort(e.keys[base:])
	for i, end := base, len(e.keys); i < end; i++ {
		k := e.keys[i]
		e.comma()
		e.str(k)
		e.b = append(e.b, ':')
		if err := e.value(m[k], depth+1); err != nil {
			return err
		}
	}
	e.keys = e.keys[:base]
	return nil
}

func (e *encoder) value(v any, depth int) error {
	if depth > maxDepth {
		return errors.New("exceeded max depth")
	}
	switch v := v.(type) {
	case string:
		e.str(v)
	case map[string]any:
		if v == nil {
			e.b = append(e.b, "null"...)
			return nil
		}
		e.b = append(e.b, '{')
		base := len(e.keys)
		for k := range v {
			e.keys = append(e.keys, k)
		}
		if err := e.fields(v, base, depth); err != nil {
			return err
		}
		e.b = append(e.b, '}')
	case []any:
		if v == nil {
			e.b = append(e.b, "null"...)
			return nil
		}
		e.b = append(e.b, '[')
		for i, x := range v {
			if i > 0 {
				e.b = append(e.b, ',')
			}
			if err := e.value(x, depth+1); err != nil {
				return err
			}
		}
		e.b = append(e.b, ']')
	case int64:
		e.b = strconv.AppendInt(e.b, v, 10)
	case bool:
		e.b = strconv.AppendBool(e.b, v)
	case nil:
		e.b = append(e.b, "null"...)
	case float64:
		return e.float(v)
	case int:
		e.b = strconv.AppendInt(e.b, int64(v), 10)
	case int32:
		e.b = strconv.AppendInt(e.b, int64(v), 10)
	default:
		raw, err := json.Marshal(v)
		if err != nil {
			return err
		}
		e.b = append(e.b, raw...)
	}
	return nil
}

// float writes numbers as encoding/json does, which follows ECMAScript.
func (e *encoder) float(f float64) error {
	if f == 0 && e.stored {
		f = 0 // and not -0: upstream reads what it has stored, as the integer 0
	}
	if math.IsInf(f, 0) || math.IsNaN(f) {
		return errFloat
	}
	format := byte('f')
	if abs := math.Abs(f); abs != 0 && (abs < 1e-6 || abs >= 1e21) {
		format = 'e'
	}
	e.b = strconv.AppendFloat(e.b, f, format, -1, 64)
	if n := len(e.b); format == 'e' && n >= 4 && e.b[n-4] == 'e' && (e.b[n-3] == '-' || e.b[n-3] == '+') && e.b[n-2] == '0' {
		e.b[n-2] = e.b[n-1]
		e.b = e.b[:n-1]
	}
	return nil
}

func (e *encoder) str(s string) { e.b = appendString(e.b, s) }

// plain are the bytes that stand for themselves in a string, with Go's HTML
// escaping.
var plain = func() (t [256]bool) {
	for c := 0x20; c < utf8.RuneSelf; c++ {
		t[c] = c != '"' && c != '\\' && c != '<' && c != '>' && c != '&'
	}
	return t
}()

const hexDigits = "0123456789abcdef"

// plainText returns how many bytes at the start of s stand for themselves. It
// looks at eight bytes at a time, as plainPrefix does; the quote and the ampersand
// differ in one bit, and so do the angle brackets.
func plainText(s string) int {
	b := unsafe.Slice(unsafe.StringData(s), len(s))
	i := 0
	for ; i+8 <= len(b); i += 8 {
		w := binary.LittleEndian.Uint64(b[i:])
		quote, slash, angle := (w|ones*0x04)^(ones*'&'), w^(ones*'\\'), (w|ones*0x02)^(ones*'>')
		if (w|(w-ones*0x20)|(quote-ones)&^quote|(slash-ones)&^slash|(angle-ones)&^angle)&highs != 0 {
			break
		}
	}
	for i < len(b) && plain[b[i]] {
		i++
	}
	return i
}

// appendString appends s as a JSON string with encoding/json's escapes.
func appendString(b []byte, s string) []byte {
	b = append(b, '"')
	start := 0
	for i := 0; i < len(s); {
		i += plainText(s[i:])
		if i == len(s) {
			break
		}
		c := s[i]
		if c < utf8.RuneSelf {
			b = append(b, s[start:i]...)
			switch c {
			case '"', '\\':
				b = append(b, '\\', c)
			case '\b':
				b = append(b, '\\', 'b')
			case '\f':
				b = append(b, '\\', 'f')
			case '\n':
				b = append(b, '\\', 'n')
			case '\r':
				b = append(b, '\\', 'r')
			case '\t':
				b = append(b, '\\', 't')
			default:
				b = append(b, '\\', 'u', '0', '0', hexDigits[c>>4], hexDigits[c&15])
			}
			i++
			start = i
			continue
		}
		r, n := utf8.DecodeRuneInString(s[i:])
		switch {
		case r == utf8.RuneError && n == 1:
			b = append(b, s[start:i]...)
			b = append(b, `\ufffd`...)
			start = i + n
		case r == '\u2028' || r == '\u2029': // JavaScript takes them for line ends
			b = append(b, s[start:i]...)
			b = append(b, '\\', 'u', '2', '0', '2', hexDigits[r&15])
			start = i + n
		}
		i += n
	}
	b = append(b, s[start:]...)
	return append(b, '"')
}
