package schema

import (
	"embed"
	"fmt"
	"slices"
	"sort"
	"strings"
	"sync"

	"github.com/distribution/reference"
	"github.com/quorate/quorate/apiserver/types/tree"
	"k8s.io/apimachinery/pkg/api/resource"
	"sigs.k8s.io/yaml"
)

//go:embed data/defaults/*.yaml
var defaultFiles embed.FS

// defaultRule is one entry of data/defaults; data/defaults/core.yaml explains
// the fields.
type defaultRule struct {
	Model  string            `json:"model"`
	If     map[string]any    `json:"if"`
	Unless []string          `json:"unless"`
	Where  []string          `json:"where"`
	Only   []string          `json:"only"`
	Each   string            `json:"each"`
	Has    []string          `json:"has"`
	Zero   []string          `json:"zero"`
	Drop   []string          `json:"drop"`
	Set    map[string]any    `json:"set"`
	Copy   map[string]string `json:"copy"`
	Merge  map[string]string `json:"merge"`
	Image  map[string]string `json:"image"`
}

// defaultRules are all rules by model, read once.
var defaultRules = sync.OnceValues(func() (map[string][]defaultRule, error) {
	rules := map[string][]defaultRule{}
	err := eachFile(defaultFiles, "data/defaults", func(b []byte) error {
		var list []defaultRule
		if err := yaml.UnmarshalStrict(b, &list); err != nil {
			return err
		}
		for _, r := range list {
			if _, ok := Raw(r.Model); !ok {
				return fmt.Errorf("%w: %s", ErrUnknownModel, r.Model)
			}
			rules[r.Model] = append(rules[r.Model], r)
		}
		return nil
	})
	return rules, err
})

// eachFile hands the files of an embedded directory to read, in order.
func eachFile(fs embed.FS, dir string, read func([]byte) error) error {
	entries, err := fs.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		b, err := fs.ReadFile(dir + "/" + e.Name())
		if err != nil {
			return err
		}
		if err := read(b); err != nil {
			return fmt.Errorf("%s/%s: %w", dir, e.Name(), err)
		}
	}
	return nil
}

// defaulting is what is done to an object of one model.
type defaulting struct {
	values []assignment // the schema's own defaults
	rules  []rule
}

// embedding is a field that is never absent upstream and has defaults in it. early: rules of the
// object around it are about fields in it.
type embedding struct {
	name  string
	early bool
}

// reaches reports whether a rule sets fields in the object that a field holds.
func (d *defaulting) reaches(name string) bool {
	if d == nil {
		return false
	}
	for i := range d.rules {
		r := &d.rules[i]
		for _, a := range r.set {
			if len(a.path) > 1 && a.path[0] == name {
				return true
			}
		}
		for _, c := range slices.Concat(r.copies, r.merges, r.images) {
			if len(c.to) > 1 && c.to[0] == name {
				return true
			}
		}
	}
	return false
}

// rule is a compiled defaultRule.
type rule struct {
	equal         []assignment
	unless, where [][]string
	only          map[string]bool
	each          []string
	has           [][]string
	drop          [][]string
	set           []assignment
	copies        []transfer
	merges        []transfer
	images        []transfer
}

// assignment gives a field a value. zero says that 0 counts as absent, pointer that "" does not:
// upstream's field is a pointer.
type assignment struct {
	path          []string
	value         any
	zero, pointer bool
}

type transfer struct {
	to, from      []string
	zero, pointer bool
}

// defaultsOf compiles what applies to a model.
func defaultsOf(n *node) (*defaulting, error) {
	all, err := defaultRules()
	if err != nil {
		return nil, err
	}
	d := &defaulting{}
	for _, r := range all[n.model] {
		d.rules = append(d.rules, compileRule(n, &r))
	}
	for _, f := range n.sorted {
		if f.value != nil {
			d.values = append(d.values, assignment{path: []string{f.name}, value: f.value, pointer: f.pointer()})
		}
	}
	if len(d.values) == 0 && len(d.rules) == 0 {
		return nil, nil
	}
	return d, nil
}

// compileRule compiles a rule of a node.
func compileRule(n *node, r *defaultRule) rule {
	zero := map[string]bool{}
	for _, name := range r.Zero {
		zero[name] = true
	}
	out := rule{unless: split(r.Unless), where: split(r.Where), has: split(r.Has), drop: split(r.Drop)}
	out.equal = assignments(r.If, nil)
	out.set = assignments(r.Set, zero)
	out.copies, out.merges, out.images = transfers(r.Copy, zero), transfers(r.Merge, nil), transfers(r.Image, nil)
	if r.Each != "" {
		out.each = strings.Split(r.Each, ".")
	}
	for i := range out.set {
		out.set[i].pointer = n.pointer(slices.Concat(out.each, out.set[i].path))
	}
	for i := range out.copies {
		out.copies[i].pointer = n.pointer(slices.Concat(out.each, out.copies[i].to))
	}
	if r.Only != nil {
		out.only = map[string]bool{}
		for _, name := range r.Only {
			out.only[name] = true
		}
	}
	return out
}

