package schema

import (
	"embed"
	"fmt"
	"sort"
	"strings"
	"sync"

	"github.com/quorate/quorate/apiserver/tree"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/yaml"
)

//go:embed data/checks/*.yaml
var checkFiles embed.FS

// checkRule is one entry of data/checks.
type checkRule struct {
	Model    string               `json:"model"`
	Optional []string             `json:"optional"`
	Fields   map[string]fieldRule `json:"fields"`
	Selects  *struct {
		Selector string `json:"selector"`
		Labels   string `json:"labels"`
	} `json:"selects"`
}

type fieldRule struct {
	Required bool   `json:"required"`
	Min      *int64 `json:"min"`
	Max      *int64 `json:"max"`
	MinItems int    `json:"minItems"`
	Format   string `json:"format"`
}

var checkRules = sync.OnceValues(func() (map[string]checkRule, error) {
	rules := map[string]checkRule{}
	err := eachFile(checkFiles, "data/checks", func(b []byte) error {
		var list []checkRule
		if err := yaml.UnmarshalStrict(b, &list); err != nil {
			return err
		}
		for _, r := range list {
			if _, ok := Raw(r.Model); !ok {
				return fmt.Errorf("%w: %s", ErrUnknownModel, r.Model)
			}
			if _, twice := rules[r.Model]; twice {
				return fmt.Errorf("%s is listed twice", r.Model)
			}
			rules[r.Model] = r
		}
		return nil
	})
	return rules, err
})

// formats are the named rules for strings.
var formats = map[string]func(string) []string{
	"dns-label": validation.IsDNS1123Label,
}

// checks is what must hold for an object of one model.
type checks struct {
	fields  []fieldCheck // by name
	selects *selection
}

type fieldCheck struct {
	property *property
	required bool
	enum     []string
	min, max *int64
	minItems int
	format   func(string) []string
}

type selection struct{ selector, labels []string }

// checksOf compiles what must hold for a model.
func checksOf(n *node) (*checks, error) {
	all, err := checkRules()
	if err != nil {
		return nil, err
	}
	if !examined(n.model) {
		return nil, nil
	}
	r := all[n.model]
	optional := map[string]bool{}
	for _, name := range r.Optional {
		optional[name] = true
	}
	for name := range r.Fields {
		if n.fields[name] == nil {
			return nil, fmt.Errorf("checks of %s: no field %s", n.model, name)
		}
	}
	c := &checks{}
	for _, f := range n.sorted {
		check, err := checkOf(f, r.Fields[f.name])
		if err != nil {
			return nil, fmt.Errorf("checks of %s.%s: %w", n.model, f.name, err)
		}
		check.required = check.required && !optional[f.name]
		if check.required || check.enum != nil || check.min != nil || check.max != nil || check.minItems > 0 || check.format != nil {
			c.fields = append(c.fields, check)
		}
	}
	if r.Selects != nil {
		c.selects = &selection{strings.Split(r.Selects.Selector, "."), strings.Split(r.Selects.Labels, ".")}
	}
	if len(c.fields) == 0 && c.selects == nil {
		return nil, nil
	}
	return c, nil
}

func checkOf(f *property, r fieldRule) (fieldCheck, error) {
	c := fieldCheck{property: f, required: r.Required, enum: f.enum, min: r.Min, max: r.Max, minItems: r.MinItems}
	// A number or a bool that is required but not a pointer upstream may be
	// left out and is zero then; so may an object.
	switch f.node.shape {
	case shapeInt32, shapeInt64, shapeFloat, shapeBool:
	default:
		c.required = c.required || f.required && !f.embedded
	}
	if r.Format != "" {
		if c.format = formats[r.Format]; c.format == nil {
			return c, fmt.Errorf("unknown format %q", r.Format)
		}
	}
	return c, nil
}

// examined says whether a model is checked at all. Metadata has its own rules
// elsewhere, and upstream takes nearly any status.
func examined(model string) bool {
	return !strings.HasSuffix(model, ".ObjectMeta") && !strings.HasSuffix(model, "Status") && !strings.HasSuffix(model, "Condition")
}

// checker is one walk of Validate.
type checker struct{ errs field.ErrorList }

func (m *Model) validate(obj map[string]any) field.ErrorList {
	if !m.root.checked {
		return nil
	}
	var c checker
	c.object(m.root, obj, nil)
	return c.errs
}

var empty = map[string]any{}

func (c *checker) object(n *node, obj map[string]any, path *field.Path) {
	if n.rules != nil {
		c.own(n.rules, obj, path)
	}
	for _, f := range n.sorted {
		if !f.node.checked || path == nil && (f.name == "metadata" || f.name == "status") {
			continue
		}
		v, ok := obj[f.name]
		if !ok || v == nil {
			// An object that is not a pointer upstream is there, if empty.
			if !f.embedded || !f.required && f.name != "spec" {
				continue
			}
			v = empty
		}
		c.value(f.node, v, child(path, f.name))
	}
}

