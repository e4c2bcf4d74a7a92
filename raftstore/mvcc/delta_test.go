package mvcc

import (
	"bytes"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"unsafe"

	"github.com/quorate/quorate/proto"
)

func TestDelta(t *testing.T) {
	object := []byte(`{"metadata":{"name":"cm-000001","namespace":"b","resourceVersion":"17","labels":{"app":"a","round":"1"}},"data":{"value":"` +
		string(bytes.Repeat([]byte("0123456789abcdef"), 64)) + `"}}`)
	changed := bytes.Replace(bytes.Replace(object, []byte(`"17"`), []byte(`"123456"`), 1), []byte(`"round":"1"`), []byte(`"round":"2"`), 1)
	random := make([]byte, 2000)
	rng := rand.New(rand.NewPCG(1, 2))
	for i := range random {
		random[i] = byte(rng.Uint32())
	}
	long := bytes.Repeat(random, 100)
	same := bytes.Repeat([]byte("01234567"), 50)
	edited := append(append(append([]byte{}, long[:70_000]...), "something else"...), long[70_500:]...)
	for _, c := range []struct {
		what       string
		base, text []byte
		most       int // of the delta's bytes; -1: there is none
	}{
		{"nothing of nothing", nil, nil, 0},
		{"something of nothing", nil, []byte("0123456789"), 11},
		{"nothing of something", object, nil, 0},
		{"the same", object, object, 4},
		{"two changes", object, changed, 40},
		{"less than a gram", []byte("abc"), []byte("abcd"), 5},
		{"a base of one gram", []byte("01234567"), []byte("x01234567"), 5},
		{"other bytes before a gram", []byte("b01234567"), []byte("101234567"), 5},
		{"bytes before a place that is not indexed", long[:longest+2], append([]byte("x"), long[1001:1031]...), 6},
		{"the last gram of a base", random, append([]byte("x"), random[len(random)-gram:]...), 6},
		{"one gram of the longest base that is indexed in full", long[:longest], append([]byte("x"), long[1001:1001+gram]...), 6},
		{"bytes in a text that repeats itself", same, append(append(bytes.Clone(same[:101]), 'x'), same[102:]...), 10},
		{"the end", object, object[len(object)-100:], 40},
		{"what is in no way alike", object, random, -1},
		{"a long one", long, edited, 600},
	} {
		var x deltaIndex
		x.reset(c.base)
		most := c.most
		if most < 0 {
			most = len(c.text) * 3 / 4
		}
		delta := x.append([]byte("x"), c.text, most)
		if c.most < 0 {
			if delta != nil {
				t.Errorf("%s: the delta has %d bytes", c.what, len(delta))
			}
			continue
		}
		if delta == nil || len(delta)-1 > most {
			t.Errorf("%s: the delta has %d bytes, want at most %d", c.what, len(delta)-1, most)
			continue
		}
		got, err := appendDelta([]byte("y"), string(delta[1:]), c.base)
		if err != nil || !bytes.Equal(got[1:], c.text) {
			t.Errorf("%s: got %d bytes of %d, %v", c.what, len(got)-1, len(c.text), err)
		}
	}
}

// TestBrokenDeltas: what is not of its base is told, and copies nothing from outside of it.
func TestBrokenDeltas(t *testing.T) {
	base := []byte("01234567")
	for _, c := range []struct{ delta, want string }{
		{"", ""},
		{"\x02ab", "ab"},
		{"\x00\x08\x00", "01234567"},
		{"\x01a\x03\x0a\x01b", "a567b"},
		{"\x00\x02\x0c\x01b\x01\x0d", "67b1"}, // goes back by seven
		{"\x03ab", "error"},
		{"\x00\x09\x00", "error"},
		{"\x00\x04\x0a", "error"},
		{"\x00\x01\x10", "error"},
		{"\x00\x01\x12", "error"},
		{"\x00\x01\x01", "error"},
	} {
		got, err := appendDelta(nil, c.delta, base[:8:8])
		if (err != nil) != (c.want == "error") || err == nil && string(got) != c.want {
			t.Errorf("%x makes %q, %v, want %q", c.delta, got, err, c.want)
		}
	}
}

