package codec

import (
	"bytes"
	"encoding/json"
	"fmt"

	"github.com/quorate/quorate/apiserver/types/kinds"
	"github.com/quorate/quorate/apiserver/wire/status"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
)

// MaxCost is what the request of one body may take of memory, in bytes, as Cost estimates
// it. One of a CustomResourceDefinition may take twice that.
const MaxCost = 32 << 20

// Way is what becomes of a body behind the decoder.
type Way int

const (
	// Whole is an object, or options.
	Whole Way = iota
	// Merged is a patch: what is in it is copied once more.
	Merged
	// Applied is a configuration that is applied: it is compared as typed values.
	Applied
)

// weights are bytes of memory that a part of a body takes in the time of its request: decoded, with
// defaults, as validated, compared, and encoded again. They were measured with the worst body
// of each shape (TestBodiesCost in package apiserver).
type weights struct {
	raw                            int64 // per byte of the body
	object, array, member, element int64
}

var (
	// What a built-in object may have grows by its defaults, and by the words of what
	// is wrong with it: a container of {} becomes 700 bytes.
	// The elements of a set (finalizers are one) are fields that have a manager.
	wholeBuiltin = weights{raw: 6, object: 1350, array: 160, member: 260, element: 200}
	wholeCustom  = weights{raw: 6, object: 480, array: 96, member: 260, element: 200}
	// A schema is compiled.
	wholeDefinition = weights{raw: 6, object: 1900, array: 160, member: 260, element: 200}
	// A patch is copied once more.
	merged = weights{raw: 8, object: 1200, array: 200, member: 480, element: 110}
	// Three forms of a configuration are there at the same time: the tree, the values that are
	// compared, and the set of its fields.
	appliedBuiltin    = weights{raw: 8, object: 2400, array: 320, member: 960, element: 720}
	appliedCustom     = weights{raw: 8, object: 1200, array: 320, member: 640, element: 420}
	appliedDefinition = weights{raw: 8, object: 2200, array: 320, member: 640, element: 420}
	// The nodes of a YAML document and what is made of them, before there is JSON.
	yamlNodes = weights{raw: 8, object: 640, array: 640, member: 640, element: 320}
)

// weights are those of what becomes of a body for res; for options, that is nil.
func (way Way) weights(res *kinds.Resource) *weights {
	custom, definition := res != nil && res.Custom, isDefinition(res)
	switch {
	case way == Merged && !definition:
		return &merged
	case way != Whole && definition:
		return &appliedDefinition
	case way == Applied && custom:
		return &appliedCustom
	case way == Applied:
		return &appliedBuiltin
	case custom:
		return &wholeCustom
	case definition:
		return &wholeDefinition
	}
	return &wholeBuiltin
}

func isDefinition(res *kinds.Resource) bool {
	return res != nil && res.Kind == "CustomResourceDefinition" && res.Group == apiextensionsv1.GroupName
}

// maxCost is MaxCost, and twice that for definitions: there are some of 11,000 schemas,
// which are applied, and few write them.
func maxCost(res *kinds.Resource) int64 {
	if isDefinition(res) {
		return 2 * MaxCost
	}
	return MaxCost
}

// parts are how many there are of what costs. A null in a list or a map counts as an object: it
// becomes one where objects are wanted.
type parts struct{ bytes, objects, arrays, members, elements int64 }

func (p *parts) cost(w *weights) int64 {
	return p.bytes*w.raw + p.objects*w.object + p.arrays*w.array + p.members*w.member + p.elements*w.element
}

// atMost counts without a look at what is within strings, which is nearly for nothing:
// there are as many parts or fewer.
func atMost(text []byte) parts {
	return parts{
		bytes:    int64(len(text)),
		objects:  int64(bytes.Count(text, []byte("{")) + bytes.Count(text, []byte("null"))),
		arrays:   int64(bytes.Count(text, []byte("["))),
		members:  int64(bytes.Count(text, []byte(":"))),
		elements: int64(bytes.Count(text, []byte(","))),
	}
}

// partsOf counts what is outside of strings. Text that is no JSON has at least as many parts
// as a parser comes to see before it gives up.
func partsOf(text []byte) parts {
	p := parts{bytes: int64(len(text))}
	for i := 0; i < len(text); i++ {
		c := text[i]
		switch c {
		case '"':
			for i++; i < len(text) && text[i] != '"'; i++ {
				if text[i] == '\\' {
					i++
				}
			}
		case '{':
			p.objects++
		case '[':
			p.arrays++
		case ':':
			p.members++
		case ',':
			p.elements++
		case 'n':
			p.objects++ // names are strings
		}
	}
	// A comma stands between members too.
	p.elements = max(0, p.elements+p.arrays+p.objects-p.members)
	return p
}