// pointer reports whether the field at a path, which leads through the items of lists, is a
// pointer upstream.
func (n *node) pointer(path []string) bool {
	for i, name := range path {
		for n.shape == shapeList {
			n = n.elem
		}
		f := n.fields[name]
		switch {
		case f == nil:
			return false
		case i == len(path)-1:
			return f.pointer()
		}
		n = f.node
	}
	return false
}

func split(paths []string) [][]string {
	var out [][]string
	for _, p := range paths {
		out = append(out, strings.Split(p, "."))
	}
	return out
}

func assignments(m map[string]any, zero map[string]bool) []assignment {
	var out []assignment
	for path, v := range m {
		out = append(out, assignment{path: strings.Split(path, "."), value: integers(v), zero: zero[path]})
	}
	sort.Slice(out, func(i, j int) bool { return strings.Join(out[i].path, ".") < strings.Join(out[j].path, ".") })
	return out
}

func transfers(m map[string]string, zero map[string]bool) []transfer {
	var out []transfer
	for to, from := range m {
		out = append(out, transfer{to: strings.Split(to, "."), from: strings.Split(from, "."), zero: zero[to]})
	}
	sort.Slice(out, func(i, j int) bool { return strings.Join(out[i].to, ".") < strings.Join(out[j].to, ".") })
	return out
}

// integers turns the floats that YAML gives into the int64 of trees.
func integers(v any) any {
	switch x := v.(type) {
	case float64:
		return int64(x)
	case map[string]any:
		for k := range x {
			x[k] = integers(x[k])
		}
	case []any:
		for i := range x {
			x[i] = integers(x[i])
		}
	}
	return v
}

// applyDefaults fills in an object and what is below it. The node is deep.
func applyDefaults(n *node, obj map[string]any) {
	// An object that is not a pointer upstream has its defaults, be it there or not.
	var made []string
	embed := func(early bool) {
		for i := range n.embedded {
			if e := &n.embedded[i]; e.early == early && obj[e.name] == nil {
				obj[e.name] = map[string]any{}
				made = append(made, e.name)
			}
		}
	}
	embed(true)
	if d := n.defaults; d != nil {
		for i := range d.rules {
			d.rules[i].apply(obj)
		}
		for i := range d.values {
			d.values[i].apply(obj)
		}
	}
	embed(false)
	for key, v := range obj {
		child := n.elem
		if n.shape == shapeStruct {
			f := n.fields[key]
			if f == nil {
				continue
			}
			child = f.node
		}
		if n.rounds {
			obj[key] = milli(v)
			continue
		}
		descend(child, v)
	}
	for _, name := range made {
		if len(obj[name].(map[string]any)) == 0 {
			delete(obj, name)
		}
	}
}

// milli is an amount of a list of resources, which knows no less than thousandths: what is
// smaller is rounded up.
func milli(v any) any {
	s, ok := v.(string)
	if !ok || !strings.HasSuffix(s, "n") && !strings.HasSuffix(s, "u") && !strings.Contains(s, "e-") {
		return v
	}
	q, err := resource.ParseQuantity(s)
	if err != nil {
		return v
	}
	q.RoundUp(resource.Milli)
	return tree.QuantityText(q)
}

func descend(n *node, v any) {
	if !n.deep {
		return
	}
	switch x := v.(type) {
	case map[string]any:
		applyDefaults(n, x)
	case []any:
		for _, item := range x {
			descend(n.elem, item)
		}
	}
}

func (r *rule) apply(obj map[string]any) {
	if !r.applies(obj) {
		return
	}
	if r.each == nil {
		r.run(obj)
		return
	}
	r.runEach(obj, r.each)
}

func (r *rule) applies(obj map[string]any) bool {
	for _, e := range r.equal {
		if tree.Field(obj, e.path...) != e.value {
			return false
		}
	}
	for _, p := range r.unless {
		if tree.Field(obj, p...) != nil {
			return false
		}
	}
	for _, p := range r.where {
		// An apply keeps an empty list until it has been merged. Upstream's rules ask for items.
		if v := tree.Field(obj, p...); v == nil || isEmptyList(v) {
			return false
		}
	}
	if r.only != nil {
		for key := range obj {
			if !r.only[key] {
				return false
			}
		}
	}
	return true
}

