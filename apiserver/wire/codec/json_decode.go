package codec

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"math"
	"strconv"
	"strings"
	"sync"
	"unicode/utf16"
	"unicode/utf8"
	"unsafe"

	kjson "sigs.k8s.io/json"
)

// maxDepth of nesting is encoding/json's own bound, so that the parsers here
// and there refuse the same documents.
const maxDepth = 10000

// parser reads JSON into trees of map[string]any, []any, string, int64, float64 or json.Number,
// bool and nil. It knows right documents only: whatever it does not understand
// it leaves to sigs.k8s.io/json, which then finds the words for the mistake (or
// parses it after all). The strings of the tree are parts of the input.
type parser struct {
	s     string
	i     int
	dup   bool // an object had a name twice
	float bool // a number was no int64
	keep  numbers
	nodes int   // objects and arrays
	stack []any // elements of the arrays that are still open
	buf   []byte
}

// numbers says what becomes of numbers that are no int64.
type numbers int

const (
	// floats makes them float64, as upstream has them in what it knows no type of.
	floats numbers = iota
	// texts keeps them as json.Number: what the field is decides. An integer may have no fraction then, and a quantity is
	// what was sent.
	texts
	// wholeOrTexts is texts for what upstream has read as float64 before it looks at the field: those that are whole are int64.
	wholeOrTexts
)

var parsers = sync.Pool{New: func() any { return new(parser) }}

// parseJSON parses one document. Duplicates are in the words of upstream's
// strict decoder. The tree refers to s.
func parseJSON(s string) (tree any, duplicates []string, err error) {
	tree, _, duplicates, err = parseNumbers(s, floats)
	return tree, duplicates, err
}

// parseNumbers is parseJSON. kept reports whether the tree may have a json.Number.
func parseNumbers(s string, keep numbers) (tree any, kept bool, duplicates []string, err error) {
	tree, dup, float, ok := parseFast(s, keep)
	kept = ok && float && keep != floats
	if ok && !dup {
		return tree, kept, nil, nil
	}
	if tree == errTooMany {
		return nil, false, nil, errTooMany
	}
	var read any
	strict, err := kjson.UnmarshalStrict([]byte(s), &read, kjson.DisallowDuplicateFields)
	if err != nil {
		return nil, false, nil, err
	}
	if !ok {
		tree = read
	}
	for _, e := range strict {
		duplicates = append(duplicates, e.Error())
	}
	return tree, kept, duplicates, nil
}

// parseFast parses a right document: whether objects had a name twice, and whether
// there was a number that is no int64. If it has too many nodes, tree is errTooMany, and
// nobody else should try.
func parseFast(s string, keep numbers) (tree any, dup, float, ok bool) {
	p := parsers.Get().(*parser)
	p.s, p.i, p.dup, p.float, p.keep, p.nodes = s, 0, false, false, keep, 0
	tree, ok = p.document()
	if p.nodes > maxMessages {
		tree, ok = errTooMany, false
	}
	dup, float = p.dup, p.float
	p.s = ""
	clear(p.stack[:cap(p.stack)])
	p.stack = p.stack[:0]
	if cap(p.stack) <= 1024 && cap(p.buf) <= 64<<10 {
		parsers.Put(p)
	}
	return tree, dup, float, ok
}

// parseJSONAsYAML parses a YAML document that is JSON, an object, and means the same
// in both. YAML is what the Content-Type of an apply says, JSON is what its clients
// send, and a parser of YAML takes ten times as long. What YAML reads otherwise or not at
// all is left to it: numbers with a fraction (1.0 is whole), some characters and escapes.
// Two things it would refuse pass: keys of more than 1024 bytes, and lines that end
// before a colon.
func parseJSONAsYAML(body []byte) (map[string]any, bool) {
	if len(body) == 0 || body[0] != '{' || !utf8.Valid(body) {
		return nil, false
	}
	for _, other := range otherInYAML {
		if bytes.Contains(body, other) {
			return nil, false
		}
	}
	tree, dup, float, ok := parseFast(string(body), floats)
	if !ok || dup || float {
		return nil, false
	}
	obj, err := object(tree)
	return obj, err == nil && CheckType(obj) == nil
}

// otherInYAML is what strings of JSON may have and those of YAML may not, or have
// another meaning for.
var otherInYAML = [][]byte{
	[]byte(`\/`), []byte(`\ud`), []byte(`\uD`), {0x7f}, []byte("\u0085"), []byte("\u2028"), []byte("\u2029"), []byte("\ufeff"), []byte("\ufffe"), []byte("\uffff"),
}

