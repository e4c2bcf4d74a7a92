package builtin

import (
	"context"
	"fmt"
	"time"

	"github.com/quorate/quorate/apiserver/objects"
	"github.com/quorate/quorate/apiserver/status"
	"github.com/quorate/quorate/apiserver/tree"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

const (
	// maxExpressions is how many expressions one policy, or one configuration of webhooks, may
	// have. Upstream has no bound but the size of the object. Each takes about 0.25 ms to compile, and
	// a variable 60 KB, on every node: 10,000 were 2.4 s and 570 MB for one object.
	maxExpressions = 1000
	// compileWait is how long a write waits for its turn to be compiled.
	compileWait = 10 * time.Second
)

// compileTurn has whoever compiles the expressions of an object that is written: one at a time,
// so that what that takes of memory is bounded however many write at once. It is in the order in
// which they have come.
var compileTurn = make(chan struct{}, 1)

// inTurn calls check once it is this write's turn. Errors: the context's, and 429 if that takes too long.
func inTurn(ctx context.Context, check func() (field.ErrorList, error)) (field.ErrorList, error) {
	wait, cancel := context.WithTimeout(ctx, compileWait)
	defer cancel()
	select {
	case compileTurn <- struct{}{}:
		defer func() { <-compileTurn }()
		return check()
	case <-wait.Done():
	}
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	return nil, status.TooMany(1)
}

// expressionLists are the fields with expressions of one element each: those of policies in their
// specs, and match conditions in webhooks.
var expressionLists = [...]string{"matchConditions", "variables", "validations", "auditAnnotations", "mutations"}

// countExpressions is how many expressions a policy or a configuration of webhooks has.
func countExpressions(obj tree.Object) (n int) {
	in := func(o tree.Object) {
		for _, name := range expressionLists {
			n += len(tree.List(o[name]))
		}
		for _, v := range tree.List(o["validations"]) {
			if tree.Text(tree.As(v), "messageExpression") != "" {
				n++
			}
		}
	}
	in(tree.As(obj["spec"]))
	for _, w := range tree.List(obj["webhooks"]) {
		in(tree.As(w))
	}
	return n
}

// checkExpressions calls check, which compiles what obj has, within the bounds. What has more than
// it may from before may stay so. path is where the expressions are.
func checkExpressions(o *objects.Op, obj, old tree.Object, path string, check func() field.ErrorList) (field.ErrorList, error) {
	n := countExpressions(obj)
	if n > maxExpressions && n > countExpressions(old) {
		return field.ErrorList{field.Forbidden(field.NewPath(path), fmt.Sprintf("has %d expressions, at most %d are compiled for one object", n, maxExpressions))}, nil
	}
	if n == 0 {
		return check(), nil
	}
	return inTurn(o.Context, func() (field.ErrorList, error) { return check(), nil })
}
