package patch

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"strings"

	"github.com/quorate/quorate/apiserver/wire/codec"
	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	kjson "sigs.k8s.io/json"
)

// MaxOperations bounds a JSON patch.
const MaxOperations = 10_000

// maxCopyBytes bounds what the copy operations of one JSON patch may add up to:
// each could otherwise double the document.
const maxCopyBytes = 3 << 20

// maxWork bounds operations times bytes of what they make of the object: an operation on an
// array can cost as much as the array is long, and none of it can be interrupted.
// A thousand operations on the largest object are within it.
const maxWork = 4 << 30

// largest is how many bytes an object of so many may have while the operations are applied: it grows by their values, and may
// double with each copy.
func (p *Patch) largest(object int) int64 {
	size, copies := int64(object), 0
	for _, op := range p.operations {
		if v := op["value"]; v != nil {
			size += int64(len(*v))
		}
		if op.Kind() == "copy" {
			copies++
		}
	}
	return min(size<<min(copies, 22), size+maxCopyBytes)
}

func init() {
	// The library knows this bound only as a variable of its package.
	jsonpatch.AccumulatedCopySizeLimit = maxCopyBytes
}

func (p *Patch) parseOperations() error {
	// Decoding allocates several times the body's size, so count first.
	var raw []json.RawMessage
	if err := json.Unmarshal(p.Raw, &raw); err != nil {
		return apierrors.NewBadRequest(fmt.Sprintf("error decoding patch: %v", err))
	}
	if len(raw) > MaxOperations {
		return apierrors.NewRequestEntityTooLargeError(
			fmt.Sprintf("The allowed maximum operations in a JSON patch is %d, got %d", MaxOperations, len(raw)))
	}
	var strict []struct {
		Op    string `json:"op"`
		Path  string `json:"path"`
		From  string `json:"from"`
		Value any    `json:"value"`
	}
	findings, err := kjson.UnmarshalStrict(p.Raw, &strict)
	if err != nil {
		return apierrors.NewBadRequest(fmt.Sprintf("error decoding patch: %v", err))
	}
	for _, f := range findings {
		p.Duplicates = append(p.Duplicates, "json patch "+f.Error())
	}
	ops, err := jsonpatch.DecodePatch(p.Raw)
	if err != nil {
		return apierrors.NewBadRequest(fmt.Sprintf("error decoding patch: %v", err))
	}
	p.operations, p.touched = ops, touchedBy(ops)
	return nil
}

func (p *Patch) applyOperations(current map[string]any) (map[string]any, error) {
	part := p.touched.of(current)
	doc, err := json.Marshal(part)
	if err != nil {
		return nil, fmt.Errorf("encode object for JSON patch: %w", err)
	}
	if work := int64(len(p.operations)) * p.largest(len(doc)); work > maxWork {
		return nil, apierrors.NewRequestEntityTooLargeError(
			fmt.Sprintf("%d operations on an object of this size are too much for one JSON patch: send fewer at once", len(p.operations)))
	}
	doc, err = p.apply(doc)
	var tooMuch *jsonpatch.AccumulatedCopySizeError
	switch {
	case errors.As(err, &tooMuch):
		return nil, apierrors.NewRequestEntityTooLargeError(err.Error())
	case err != nil:
		return nil, rejected(err)
	}
	tree, numbers, err := codec.DecodePatched(doc, p.untyped)
	if err != nil {
		return nil, rejected(err)
	}
	p.numbers = numbers
	patched, ok := tree.(map[string]any)
	if !ok {
		return nil, rejected(errors.New("the patched document is not an object"))
	}
	return p.touched.merge(current, patched), nil
}

// errOperation is wrapped by errors for operations that the library fails on.
var errOperation = errors.New("a JSON patch operation has no value, or compares a list that has null in it")

// apply contains the library's panics: it dereferences nil when the whole object is replaced by no value, and when it
// compares lists with null in them.
func (p *Patch) apply(doc []byte) (patched []byte, err error) {
	defer func() {
		if r := recover(); r != nil {
			patched, err = nil, fmt.Errorf("%w: %v", errOperation, r)
		}
	}()
	return p.operations.Apply(doc)
}

// touched is the part of an object that the operations of a JSON patch can look at or change: what a path names, with
// all that is in it, and nothing else of the objects on the way there. The library is given this part only, because it
// works on text: to write and to read a Deployment for each change of its replicas costs more than all the rest of the
// patch.
//
// An object on the way that no path names stays an object whatever the operations do. Lists are taken whole, since a
// path may count from their end.
type touched struct {
	all  bool // a path names it
	keys map[string]*touched
}

// maxTouched bounds the parts of all paths of a patch that are told apart: one of three million slashes would take a gigabyte. With
// more of them, the library is given the whole object.
const maxTouched = MaxOperations

func touchedBy(operations jsonpatch.Patch) *touched {
	t, room := &touched{}, maxTouched
	for _, op := range operations {
		// What has no path fails when it is applied.
		if path, err := op.Path(); err == nil {
			t.add(path, &room)
		}
		if from, err := op.From(); err == nil {
			t.add(from, &room)
		}
		if room < 0 {
			return &touched{all: true}
		}
	}
	return t
}

// unescape reads a part of a path (RFC 6901, 4).
var unescape = strings.NewReplacer("~1", "/", "~0", "~").Replace

// add adds a path, with as many parts as there is room for; without, room is negative.
func (t *touched) add(path string, room *int) {
	if path == "" {
		t.all = true
		return
	}
	_, rest, more := strings.Cut(path, "/")
	if !more {
		return // it names nothing
	}
	for more {
		if t.all {
			return
		}
		var part string
		part, rest, more = strings.Cut(rest, "/")
		key := unescape(part)
		next := t.keys[key]
		if next == nil {
			if *room--; *room < 0 {
				return
			}
			if t.keys == nil {
				t.keys = map[string]*touched{}
			}
			next = &touched{}
			t.keys[key] = next
		}
		t = next
	}
	t.all, t.keys = true, nil
}

// of is the part of a value. It shares what it has with the value.
func (t *touched) of(v any) any {
	object, ok := v.(map[string]any)
	if t.all || !ok {
		return v
	}
	part := make(map[string]any, len(t.keys))
	for key, next := range t.keys {
		if v, ok := object[key]; ok {
			part[key] = next.of(v)
		}
	}
	return part
}

// merge is an object whose part has become another one.
func (t *touched) merge(object, part map[string]any) map[string]any {
	if t.all {
		return part
	}
	merged := make(map[string]any, len(object)+1)
	maps.Copy(merged, object)
	for key, next := range t.keys {
		v, ok := part[key]
		if !ok {
			delete(merged, key)
			continue
		}
		old, was := object[key].(map[string]any)
		if now, is := v.(map[string]any); was && is && !next.all {
			v = next.merge(old, now)
		}
		merged[key] = v
	}
	return merged
}