// stringOf is b as a string without a copy; b must never change again.
func stringOf(b []byte) string { return unsafe.String(unsafe.SliceData(b), len(b)) }

func (p *parser) document() (any, bool) {
	v, ok := p.value(0)
	if !ok {
		return nil, false
	}
	p.space()
	return v, p.i == len(p.s)
}

func (p *parser) space() {
	for p.i < len(p.s) {
		switch p.s[p.i] {
		case ' ', '\t', '\n', '\r':
			p.i++
		default:
			return
		}
	}
}

func (p *parser) value(depth int) (any, bool) {
	p.space()
	if p.i == len(p.s) || depth > maxDepth {
		return nil, false
	}
	switch c := p.s[p.i]; {
	case c == '"':
		s, ok := p.str()
		return s, ok
	case c == '{' || c == '[':
		if p.nodes++; p.nodes > maxMessages {
			return nil, false
		}
		if c == '[' {
			return p.array(depth + 1)
		}
		return p.object(depth + 1)
	case c == '-' || c >= '0' && c <= '9':
		return p.number()
	case c == 't':
		return true, p.word("true")
	case c == 'f':
		return false, p.word("false")
	case c == 'n':
		return nil, p.word("null")
	}
	return nil, false
}

func (p *parser) word(w string) bool {
	if !strings.HasPrefix(p.s[p.i:], w) {
		return false
	}
	p.i += len(w)
	return true
}

func (p *parser) object(depth int) (any, bool) {
	p.i++
	m := make(map[string]any)
	p.space()
	if p.i < len(p.s) && p.s[p.i] == '}' {
		p.i++
		return m, true
	}
	for {
		p.space()
		if p.i == len(p.s) || p.s[p.i] != '"' {
			return nil, false
		}
		key, ok := p.str()
		if !ok {
			return nil, false
		}
		p.space()
		if p.i == len(p.s) || p.s[p.i] != ':' {
			return nil, false
		}
		p.i++
		v, ok := p.value(depth)
		if !ok {
			return nil, false
		}
		n := len(m)
		m[key] = v
		if len(m) == n {
			p.dup = true
		}
		p.space()
		if p.i == len(p.s) {
			return nil, false
		}
		c := p.s[p.i]
		p.i++
		switch c {
		case ',':
		case '}':
			return m, true
		default:
			return nil, false
		}
	}
}

func (p *parser) array(depth int) (any, bool) {
	p.i++
	p.space()
	if p.i < len(p.s) && p.s[p.i] == ']' {
		p.i++
		return []any{}, true
	}
	base := len(p.stack)
	for {
		v, ok := p.value(depth)
		if !ok {
			return nil, false
		}
		p.stack = append(p.stack, v)
		p.space()
		if p.i == len(p.s) {
			return nil, false
		}
		c := p.s[p.i]
		p.i++
		switch c {
		case ',':
		case ']':
			out := make([]any, len(p.stack)-base)
			copy(out, p.stack[base:])
			p.stack = p.stack[:base]
			return out, true
		default:
			return nil, false
		}
	}
}

func (p *parser) number() (any, bool) {
	start := p.i
	s := p.s
	i := start
	if s[i] == '-' {
		i++
	}
	digits := i
	for i < len(s) && s[i] >= '0' && s[i] <= '9' {
		i++
	}
	if i == digits || s[digits] == '0' && i > digits+1 {
		return nil, false
	}
	integer := true
	if i < len(s) && s[i] == '.' {
		integer = false
		i++
		from := i
		for i < len(s) && s[i] >= '0' && s[i] <= '9' {
			i++
		}
		if i == from {
			return nil, false
		}
	}
	if i < len(s) && (s[i] == 'e' || s[i] == 'E') {
		integer = false
		i++
		if i < len(s) && (s[i] == '+' || s[i] == '-') {
			i++
		}
		from := i
		for i < len(s) && s[i] >= '0' && s[i] <= '9' {
			i++
		}
		if i == from {
			return nil, false
		}
	}
	p.i = i
	if integer {
		if n, err := strconv.ParseInt(s[start:i], 10, 64); err == nil {
			return n, true
		}
	}
	p.float = true
	if p.keep == texts {
		return json.Number(s[start:i]), true
	}
	f, err := strconv.ParseFloat(s[start:i], 64)
	if p.keep == floats {
		return f, err == nil
	}
	if n := int64(f); err == nil && float64(n) == f && math.Abs(f) <= 1<<53 {
		return n, true
	}
	return json.Number(s[start:i]), true
}