// inYAML counts the signs that begin a node of YAML. In a text that is written as a block
// there may be as many that begin none.
func inYAML(text []byte) parts {
	if len(text) > 0 && text[0] == '{' && json.Valid(text) {
		return partsOf(text)
	}
	p := parts{bytes: int64(len(text))}
	for _, null := range [...]string{"null", "Null", "NULL", "~"} {
		nulls := int64(bytes.Count(text, []byte(null)))
		p.objects += nulls
		p.elements += nulls // in JSON that is a comma
	}
	for i, c := range text {
		switch c {
		case '{', '?':
			p.objects++
		case '[':
			p.arrays++
		case ',':
			p.elements++
		case ':':
			if i+1 == len(text) || ends[text[i+1]] || i > 0 && quotes[text[i-1]] {
				p.members++
				if saysNothing(text[i+1:]) { // a block map begins, or there is a null
					p.objects++
				}
			}
		case '-':
			if (i == 0 || ends[text[i-1]]) && (i+1 == len(text) || ends[text[i+1]]) {
				p.arrays++
				if saysNothing(text[i+1:]) {
					p.objects++
					p.elements++
				}
			}
		case '*': // an alias may stand for null, as what has a tag or an anchor may be one
			p.objects++
			p.elements++
		}
	}
	// Block maps have no sign of their own. One begins behind a dash, or behind the colon of
	// another, which then is the last of its line.
	p.objects += min(p.arrays, p.members)
	return p
}

// saysNothing reports whether there is no value in the rest of the line: what stands there is a comment, an
// anchor, an alias, or a tag.
func saysNothing(rest []byte) bool {
	for i, c := range rest {
		switch c {
		case ' ', '\t':
			continue
		case '\n', '\r', '#', '&', '!', 0xef: // the last begins a byte order mark
			return true
		case 0xc2, 0xe2: // line breaks beyond ASCII
			return i+1 < len(rest) && (rest[i+1] == 0x85 || rest[i+1] == 0x80)
		}
		return false
	}
	return true
}

// ends are what may stand beside an indicator of YAML; the last three are line breaks that begin with
// that byte.
var ends = [256]bool{' ': true, '\t': true, '\n': true, '\r': true, ',': true, '[': true, ']': true, '{': true, '}': true, 0xc2: true, 0xe2: true, 0xef: true, 0x85: true, 0xa8: true, 0xa9: true, 0xbf: true}

// quotes may stand before a colon that has no space behind it, as in JSON.
var quotes = [256]bool{'"': true, '\'': true, ']': true, '}': true}

// Cost estimates what the request of a body takes of memory, in bytes, from a look at the
// body: the number of its objects, fields and elements. It is between one and four times of what
// it comes to. contentType and res are as for Decode; patches are JSON, configurations that are
// applied YAML. Errors are *apierrors.StatusError: 413 above MaxCost, or MaxBody.
func Cost(way Way, contentType string, body []byte, res *kinds.Resource) (int64, error) {
	if len(body) > MaxBody {
		return 0, status.BodyTooLarge(MaxBody)
	}
	medium := JSON
	switch way {
	case Whole:
		medium = bodyType(contentType, res)
	case Applied:
		medium = YAML
	}
	w := way.weights(res)
	var cost int64
	switch medium {
	case JSON:
		cost = costOfJSON(body, w)
	case YAML:
		cost = costOfYAML(body, w)
	case Protobuf:
		cost = costOfProtobuf(body, res)
	}
	if limit := maxCost(res); cost > limit {
		return 0, tooCostly(cost, limit)
	}
	return cost, nil
}

// StoredCost is Cost for the object that a body changes, as it is stored.
func StoredCost(way Way, value []byte, res *kinds.Resource) int64 {
	return costOfJSON(value, way.weights(res))
}

func tooCostly(cost, limit int64) error {
	return status.EntityTooLarge(fmt.Sprintf(
		"the body has so many fields and list elements that they would take %d MiB of memory, the limit is %d MiB: make several objects or requests of it",
		cost>>20+1, limit>>20))
}

// exactAbove is the cost from which on it is worth a closer look.
const exactAbove = 1 << 20

func costOfJSON(text []byte, w *weights) int64 {
	p := atMost(text)
	if cost := p.cost(w); cost <= exactAbove {
		return cost
	}
	p = partsOf(text)
	return p.cost(w)
}

// costOfYAML is that of the nodes, or that of the JSON which they become: not both
// are there at the same time.
func costOfYAML(text []byte, w *weights) int64 {
	p := atMost(text)
	if len(text) == 0 || text[0] != '{' || p.cost(w) > exactAbove {
		p = inYAML(text)
	}
	return max(p.cost(w), p.cost(&yamlNodes))
}
