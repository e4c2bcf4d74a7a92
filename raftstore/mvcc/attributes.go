package mvcc

import (
	"encoding/binary"
	"iter"
	"slices"
	"strings"

	"github.com/cespare/xxhash/v2"
	"github.com/quorate/quorate/proto"
)

// Pair is a label or a selectable field.
type Pair struct{ Name, Value string }

// Attributes are pairs sorted by name. They can be compared by ==. Names are unique but for
// those of facts, which may have several values: Get then returns the first one.
//
// They are one string, since a state has many of them: of two labels it takes 32 bytes, where
// a slice of pairs with four strings took 130, in five pieces that the collector had to mark.
// Its parts are the number of pairs; the offset of each from the first, in four bytes, if they
// are too many to look at one by one; and for each the name and the value, each behind its
// length. Lengths and the number are varints.
type Attributes struct{ packed string }

// fewPairs are looked through one by one.
const fewPairs = 8

// AttributesOf packs pairs. Of pairs with the same name the first one counts.
func AttributesOf(pairs ...Pair) Attributes {
	return Attributes{string(appendAttributes(nil, len(pairs), func(i int) (name, value string) { return pairs[i].Name, pairs[i].Value }))}
}

// appendAttributes appends the packed form of n pairs; of none it is empty.
func appendAttributes(b []byte, n int, pair func(int) (name, value string)) []byte {
	if n == 0 {
		return b
	}
	sorted := true
	for i := 1; i < n && sorted; i++ {
		before, _ := pair(i - 1)
		name, _ := pair(i)
		sorted = before < name
	}
	if sorted {
		return appendPairs(b, n, pair)
	}
	order := make([]int, n)
	for i := range order {
		order[i] = i
	}
	name := func(i int) string { name, _ := pair(i); return name }
	slices.SortStableFunc(order, func(i, j int) int { return strings.Compare(name(i), name(j)) })
	order = slices.CompactFunc(order, func(i, j int) bool { return name(i) == name(j) })
	return appendPairs(b, len(order), func(i int) (name, value string) { return pair(order[i]) })
}

// appendPairs is appendAttributes of pairs that are sorted by name. Some may have the same name.
func appendPairs(b []byte, n int, pair func(int) (name, value string)) []byte {
	b = binary.AppendUvarint(b, uint64(n))
	table := len(b)
	if n > fewPairs {
		b = append(b, make([]byte, 4*n)...)
	}
	first := len(b)
	for i := range n {
		if n > fewPairs {
			binary.LittleEndian.PutUint32(b[table+4*i:], uint32(len(b)-first))
		}
		name, value := pair(i)
		b = append(binary.AppendUvarint(b, uint64(len(name))), name...)
		b = append(binary.AppendUvarint(b, uint64(len(value))), value...)
	}
	return b
}

// uvarint takes a length off the beginning of s.
func uvarint(s string) (n int, rest string) {
	for i, shift := 0, 0; i < len(s) && shift < 63; i, shift = i+1, shift+7 {
		n |= int(s[i]&0x7f) << shift
		if s[i] < 0x80 {
			return n, s[i+1:]
		}
	}
	return 0, ""
}

// text takes a text behind its length off the beginning of s.
func text(s string) (t, rest string) {
	n, rest := uvarint(s)
	return rest[:n], rest[n:]
}

// Len is the number of pairs.
func (a Attributes) Len() int {
	n, _ := uvarint(a.packed)
	return n
}

// Get returns the value of a name.
func (a Attributes) Get(name string) (string, bool) {
	n, rest := uvarint(a.packed)
	if n > fewPairs {
		table, pairs := rest[:4*n], rest[4*n:]
		from, to := 0, n
		for from < to {
			mid := int(uint(from+to) >> 1)
			if has, _ := text(pairs[offset(table, mid):]); has < name {
				from = mid + 1
			} else {
				to = mid
			}
		}
		if from == n {
			return "", false
		}
		n, rest = 1, pairs[offset(table, from):]
	}
	for range n {
		var has, value string
		has, rest = text(rest)
		value, rest = text(rest)
		if has == name {
			return value, true
		}
	}
	return "", false
}

func offset(table string, i int) uint32 {
	i *= 4
	return uint32(table[i]) | uint32(table[i+1])<<8 | uint32(table[i+2])<<16 | uint32(table[i+3])<<24
}

// Has and Lookup make Attributes usable as k8s.io/apimachinery labels.Labels
// (and, with Get's first result, fields.Fields) without a dependency on it.
func (a Attributes) Has(name string) bool {
	_, ok := a.Get(name)
	return ok
}

// Lookup is Get under the name that selectors use.
func (a Attributes) Lookup(name string) (string, bool) { return a.Get(name) }

// All are the names and values in the order of names.
func (a Attributes) All() iter.Seq2[string, string] {
	return func(yield func(string, string) bool) {
		n, rest := uvarint(a.packed)
		if n > fewPairs {
			rest = rest[4*n:]
		}
		for range n {
			var name, value string
			name, rest = text(rest)
			if value, rest = text(rest); !yield(name, value) {
				return
			}
		}
	}
}

// records is the stored form.
func (a Attributes) records() []*proto.Attribute {
	n := a.Len()
	if n == 0 {
		return nil
	}
	all := make([]proto.Attribute, n)
	out := make([]*proto.Attribute, 0, n)
	for name, value := range a.All() {
		p := &all[len(out)]
		p.Name, p.Value = name, value
		out = append(out, p)
	}
	return out
}

// packer makes Attributes. Objects that belong together have the same ones: equal ones that come
// soon after each other share their bytes. What it remembers is bounded. It is of the writer.
type packer struct {
	room   []byte
	recent [512]string
}

// longAttributes are not remembered: nothing of them is likely to come again.
const longAttributes = 512

// pack packs what a write or a record has. like are those of the version before.
func (p *packer) pack(in []*proto.Attribute, like Attributes) Attributes {
	if len(in) == 0 {
		return Attributes{}
	}
	p.room = appendAttributes(p.room[:0], len(in), func(i int) (name, value string) { return in[i].Name, in[i].Value })
	b := p.room
	switch {
	case string(b) == like.packed:
		return like
	case len(b) > longAttributes:
		p.room = nil
		return Attributes{string(b)}
	}
	slot := &p.recent[xxhash.Sum64(b)%uint64(len(p.recent))]
	if *slot != string(b) {
		*slot = string(b)
	}
	return Attributes{*slot}
}