// runEach runs the rule on the items at the end of a path through objects and
// lists.
func (r *rule) runEach(v any, path []string) {
	switch x := v.(type) {
	case []any:
		for _, item := range x {
			r.runEach(item, path)
		}
	case map[string]any:
		if len(path) == 0 {
			if !slices.ContainsFunc(r.has, func(p []string) bool { return tree.Field(x, p...) == nil }) {
				r.run(x)
			}
			return
		}
		r.runEach(x[path[0]], path[1:])
	}
}

func (r *rule) run(obj map[string]any) {
	for _, p := range r.drop {
		if parent, name := parentOf(obj, p); parent != nil {
			delete(parent, name)
		}
	}
	for i := range r.set {
		r.set[i].apply(obj)
	}
	for i := range r.copies {
		c := &r.copies[i]
		if v := tree.Field(obj, c.from...); !absent(v, c.zero, false) {
			put(obj, c.to, v, c.zero, c.pointer)
		}
	}
	for i := range r.merges {
		merge(obj, &r.merges[i])
	}
	for i := range r.images {
		image, _ := tree.Field(obj, r.images[i].from...).(string)
		if parent, name := parentOf(obj, r.images[i].to); parent != nil && absent(parent[name], false, false) {
			parent[name] = pullPolicy(image)
		}
	}
}

func (a *assignment) apply(obj map[string]any) { put(obj, a.path, a.value, a.zero, a.pointer) }

// put gives an absent field a copy of a value.
func put(obj map[string]any, path []string, v any, zero, pointer bool) {
	parent, name := parentOf(obj, path)
	if parent == nil || !absent(parent[name], zero, pointer) {
		return
	}
	parent[name] = clone(v)
}

// merge adds to a map the entries that it lacks; the map is made if needed.
func merge(obj map[string]any, t *transfer) {
	from, _ := tree.Field(obj, t.from...).(map[string]any)
	if len(from) == 0 {
		return
	}
	parent, name := parentOf(obj, t.to)
	if parent == nil {
		return
	}
	to, _ := parent[name].(map[string]any)
	if to == nil {
		to = make(map[string]any, len(from))
		parent[name] = to
	}
	for k, v := range from {
		if _, ok := to[k]; !ok {
			to[k] = clone(v)
		}
	}
}

func absent(v any, zero, pointer bool) bool {
	return v == nil || v == "" && !pointer || zero && v == int64(0)
}

// parentOf returns the object that holds the last field of a path, or nil.
func parentOf(obj map[string]any, path []string) (map[string]any, string) {
	last := len(path) - 1
	parent, _ := tree.Field(obj, path[:last]...).(map[string]any)
	return parent, path[last]
}

func clone(v any) any {
	switch x := v.(type) {
	case map[string]any:
		out := make(map[string]any, len(x))
		for k := range x {
			out[k] = clone(x[k])
		}
		return out
	case []any:
		out := make([]any, len(x))
		for i := range x {
			out[i] = clone(x[i])
		}
		return out
	}
	return v
}

// pullPolicy goes by the tag of an image: Always for :latest and for none. A name that is none
// has no tag.
func pullPolicy(image string) string {
	tag, ok := plainTag(image)
	switch {
	case !ok:
		return pullPolicyOfReference(image)
	case tag == "" || tag == "latest":
		return "Always"
	}
	return "IfNotPresent"
}

// plainTag is the tag of an ordinary name of an image; ok is false for names that the library
// must look at: its regular expressions take longer than all other defaults together. A name that
// is ordinary is short, in small letters, digits and single separators: what has 64 digits may be
// no name, and a port is not told from a tag here.
func plainTag(image string) (tag string, ok bool) {
	name, tag, tagged := strings.Cut(image, ":")
	if len(name) > 63 || tagged && (tag == "" || len(tag) > 63) {
		return "", false
	}
	between := true // a separator may not be here, nor the end
	for _, c := range []byte(name) {
		switch {
		case c >= 'a' && c <= 'z' || c >= '0' && c <= '9':
			between = false
		case (c == '.' || c == '-' || c == '/') && !between:
			between = true
		default:
			return "", false
		}
	}
	for i, c := range []byte(tag) {
		switch {
		case c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '_':
		case (c == '.' || c == '-') && i > 0:
		default:
			return "", false
		}
	}
	return tag, !between
}

func pullPolicyOfReference(image string) string {
	named, err := reference.ParseNormalizedNamed(image)
	if err != nil {
		return "IfNotPresent"
	}
	tagged, tag := named.(reference.Tagged)
	_, digest := named.(reference.Digested)
	if tag && tagged.Tag() == "latest" || !tag && !digest {
		return "Always"
	}
	return "IfNotPresent"
}
