package printers

import (
	"fmt"
	"reflect"
	"sync"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/ext"
)

// environment is what column expressions are compiled in: self, optional
// types, strings, lists, and one macro per function of this package.
var environment = sync.OnceValues(func() (*cel.Env, error) {
	options := []cel.EnvOption{
		cel.Variable("self", cel.DynType),
		cel.OptionalTypes(),
		ext.Strings(),
		ext.Lists(),
	}
	for name, f := range functions {
		options = append(options, bind1(name, f)...)
	}
	for name, f := range functions2 {
		options = append(options, bind2(name, f)...)
	}
	env, err := cel.NewEnv(options...)
	if err != nil {
		return nil, fmt.Errorf("environment of column expressions: %w", err)
	}
	return env, nil
})

func bind1(name string, f func(any) any) []cel.EnvOption {
	inner := "@" + name
	overload := cel.Overload(name+"_dyn", []*cel.Type{cel.DynType}, cel.DynType,
		cel.UnaryBinding(func(v ref.Val) ref.Val {
			x, err := native(v)
			if err != nil {
				return types.WrapErr(err)
			}
			return types.DefaultTypeAdapter.NativeToValue(f(x))
		}))
	return []cel.EnvOption{cel.Function(inner, overload), cel.Macros(lenient(name, 1))}
}

func bind2(name string, f func(any, any) any) []cel.EnvOption {
	overload := cel.Overload(name+"_dyn_dyn", []*cel.Type{cel.DynType, cel.DynType}, cel.DynType,
		cel.BinaryBinding(func(a, b ref.Val) ref.Val {
			x, err := native(a)
			if err != nil {
				return types.WrapErr(err)
			}
			y, err := native(b)
			if err != nil {
				return types.WrapErr(err)
			}
			return types.DefaultTypeAdapter.NativeToValue(f(x, y))
		}))
	return []cel.EnvOption{cel.Function("@"+name, overload), cel.Macros(lenient(name, 2))}
}

// lenient expands f(x, y) to @f(x or null, y or null). No expression can spell @f.
func lenient(name string, n int) cel.Macro {
	return cel.GlobalMacro(name, n, func(mef cel.MacroExprFactory, _ ast.Expr, args []ast.Expr) (ast.Expr, *cel.Error) {
		for i := range args {
			args[i] = orNull(mef, args[i])
		}
		return mef.NewCall("@"+name, args...), nil
	})
}

// orNull makes a path that starts at self an optional one: self.a.b becomes
// self.?a.?b.orValue(null). Anything else stays as it is.
func orNull(mef cel.MacroExprFactory, e ast.Expr) ast.Expr {
	var names []string
	for e2 := e; ; {
		switch e2.Kind() {
		case ast.SelectKind:
			if e2.AsSelect().IsTestOnly() {
				return e
			}
			names = append(names, e2.AsSelect().FieldName())
			e2 = e2.AsSelect().Operand()
			continue
		case ast.IdentKind:
			if e2.AsIdent() != "self" || len(names) == 0 {
				return e
			}
		default:
			return e
		}
		break
	}
	out := mef.NewIdent("self")
	for i := len(names) - 1; i >= 0; i-- {
		out = mef.NewCall("_?._", out, mef.NewLiteral(types.String(names[i])))
	}
	return mef.NewMemberCall("orValue", out, mef.NewLiteral(types.NullValue))
}

// native turns the result of an expression into a value of a JSON tree.
func native(v ref.Val) (any, error) {
	switch x := v.(type) {
	case types.String:
		return string(x), nil
	case types.Int:
		return int64(x), nil
	case types.Double:
		return float64(x), nil
	case types.Bool:
		return bool(x), nil
	case types.Null:
		return nil, nil
	case Ageing:
		return x, nil
	case *types.Err:
		return nil, x
	}
	switch x := v.Value().(type) {
	case map[string]any, []any:
		return x, nil
	case []ref.Val:
		list := make([]any, len(x))
		for i := range x {
			var err error
			if list[i], err = native(x[i]); err != nil {
				return nil, err
			}
		}
		return list, nil
	}
	if n, err := v.ConvertToNative(reflect.TypeFor[[]any]()); err == nil {
		return n, nil
	}
	return nil, fmt.Errorf("an expression gives a %s, which is no cell", v.Type().TypeName())
}
