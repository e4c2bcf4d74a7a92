package schema

import (
	"fmt"
	"strings"
	"sync"
)

// writtenAs says what upstream's Go type writes of a field without a value. It comes
// from the types (tools/schemagen).
type writtenAs byte

const (
	writtenNot     writtenAs = 0   // nothing, and a value of zero is one: a pointer
	writtenZero    writtenAs = '+' // the zero value
	writtenNull    writtenAs = '?' // null
	writtenOmitted writtenAs = '-' // nothing, and nothing of a value of zero
)

// writtenFields are the files written.txt: model -> field -> what becomes of it.
var writtenFields = sync.OnceValue(func() map[string]map[string]writtenAs {
	all := map[string]map[string]writtenAs{}
	for _, dir := range modelDirs {
		raw, err := modelFiles.ReadFile(dir + "/written.txt")
		if err != nil {
			panic(fmt.Sprintf("schema: embedded models: %v", err))
		}
		for line := range strings.Lines(string(raw)) {
			words := strings.Fields(line)
			fields := make(map[string]writtenAs, len(words)-1)
			for _, w := range words[1:] {
				fields[w[1:]] = writtenAs(w[0])
			}
			all[words[0]] = fields
		}
	}
	return all
})

// drops reports whether a fitted value is as good as none: upstream's type would not
// write it.
func (f *property) drops(v any) bool {
	return f.written == writtenOmitted && isZero(v)
}

func isZero(v any) bool {
	switch x := v.(type) {
	case string:
		return x == ""
	case bool:
		return !x
	case int64:
		return x == 0
	case float64:
		return x == 0
	case []any:
		return len(x) == 0
	case map[string]any:
		return len(x) == 0
	}
	return false
}

// Fill adds, in place, what upstream's Go type always writes: parts that are no
// pointers, and fields without omitempty. The object has been through Fit and
// Default. Metadata at the top is left alone, and so is what is of a form: its root is empty.
func (m *Model) Fill(obj map[string]any) { filler{top: true}.fill(m.root, obj) }

// FillKeeping is Fill that leaves lists and maps which are there and empty, and are null once
// they are stored: who sends one owns the field. It reports whether there are any, and Fill is
// what makes them null.
func (m *Model) FillKeeping(obj map[string]any) (kept bool) {
	filler{top: true, kept: &kept}.fill(m.root, obj)
	return kept
}

// filler is a walk of Fill.
type filler struct {
	top  bool  // it is at the object itself
	kept *bool // set where something empty is left as it is; nil: nothing is
}

func (w filler) fill(n *node, obj map[string]any) {
	top := w.top
	w.top = false
	for _, f := range n.fills {
		if top && f.name == "metadata" {
			continue
		}
		v := obj[f.name]
		switch {
		case v != nil:
			if f.node.filled {
				w.value(f.node, v)
			}
			if f.emptied && isZero(v) {
				if w.kept != nil {
					*w.kept = true
				} else {
					obj[f.name] = nil
				}
			}
		case f.written == writtenZero:
			obj[f.name] = f.node.written()
		case f.written == writtenNull:
			obj[f.name] = nil
		}
	}
}

func (w filler) value(n *node, v any) {
	switch x := v.(type) {
	case map[string]any:
		if n.shape == shapeStruct {
			w.fill(n, x)
			return
		}
		for _, item := range x {
			w.value(n.elem, item)
		}
	case []any:
		for _, item := range x {
			w.value(n.elem, item)
		}
	}
}

// written is the zero value of a type that is not a pointer, as it is written.
func (n *node) written() any {
	switch n.shape {
	case shapeStruct:
		obj := map[string]any{}
		filler{}.fill(n, obj)
		return obj
	case shapeTime, shapeMicroTime, shapeAny, shapeList, shapeMap:
		return nil
	}
	return n.zero()
}