func (c *checker) value(n *node, v any, path *field.Path) {
	switch x := v.(type) {
	case map[string]any:
		if n.shape == shapeStruct {
			c.object(n, x, path)
			return
		}
		if n.shape != shapeMap || !n.elem.checked {
			return
		}
		keys := make([]string, 0, len(x))
		for key := range x {
			keys = append(keys, key)
		}
		sort.Strings(keys)
		for _, key := range keys {
			c.value(n.elem, x[key], path.Key(key))
		}
	case []any:
		if n.shape != shapeList || !n.elem.checked {
			return
		}
		for i, item := range x {
			c.value(n.elem, item, path.Index(i))
		}
	}
}

// own checks the fields of one object; the good path allocates nothing.
func (c *checker) own(rules *checks, obj map[string]any, path *field.Path) {
	for i := range rules.fields {
		f := &rules.fields[i]
		v := obj[f.property.name]
		if absent(v, f.required) {
			if f.required || f.minItems > 0 {
				c.errs = append(c.errs, field.Required(child(path, f.property.name), ""))
			}
			continue
		}
		c.one(f, v, path)
	}
	if rules.selects != nil {
		c.selects(rules.selects, obj, path)
	}
}

func (c *checker) one(f *fieldCheck, v any, path *field.Path) {
	name := f.property.name
	switch x := v.(type) {
	case string:
		if f.enum != nil && !contains(f.enum, x) {
			c.errs = append(c.errs, field.NotSupported(child(path, name), x, f.enum))
		}
		if f.format != nil {
			for _, text := range f.format(x) {
				c.errs = append(c.errs, field.Invalid(child(path, name), x, text))
			}
		}
	case int64:
		if text := f.bounds(x); text != "" {
			c.errs = append(c.errs, field.Invalid(child(path, name), x, text))
		}
	case []any:
		if len(x) < f.minItems {
			c.errs = append(c.errs, field.Required(child(path, name), ""))
		}
	}
}

// bounds says in upstream's words why a number is out of them.
func (f *fieldCheck) bounds(x int64) string {
	low, high := f.min != nil && x < *f.min, f.max != nil && x > *f.max
	switch {
	case !low && !high:
		return ""
	case f.min != nil && f.max != nil:
		return validation.InclusiveRangeError(int(*f.min), int(*f.max))
	case *f.min == 1:
		return "must be greater than 0"
	case low:
		return fmt.Sprintf("must be greater than or equal to %d", *f.min)
	}
	return fmt.Sprintf("must be less than or equal to %d", *f.max)
}

// selects checks that a selector matches labels of the same object.
func (c *checker) selects(s *selection, obj map[string]any, path *field.Path) {
	selector, ok := tree.Field(obj, s.selector...).(map[string]any)
	if !ok {
		return
	}
	set, _ := tree.Field(obj, s.labels...).(map[string]any)
	if len(selector) == 0 {
		c.errs = append(c.errs, field.Invalid(child(path, s.selector...), selector, "empty selector is invalid"))
		return
	}
	if matchesPlain(selector, set) {
		return
	}
	var parsed metav1.LabelSelector
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(selector, &parsed); err != nil {
		c.errs = append(c.errs, field.Invalid(child(path, s.selector...), selector, err.Error()))
		return
	}
	matcher, err := metav1.LabelSelectorAsSelector(&parsed)
	if err != nil {
		c.errs = append(c.errs, field.Invalid(child(path, s.selector...), selector, "invalid label selector"))
		return
	}
	plain := make(labels.Set, len(set))
	for k, v := range set {
		plain[k], _ = v.(string)
	}
	if !matcher.Matches(plain) {
		c.errs = append(c.errs, field.Invalid(child(path, s.labels...), map[string]string(plain), "`selector` does not match template `labels`"))
	}
}

// matchesPlain decides the selectors that only list labels, without the
// library. False means undecided.
func matchesPlain(selector, set map[string]any) bool {
	if _, ok := selector["matchExpressions"]; ok {
		return false
	}
	wanted, _ := selector["matchLabels"].(map[string]any)
	for k, v := range wanted {
		if set[k] != v {
			return false
		}
	}
	return len(wanted) > 0
}

func contains(list []string, s string) bool {
	for _, x := range list {
		if x == s {
			return true
		}
	}
	return false
}

func child(path *field.Path, names ...string) *field.Path {
	for _, name := range names {
		path = path.Child(name)
	}
	return path
}
