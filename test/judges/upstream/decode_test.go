package upstream

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	apiobjects "github.com/quorate/quorate/apiserver/objects"
	"github.com/quorate/quorate/apiserver/types/kinds"
	"github.com/quorate/quorate/apiserver/types/schema"
	"github.com/quorate/quorate/apiserver/types/tree"
	"github.com/quorate/quorate/internal/must"
	"github.com/quorate/quorate/test/judges/random"
	"k8s.io/apimachinery/pkg/runtime"
	apischema "k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
)

// odd are values in JSON, or what nearly is, that take the place of others.
var odd = strings.Fields(`null true false 0 -0 1 -1 1.0 1.5 1e3 1E400 -1e-400 9223372036854775807 9223372036854775808 -9223372036854775809 2147483648
123456789012345678901234567890 "" "x" "1" "1Gi" "1e3" "0x10" "true" "null" "1m" "-1" "9999999999999999999999" "1E" "1Ei" "0.0000000001" [] {} [null] [[]] [{}] {"a":null} {"a":1}
"\ud800" "\ud83d\ude00" "\u0000" "\/" "\x41" "2026-01-02T03:04:05Z" "2026-01-02T03:04:05+07:00" "2026-01-02" "1h" "AAE=" "AAE" "-_8=" 01 +1 .5 1. NaN nul "a ["a","a"] {"":""}`)

// change is something odd about one field of a body, or one item of a list.
type change struct {
	value  string // in the place of its own
	name   func(string) string
	twice  bool // once as it is, and once more with value
	absent bool
}

// names change the name of a field into one that is nearly it.
var names = []func(string) string{
	strings.ToUpper, func(s string) string { return s + " " }, func(s string) string { return s + "\x00" },
	func(s string) string { return strings.ReplaceAll(s, "s", "ſ") }, func(string) string { return "" },
}

func randomChange(c *rand.Rand) change {
	x := change{value: odd[c.IntN(len(odd))]}
	switch c.IntN(10) {
	case 0:
		x.absent = true
	case 1:
		// Of a second object, of a null and of a list of objects, upstream makes one with the first (docs/differences.md).
		x.twice = x.value[0] != '{' && x.value != "null" && !strings.HasPrefix(x.value, "[{")
	case 2:
		x.name = names[c.IntN(len(names))]
	}
	return x
}

// printer writes a tree as JSON, with changes at some of its places, which are counted in its order. Kinds and versions
// are no places: another kind is for the path.
type printer struct {
	bytes.Buffer
	at      int
	changes map[int]change
}

func (p *printer) plain(v any) {
	text, _ := json.Marshal(v) // of a tree it cannot fail
	p.Write(text)
}

func (p *printer) value(v any) {
	switch v := v.(type) {
	case tree.Object:
		p.WriteByte('{')
		for _, name := range slices.Sorted(maps.Keys(v)) {
			if name == "kind" || name == "apiVersion" {
				p.item(name, nil, func() { p.plain(v[name]) })
				continue
			}
			p.place(name, v[name])
		}
		p.WriteByte('}')
	case []any:
		p.WriteByte('[')
		for _, x := range v {
			p.place("", x)
		}
		p.WriteByte(']')
	default:
		p.plain(v)
	}
}

// item writes a field, or an item if it has no name, behind a comma where one is needed.
func (p *printer) item(name string, rename func(string) string, value func()) {
	if last := p.Bytes()[p.Len()-1]; last != '{' && last != '[' {
		p.WriteByte(',')
	}
	if name != "" {
		if rename != nil {
			name = rename(name)
		}
		p.plain(name)
		p.WriteByte(':')
	}
	value()
}

func (p *printer) place(name string, v any) {
	c, changed := p.changes[p.at]
	p.at++
	own, other := func() { p.value(v) }, func() { p.WriteString(c.value) }
	switch {
	case !changed, c.name != nil:
		p.item(name, c.name, own)
	case c.absent:
	case c.twice:
		p.item(name, nil, own)
		p.item(name, nil, other)
	default:
		p.item(name, nil, other)
	}
}

// oddBody is obj in JSON with something odd about it.
func oddBody(c *rand.Rand, obj tree.Object) []byte {
	p := &printer{}
	p.value(obj)
	changed := &printer{changes: map[int]change{}}
	for range 1 + c.IntN(2) {
		changed.changes[c.IntN(p.at)] = randomChange(c)
	}
	changed.value(obj)
	text := changed.String()
	switch c.IntN(40) {
	case 0:
		text += []string{" ", "\n\n", "x", "{}", "\x00", ","}[c.IntN(6)]
	case 1:
		text = []string{" ", "\n", "[", "\ufeff"}[c.IntN(4)] + text
	case 2:
		text = text[:c.IntN(len(text))]
	}
	return []byte(text)
}

// errUnshown is about an object that upstream takes and cannot show: what is no JSON where JSON is kept as it came.
var errUnshown = errors.New("cannot be shown")

// withoutNulls is a tree without fields that are null: of times in protobuf some are there and empty, and others are not there.
func withoutNulls(v any) {
	switch x := v.(type) {
	case tree.Object:
		for name, field := range x {
			if field == nil {
				delete(x, name)
				continue
			}
			withoutNulls(field)
		}
	case []any:
		for _, item := range x {
			withoutNulls(item)
		}
	}
}

