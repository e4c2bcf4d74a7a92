package random

import (
	"encoding/json"
	"fmt"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/quorate/quorate/apiserver/types/tree"
)

// Differences counts where two trees differ, by path.
type Differences map[string]*Difference

// Difference is how often two trees differ at a path.
type Difference struct {
	Count   int
	Example string
}

// Add counts a difference.
func (d Differences) Add(path string, upstream, ours any) {
	short := func(v any) string {
		b, _ := json.Marshal(v)
		return string(b[:min(len(b), 300)])
	}
	if d[path] == nil {
		d[path] = &Difference{Example: fmt.Sprintf("upstream %s, here %s", short(upstream), short(ours))}
	}
	d[path].Count++
}

type absent struct{}

func (absent) MarshalJSON() ([]byte, error) { return []byte(`"absent"`), nil }

// step is a path with a field behind it. Keys of maps are all the same.
func step(path, name string) string {
	if strings.ContainsFunc(name, func(r rune) bool { return r > '~' || r <= ' ' }) || slices.ContainsFunc(words, func(w string) bool { return strings.EqualFold(w, name) }) {
		name = "*"
	}
	return path + "." + name
}

// Compare counts where two values at a path differ.
func (d Differences) Compare(path string, upstream, ours any) {
	if reflect.DeepEqual(upstream, ours) {
		return
	}
	a, ok := upstream.(tree.Object)
	b, ok2 := ours.(tree.Object)
	if ok && ok2 {
		for k, v := range a {
			if w, there := b[k]; there {
				d.Compare(step(path, k), v, w)
			} else {
				d.Add(step(path, k), v, absent{})
			}
		}
		for k, w := range b {
			if _, there := a[k]; !there {
				d.Add(step(path, k), absent{}, w)
			}
		}
		return
	}
	l, ok := upstream.([]any)
	m, ok2 := ours.([]any)
	if ok && ok2 && len(l) == len(m) {
		for i := range l {
			d.Compare(path+"[]", l[i], m[i])
		}
		return
	}
	d.Add(path, upstream, ours)
}

// Known is a file of differences that have a reason, as "KIND PATH". None is seen yet.
func Known(t *testing.T, file string) map[string]bool {
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]bool{}
	for line := range strings.Lines(string(text)) {
		if line = strings.TrimSpace(line); line != "" && line[0] != '#' {
			all[line] = false
		}
	}
	return all
}
