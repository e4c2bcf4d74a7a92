package builtin

import (
	"context"
	"fmt"
	"time"

	"github.com/quorate/quorate/apiserver/objects"
	"github.com/quorate/quorate/apiserver/slots"
	"github.com/quorate/quorate/apiserver/status"
	"github.com/quorate/quorate/apiserver/tree"
	"github.com/quorate/quorate/apiserver/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

const (
	// maxExpressions is how many expressions one policy, one configuration of webhooks, or one
	// claim of devices may have. Upstream has no bound but the size of the object. Each takes about 0.25
	// ms to compile, and a variable 60 KB, on every node: 10,000 were 2.4 s and 570 MB for one object.
	maxExpressions = 1000
	// compileWait is how long a write waits for its turn to be compiled.
	compileWait = 10 * time.Second
)

// compileTurn has all that compile the expressions of an object that is written: one at a time,
// so that what that takes of memory is bounded however many write at once. It is in the order in
// which they have come.
var compileTurn = make(chan struct{}, 1)

// inTurn calls check once it is this write's turn. Errors: the context's, and 429 if that takes too long.
func inTurn(ctx context.Context, check func() (field.ErrorList, error)) (field.ErrorList, error) {
	// To the end: who has the turn must not wait for a slot, because others wait for the turn.
	defer slots.Waiting(ctx)()
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

// countSelectors is how many expressions a DeviceClass, a ResourceClaim or a template of one has.
func countSelectors(obj tree.Object) (n int) {
	spec := tree.As(obj["spec"])
	n = len(tree.List(spec["selectors"]))
	if inner := tree.As(spec["spec"]); inner != nil {
		spec = inner
	}
	for _, x := range tree.List(tree.Field(spec, "devices", "requests")) {
		request := tree.As(x)
		n += len(tree.List(tree.As(request["exactly"])["selectors"]))
		for _, x := range tree.List(request["firstAvailable"]) {
			n += len(tree.List(tree.As(x)["selectors"]))
		}
	}
	return n
}

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

// validateCompiled is upstream's validation of a kind whose objects have expressions, within the
// bounds. What has more than it may from before may stay so. count is how many it has, path is
// where they are.
func validateCompiled(o *objects.Op, resource string, obj, old tree.Object, path string, count func(tree.Object) int) (field.ErrorList, error) {
	rules := validation.Of(resource)
	check := func() (field.ErrorList, error) {
		if old == nil {
			return rules.Create(obj, o.Resource.Namespaced), nil
		}
		return rules.Update(o.Info.Subresource, obj, old, o.Resource.Namespaced), nil
	}
	n := count(obj)
	switch {
	case n > maxExpressions && n > count(old):
		return field.ErrorList{field.Forbidden(field.NewPath(path), fmt.Sprintf("has %d expressions, at most %d are compiled for one object", n, maxExpressions))}, nil
	case n == 0:
		return check()
	}
	return inTurn(o.Context, check)
}

// compiledDevices is the strategy of a kind whose expressions select devices. What s says in
// ValidateWith comes before what upstream's validation says, as it does there.
func compiledDevices(resource string, s objects.Strategy) *objects.Strategy {
	first := s.ValidateWith
	s.Validation = validatedLater{}
	s.ValidateWith = func(o *objects.Op, obj, old tree.Object) (field.ErrorList, error) {
		count := countSelectors
		if o.Subresource != nil { // a status, whose writer waits for nobody: nothing is compiled
			count = func(tree.Object) int { return 0 }
		}
		errs, err := validateCompiled(o, resource, obj, old, "spec", count)
		if first == nil || err != nil {
			return errs, err
		}
		own, err := first(o, obj, old)
		return append(own, errs...), err
	}
	return &s
}

// CheckAdmission validates a policy, a binding or a webhook configuration that is complete, as a
// create does; who writes it does not matter. resource is its plural.
func CheckAdmission(resource string, obj tree.Object) field.ErrorList {
	return validation.Of(resource+".admissionregistration.k8s.io").Create(obj, false)
}