const (
	ones  = 0x0101010101010101
	highs = 0x8080808080808080
)

// plainPrefix returns how many bytes at the start of s are neither a quote, a
// backslash, a control character nor part of a multi-byte character. It looks
// at eight bytes at a time: in the word w, (w-k*ones)&^w has the high bit of a
// byte set if the byte is below k (and, after a borrow, perhaps in higher
// bytes: the lowest bit set is always right).
func plainPrefix(s string) int {
	b := unsafe.Slice(unsafe.StringData(s), len(s))
	i := 0
	for ; i+8 <= len(b); i += 8 {
		w := binary.LittleEndian.Uint64(b[i:])
		quote, slash := w^(ones*'"'), w^(ones*'\\')
		if (w|(w-ones*0x20)|(quote-ones)&^quote|(slash-ones)&^slash)&highs != 0 {
			break
		}
	}
	for ; i < len(b); i++ {
		if c := b[i]; c < 0x20 || c >= utf8.RuneSelf || c == '"' || c == '\\' {
			break
		}
	}
	return i
}

// str reads a string; p.i is at the opening quote.
func (p *parser) str() (string, bool) {
	start := p.i + 1
	i := start + plainPrefix(p.s[start:])
	if i < len(p.s) && p.s[i] == '"' {
		p.i = i + 1
		return p.s[start:i], true
	}
	return p.longStr(start, i)
}

// longStr reads a string that has more than plain ASCII from i on.
func (p *parser) longStr(start, i int) (string, bool) {
	s := p.s
	from := start // what is not yet in buf
	p.buf = p.buf[:0]
	for i < len(s) {
		switch c := s[i]; {
		case c == '"':
			p.i = i + 1
			if from == start {
				return s[start:i], true
			}
			p.buf = append(p.buf, s[from:i]...)
			return string(p.buf), true
		case c == '\\':
			p.buf = append(p.buf, s[from:i]...)
			n, ok := p.escape(s[i:])
			if !ok {
				return "", false
			}
			i += n
			from = i
		case c < 0x20:
			return "", false
		case c < utf8.RuneSelf:
			i += plainPrefix(s[i:])
		default:
			r, n := utf8.DecodeRuneInString(s[i:])
			if r == utf8.RuneError && n == 1 {
				p.buf = append(p.buf, s[from:i]...)
				p.buf = append(p.buf, "\ufffd"...)
				from = i + 1
			}
			i += n
		}
	}
	return "", false
}

// escape appends what the escape at the start of s stands for and returns its
// length. A lone surrogate becomes U+FFFD.
func (p *parser) escape(s string) (int, bool) {
	if len(s) < 2 {
		return 0, false
	}
	switch c := s[1]; c {
	case '"', '\\', '/':
		p.buf = append(p.buf, c)
	case 'b':
		p.buf = append(p.buf, '\b')
	case 'f':
		p.buf = append(p.buf, '\f')
	case 'n':
		p.buf = append(p.buf, '\n')
	case 'r':
		p.buf = append(p.buf, '\r')
	case 't':
		p.buf = append(p.buf, '\t')
	case 'u':
		r := hex4(s)
		if r < 0 {
			return 0, false
		}
		if utf16.IsSurrogate(r) {
			if both := utf16.DecodeRune(r, hex4(s[6:])); both != utf8.RuneError {
				p.buf = utf8.AppendRune(p.buf, both)
				return 12, true
			}
			r = utf8.RuneError
		}
		p.buf = utf8.AppendRune(p.buf, r)
		return 6, true
	default:
		return 0, false
	}
	return 2, true
}

// hex4 is the value of \uXXXX at the start of s, or -1.
func hex4(s string) rune {
	if len(s) < 6 || s[0] != '\\' || s[1] != 'u' {
		return -1
	}
	var r rune
	for _, c := range []byte(s[2:6]) {
		switch {
		case c >= '0' && c <= '9':
			c -= '0'
		case c >= 'a' && c <= 'f':
			c -= 'a' - 10
		case c >= 'A' && c <= 'F':
			c -= 'A' - 10
		default:
			return -1
		}
		r = r<<4 | rune(c)
	}
	return r
}