// oddProtobuf is obj in protobuf with something odd about it: bytes that changed, went or came, in its envelope or in it.
func oddProtobuf(t *testing.T, c *rand.Rand, obj runtime.Object) []byte {
	info, ok := runtime.SerializerInfoForMediaType(legacyscheme.Codecs.SupportedMediaTypes(), runtime.ContentTypeProtobuf)
	if !ok {
		t.Fatal("no protobuf")
	}
	text, err := runtime.Encode(info.Serializer, obj)
	must.OK(t, err)
	at := c.IntN(len(text))
	switch c.IntN(8) {
	case 0:
		text[at] = byte(c.IntN(256))
	case 1:
		text[at] ^= 1 << c.IntN(8)
	case 2:
		text = text[:at]
	case 3:
		text = slices.Delete(text, at, min(at+1+c.IntN(4), len(text)))
	case 4:
		text = slices.Insert(text, at, byte(c.IntN(256)))
	case 5: // a field that nothing knows, behind the envelope's
		text = append(text, 0x9a, 0x06, 0x01, 'x')
	}
	return text
}

// decodedUpstream is a body as upstream's server decodes it to create an object, and what strict decoding finds in it.
func decodedUpstream(t *testing.T, body []byte, gvk apischema.GroupVersionKind, media string) (obj tree.Object, found []string, err error) {
	info, ok := runtime.SerializerInfoForMediaType(legacyscheme.Codecs.SupportedMediaTypes(), media)
	if !ok {
		t.Fatal(media)
	}
	decoder := legacyscheme.Codecs.DecoderToVersion(info.StrictSerializer, random.Internal(gvk))
	internal, got, err := decoder.Decode(body, &gvk, nil)
	if strict, ok := runtime.AsStrictDecodingError(err); ok && internal != nil {
		for _, e := range strict.Errors() {
			// Those of YAML are one error of several lines, which are told one by one here.
			lines := strings.Split(e.Error(), "\n")
			found = append(found, lines[min(1, len(lines)-1):]...)
		}
		err = nil
	}
	switch {
	case err != nil:
		return nil, nil, err
	case *got != gvk:
		return nil, nil, errors.New("another kind")
	}
	kept, err := random.Keep(internal, gvk)
	if err != nil {
		return nil, nil, err
	}
	kept.GetObjectKind().SetGroupVersionKind(gvk)
	if _, err := json.Marshal(kept); err != nil {
		return nil, nil, fmt.Errorf("%w: %w", errUnshown, err)
	}
	return random.Tree(t, kept), found, nil
}

func decodedHere(t *testing.T, body []byte, res *kinds.Resource, media string) (obj tree.Object, found []string, err error) {
	op := new(apiobjects.NewOp(apiobjects.Request{Store: &apiobjects.Store{Config: apiobjects.Config{Strategies: strategies}}, Resource: res, Client: true}))
	if obj, err = op.DecodeBody(media, body, res); err != nil {
		return nil, nil, err
	}
	model, err := schema.Lookup(res.Model)
	must.OK(t, err)
	if obj["metadata"] == nil { // which a create gives it
		obj["metadata"] = tree.Object{}
	}
	fillIn(t, res, model, obj)
	return obj, op.Warnings(), nil
}

// TestDecode: a body with something odd in it is taken or refused as upstream's decoders do, and is the same object.
func TestDecode(t *testing.T) {
	registry, err := kinds.Builtin()
	must.OK(t, err)
	accepted := random.Known(t, "testdata/defaults.txt")
	maps.Copy(accepted, random.Known(t, "testdata/decode.txt"))
	if testing.Short() {
		*objects = min(*objects, 60)
	}
	for _, media := range []string{runtime.ContentTypeJSON, runtime.ContentTypeYAML, runtime.ContentTypeProtobuf} {
		tried, taken := 0, 0
		for _, res := range registry.All() {
			gvk := res.GVK()
			if !legacyscheme.Scheme.Recognizes(gvk) {
				continue
			}
			found := random.Differences{}
			example := func(at, body string) {
				if found[at] == nil {
					found[at] = &random.Difference{Example: body[:min(len(body), 600)]}
				}
				found[at].Count++
			}
			for n := range *objects {
				obj, err := legacyscheme.Scheme.New(gvk)
				must.OK(t, err)
				seed := *first + int64(n)
				random.Filler{}.Fill(seed, obj)
				obj.GetObjectKind().SetGroupVersionKind(gvk)
				c := rand.New(rand.NewPCG(uint64(seed), 1))
				var body []byte
				if media == runtime.ContentTypeProtobuf {
					body = oddProtobuf(t, c, obj)
				} else {
					body = oddBody(c, random.Tree(t, obj))
				}
				theirs, strict, err := decodedUpstream(t, body, gvk, media)
				ours, warned, err2 := decodedHere(t, body, res, media)
				tried++
				switch {
				case err != nil && err2 != nil, errors.Is(err, errUnshown):
				case err != nil:
					example("refused upstream: "+short(err.Error()), string(body))
				case err2 != nil:
					example("refused here: "+short(err2.Error()), string(body))
				default:
					taken++
					if media == runtime.ContentTypeProtobuf {
						withoutNulls(theirs)
						withoutNulls(ours)
					}
					found.Compare("", theirs, ours)
					slices.Sort(strict)
					if strict = slices.Compact(strict); len(strict) != len(warned) {
						example(fmt.Sprintf("findings: upstream %q, here %q", strict, warned), string(body))
					}
				}
			}
			for _, path := range slices.Sorted(maps.Keys(found)) {
				line := strings.TrimSpace(gvk.Kind + " " + path)
				_, ok := accepted[line]
				_, inMedium := accepted[line+" "+media]
				if !ok && !inMedium {
					t.Errorf("%s, %s: %d times: %s: %s", media, gvk, found[path].Count, path, found[path].Example)
				}
			}
		}
		t.Logf("%s: %d bodies, %d taken", media, tried, taken)
	}
}

func short(s string) string { return s[:min(len(s), 160)] }
