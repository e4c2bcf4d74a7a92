package objects

import (
	"slices"
	"testing"
	"time"

	"github.com/quorate/quorate/internal/cputime"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// TestNewErrors: what two checks find is said once, however much it is.
func TestNewErrors(t *testing.T) {
	list := field.NewPath("rules")
	var schema, rules field.ErrorList
	for i := range 40_000 {
		schema = append(schema, field.Required(list.Index(i).Child("verbs"), ""))
		rules = append(rules, field.Required(list.Index(i).Child("apiGroups"), "some"), field.Required(list.Index(i).Child("resources"), "some"))
	}
	both := field.Invalid(list.Index(7), 1, "twice")
	schema, rules = append(schema, both), append(rules, field.Invalid(list.Index(7), 2, "twice"), field.Invalid(list.Index(7), 1, "another"))
	var left field.ErrorList
	if took := cputime.Of(func() { left = newErrors(slices.Clone(rules), schema) }); took > 5*time.Second {
		t.Errorf("took %s", took)
	}
	if len(left) != len(rules)-1 || left[len(left)-1].Detail != "another" {
		t.Errorf("%d of %d are left, the last is %v", len(left), len(rules), left[len(left)-1])
	}
}
