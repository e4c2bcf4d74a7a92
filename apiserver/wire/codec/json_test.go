package codec

import (
	"bytes"
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	"github.com/quorate/quorate/internal/must"
	kjson "sigs.k8s.io/json"
)

// documents are seeds of the fuzz test and rows of the comparison with
// sigs.k8s.io/json, right and wrong ones.
var documents = []string{
	`{}`, `[]`, `null`, `true`, ` { "a" : [ 1 , 2.5 , -0 , 1e3, -1.5E-7 , 1e21, 123456789012345678901234567890 ] } `,
	`{"a":"x\n\t\"\\\/\b\f\r\u00e9\ud83d\ude00\ud800 \u2028","b":"é日本"}`, `{"a":1,"a":2}`, `{"a":{"b":[{"c":1,"c":2}]},"a":3}`,
	"{\"a\":\"\xff\xfe ok\"}", "\"\xe2\x28\xa1\"", `{"a":01}`, `{"a":1.}`, `{"a":.5}`, `{"a":1e}`, `{"a":+1}`, `{"a":-}`, `{"a":1e999}`,
	`{"a":}`, `{"a"}`, `{"a":1,}`, `[1,]`, `[1 2]`, `{,}`, `{"a":tru}`, `"\u12"`, `"\x"`, "\"a\nb\"", `"abc`, ``, ` `, `{} {}`, `{"a":1}x`,
	`9223372036854775807`, `9223372036854775808`, `-9223372036854775808`, `-9223372036854775809`, `0.1`, `"\ud800\u0041"`, `"\ud83d\ude0"`,
	`{"long":"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\naaaaaaaaaaaaaaaaaaaaa<&>"}`, strings.Repeat("[", 200) + strings.Repeat("]", 200),
}

func TestParseJSONAgreesWithUpstream(t *testing.T) {
	deep := strings.Repeat(`{"a":`, maxDepth+1) + "1" + strings.Repeat("}", maxDepth+1)
	for _, d := range append([]string{deep, deep[5 : len(deep)-1]}, documents...) {
		compareWithUpstream(t, d)
	}
}

func compareWithUpstream(t *testing.T, d string) {
	t.Helper()
	var want any
	strict, wantErr := kjson.UnmarshalStrict([]byte(d), &want, kjson.DisallowDuplicateFields)
	got, duplicates, err := parseJSON(d)
	if (err != nil) != (wantErr != nil) || err != nil && err.Error() != wantErr.Error() {
		t.Fatalf("%.200q: error %v, upstream %v", d, err, wantErr)
	}
	if err == nil && !reflect.DeepEqual(got, want) {
		t.Fatalf("%.200q: got %#v, upstream %#v", d, got, want)
	}
	if len(duplicates) != len(strict) {
		t.Fatalf("%.200q: duplicates %q, upstream %v", d, duplicates, strict)
	}
	for i := range strict {
		if duplicates[i] != strict[i].Error() {
			t.Errorf("%.200q: duplicate %q, upstream %q", d, duplicates[i], strict[i])
		}
	}
	// The own parser must do all the work for documents without mistakes.
	p := parser{s: d}
	if tree, ok := p.document(); ok != (wantErr == nil) || ok && !reflect.DeepEqual(tree, want) {
		t.Fatalf("%.200q: own parser: %v, %#v; upstream %v, %#v", d, ok, tree, wantErr, want)
	}
	if err == nil {
		compareEncoding(t, got)
	}
}

// compareEncoding checks that the encoder writes what encoding/json writes.
func compareEncoding(t *testing.T, tree any) {
	t.Helper()
	want, err := json.Marshal(tree)
	if err != nil {
		return // encoding/json bounds the depth of what it writes
	}
	e := getEncoder()
	defer putEncoder(e)
	must.OK(t, e.value(tree, 0))
	if !bytes.Equal(e.b, want) {
		t.Fatalf("encoded %s, encoding/json %s", e.b, want)
	}
}

func FuzzParseJSON(f *testing.F) {
	for _, d := range documents {
		f.Add(d)
	}
	f.Fuzz(func(t *testing.T, d string) { compareWithUpstream(t, d) })
}