// TestLengths: what is no length is none, and no length is negative.
func TestLengths(t *testing.T) {
	long := strings.Repeat("\xff", 8)
	for _, c := range []struct {
		text string
		n    int
		rest string
	}{
		{"", 0, ""},
		{"\x00", 0, ""},
		{"\x7fx", 127, "x"},
		{"\x80\x01\x80", 128, "\x80"},
		{"\x80", 0, ""},
		{long + "\x7fx", math.MaxInt, "x"},
		{long + "\xff\x01", 0, ""},
		{long + "\xff", 0, ""},
	} {
		if n, rest := uvarint(c.text); n != c.n || rest != c.rest {
			t.Errorf("%x begins with %d before %q, want %d before %q", c.text, n, rest, c.n, c.rest)
		}
	}
}

func FuzzDelta(f *testing.F) {
	f.Add([]byte("aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"), []byte("aaaaaaaaaaaaaaaaaabaaaaaaaaaaaaa"))
	f.Add([]byte("0123456789"), []byte("x0123456789y0123456789"))
	f.Add([]byte("89abcdef01234567"), []byte("0123456789abcdef"))
	var x deltaIndex
	f.Fuzz(func(t *testing.T, base, text []byte) {
		x.reset(base)
		delta := x.append(nil, text, math.MaxInt)
		got, err := appendDelta(nil, string(delta), base)
		if err != nil || !bytes.Equal(got, text) {
			t.Fatalf("of %q the delta %q makes %q, want %q, %v", base, delta, got, text, err)
		}
		// What is no delta ends in an error or in some text, and in neither a panic nor a copy without end.
		if got, _ := appendDelta(nil, string(text), base); len(got) > (len(text)+1)*(len(base)+1) {
			t.Fatalf("%q makes %d bytes of %q", text, len(got), base)
		}
	})
}

func TestAttributes(t *testing.T) {
	for _, n := range []int{0, 1, 2, fewPairs, fewPairs + 1, 500} {
		var in []Pair
		for i := range n {
			in = append(in, Pair{fmt.Sprintf("name-%03d", 2*i), fmt.Sprint("value ", i)})
		}
		rand.New(rand.NewPCG(1, 1)).Shuffle(n, func(i, j int) { in[i], in[j] = in[j], in[i] })
		a := AttributesOf(in...)
		if a.Len() != n || len(a.records()) != n {
			t.Errorf("%d pairs are %d and %d", n, a.Len(), len(a.records()))
		}
		for i := -1; i <= 2*n; i++ {
			name := fmt.Sprintf("name-%03d", i)
			want, has := fmt.Sprint("value ", i/2), i >= 0 && i%2 == 0 && i/2 < n
			if !has {
				want = ""
			}
			if got, ok := a.Get(name); got != want || ok != has || a.Has(name) != has {
				t.Errorf("of %d, %s is %q, %v", n, name, got, ok)
			}
		}
		i := 0
		for name, value := range a.All() {
			if name != fmt.Sprintf("name-%03d", 2*i) || value != fmt.Sprint("value ", i) {
				t.Errorf("of %d, the %d. is %s: %s", n, i, name, value)
			}
			i++
		}
		if i != n {
			t.Errorf("of %d there are %d", n, i)
		}
	}
	twice := AttributesOf(Pair{"b", "1"}, Pair{"a", "2"}, Pair{"b", "3"})
	if v, _ := twice.Get("b"); v != "1" || twice.Len() != 2 {
		t.Errorf("a name that comes twice is %q, in %d pairs", v, twice.Len())
	}
	if one := AttributesOf(Pair{"a", "1"}, Pair{"a", "2"}); one != AttributesOf(Pair{"a", "1"}) {
		t.Errorf("a name that comes twice in a row makes %d pairs", one.Len())
	}
	// Equal ones share their bytes, unless they are longer than others are likely to be.
	for _, size := range []int{longAttributes, longAttributes + 1} {
		var p packer
		in := []*proto.Attribute{{Name: "a", Value: strings.Repeat("v", size-5)}} // beside number, name and lengths
		one, other := p.pack(in, Attributes{}), p.pack(in, Attributes{})
		shared := unsafe.StringData(one.packed) == unsafe.StringData(other.packed)
		if len(one.packed) != size || one != other || shared != (size <= longAttributes) {
			t.Errorf("two of %d bytes, want %d: they share them: %v", len(one.packed), size, shared)
		}
	}
	if AttributesOf(Pair{"a", "b"}, Pair{"c", "d"}) != AttributesOf(Pair{"c", "d"}, Pair{"a", "b"}) {
		t.Error("the order of pairs makes a difference")
	}
}
