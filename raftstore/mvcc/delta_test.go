package mvcc

import (
	"bytes"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
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
	if AttributesOf(Pair{"a", "b"}, Pair{"c", "d"}) != AttributesOf(Pair{"c", "d"}, Pair{"a", "b"}) {
		t.Error("the order of pairs makes a difference")
	}
}