func TestPlainPrefixFindsEveryByte(t *testing.T) {
	for c := range 256 {
		for at := range 20 {
			s := strings.Repeat("a", at) + string([]byte{byte(c)}) + "bbbbbbbbbbb\""
			want := at
			if c >= 0x20 && c < 0x80 && c != '"' && c != '\\' {
				want = len(s) - 1
			}
			if got := plainPrefix(s); got != want {
				t.Fatalf("byte %#x at %d: prefix %d, want %d", c, at, got, want)
			}
		}
	}
}

func TestEncodeOrderAndSlot(t *testing.T) {
	rows := []struct{ in, want string }{
		{`{}`, `{"metadata":{"resourceVersion":""}}`},
		{`{"metadata":null,"b":1,"a":{"d":1,"c":2}}`, `{"metadata":{"resourceVersion":""},"a":{"c":2,"d":1},"b":1}`},
		{`{"kind":"K","apiVersion":"v1","data":{},"metadata":{"zeta":1,"managedFields":[],"labels":{"b":"1","a":"2"},"uid":"u","resourceVersion":"77","name":"n","namespace":"ns","generateName":"g","annotations":{},"generation":3,"deletionTimestamp":"t","creationTimestamp":null,"alpha":2,"finalizers":["f"],"ownerReferences":[],"deletionGracePeriodSeconds":0}}`,
			`{"metadata":{"name":"n","generateName":"g","namespace":"ns","uid":"u","resourceVersion":"","generation":3,"creationTimestamp":null,"deletionTimestamp":"t","deletionGracePeriodSeconds":0,"labels":{"a":"2","b":"1"},"annotations":{},"ownerReferences":[],"finalizers":["f"],"managedFields":[],"alpha":2,"zeta":1},"data":{}}`},
		{`{"metadata":{"name":"<a&b>"},"x":1.0,"y":1e21}`, `{"metadata":{"name":"\u003ca\u0026b\u003e","resourceVersion":""},"x":1,"y":1e+21}`},
	}
	for _, row := range rows {
		tree, _, err := parseJSON(row.in)
		must.OK(t, err)
		got, offset, err := Encode(tree.(map[string]any))
		must.OK(t, err)
		if string(got) != row.want {
			t.Errorf("encode %s\n got %s\nwant %s", row.in, got, row.want)
		}
		if before := string(got[:offset]); !strings.HasSuffix(before, `"resourceVersion":"`) || got[offset] != '"' {
			t.Errorf("encode %s: slot at %d", row.in, offset)
		}
		if cap(got) != len(got) {
			t.Errorf("encode %s: %d bytes in a slice of %d", row.in, len(got), cap(got))
		}
	}
	if _, _, err := Encode(map[string]any{"metadata": "text"}); err == nil {
		t.Error("metadata that is no object was encoded")
	}
}

func BenchmarkDecode(b *testing.B) {
	body := []byte(readFile(b, "configmap.json"))
	b.Run("codec", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, err := Decode(JSON, body, configMaps); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("sigs", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			var tree any
			if err := kjson.UnmarshalCaseSensitivePreserveInts(body, &tree); err != nil {
				b.Fatal(err)
			}
		}
	})
}

func BenchmarkEncode(b *testing.B) {
	tree, _, err := parseJSON(readFile(b, "configmap.json"))
	if err != nil {
		b.Fatal(err)
	}
	b.Run("codec", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, _, err := Encode(tree.(map[string]any)); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("encoding/json", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, err := json.Marshal(tree); err != nil {
				b.Fatal(err)
			}
		}
	})
}

func TestPlainTextFindsEveryByte(t *testing.T) {
	for c := range 256 {
		for at := range 20 {
			s := strings.Repeat("a", at) + string([]byte{byte(c)}) + "bbbbbbbbbbb\""
			want := at
			if plain[c] {
				want = len(s) - 1
			}
			if got := plainText(s); got != want {
				t.Fatalf("byte %#x at %d: prefix %d, want %d", c, at, got, want)
			}
		}
	}
}
