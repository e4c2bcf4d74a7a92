package printers

import (
	"fmt"
	"reflect"
	"time"

	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"k8s.io/apimachinery/pkg/util/duration"
)

// Ageing is a cell whose text changes with time alone: how long ago a moment was,
// with a text before and one after it. Everything else about a row can so be kept
// for as long as the object does not change.
type Ageing struct {
	Before string
	Since  time.Time
	After  string
}

// At is the text of the cell at a time. It is for tests: codec writes the parts.
func (a Ageing) At(now time.Time) string {
	return a.Before + duration.HumanDuration(now.Sub(a.Since)) + a.After
}

// age is the time since a timestamp, short.
func age(v any) any {
	t, ok := timestamp(v)
	if !ok {
		return unknown
	}
	return Ageing{Since: t}
}

// ageingType is what expressions see: they can hand an Ageing on, and nothing else.
var ageingType = types.NewOpaqueType("quorate.Ageing")

// ConvertToNative is for CEL.
func (a Ageing) ConvertToNative(t reflect.Type) (any, error) {
	if t == reflect.TypeFor[Ageing]() {
		return a, nil
	}
	return nil, fmt.Errorf("an age is no %s", t)
}

// ConvertToType is for CEL.
func (a Ageing) ConvertToType(t ref.Type) ref.Val {
	return types.NewErr("an age is no %s", t.TypeName())
}

// Equal is for CEL.
func (a Ageing) Equal(other ref.Val) ref.Val {
	b, ok := other.(Ageing)
	return types.Bool(ok && a == b)
}

// Type is for CEL.
func (a Ageing) Type() ref.Type { return ageingType }

// Value is for CEL.
func (a Ageing) Value() any { return a }
