package builtin

import (
	"bytes"
	"context"
	"fmt"
	"time"

	"github.com/quorate/quorate/apiserver/objects"
	"github.com/quorate/quorate/apiserver/types/kinds"
	"github.com/quorate/quorate/apiserver/types/tree"
	"github.com/quorate/quorate/apiserver/types/validation"
	"github.com/quorate/quorate/apiserver/wire/codec"
	"github.com/quorate/quorate/apiserver/wire/status"
	"github.com/quorate/quorate/internal/slots"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

const (
	// maxExpressions is how many expressions one policy, one configuration of webhooks, or one
	// claim of devices may have. Upstream has no bound but the size of the object. Each takes about 0.25
	// ms to compile, and a variable 60 KB, on every node: 10,000 were 2.4 s and 570 MB for one object.
	maxExpressions = 1000
	// maxCompiled bounds what the expressions of all policies and configurations of webhooks take that
	// are stored, in bytes by compiledSize: each node keeps what it has compiled for as long as they are
	// there. To drop some and compile them again, as schemas of definitions are, would have each write that they
	// are about. It is enough for some 4,600 simple ones.
	maxCompiled = 256 << 20
	// An expression takes expressionBytes compiled, and each byte of it textFactor times as much.
	// Measured: 55 KB for "object.metadata.name != 'a'", 76 KB for 450 bytes of calls.
	expressionBytes = 54 << 10
	textFactor      = 48
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
func countExpressions(obj tree.Object) int {
	n, _ := measureExpressions(obj)
	return n
}

// measureExpressions is how many expressions a policy or a configuration of webhooks has, and how long they are
// together.
func measureExpressions(obj tree.Object) (n, text int) {
	in := func(o tree.Object) {
		for _, name := range expressionLists {
			list := tree.List(o[name])
			n += len(list)
			for _, x := range list {
				e := tree.As(x)
				text += len(tree.Text(e, "expression")) + len(tree.Text(e, "valueExpression"))
				text += len(tree.Text(tree.As(e["applyConfiguration"]), "expression")) + len(tree.Text(tree.As(e["jsonPatch"]), "expression"))
				if message := tree.Text(e, "messageExpression"); message != "" {
					n++
					text += len(message)
				}
			}
		}
	}
	in(tree.As(obj["spec"]))
	for _, w := range tree.List(obj["webhooks"]) {
		in(tree.As(w))
	}
	return n, text
}

// compiledSize is about what the expressions of a policy or a configuration of webhooks take compiled, in bytes.
func compiledSize(obj tree.Object) int {
	n, text := measureExpressions(obj)
	return n*expressionBytes + text*textFactor
}

// ofExpressions are the resources whose expressions nodes keep compiled.
var ofExpressions = [...]string{"validatingadmissionpolicies", "mutatingadmissionpolicies", "validatingwebhookconfigurations", "mutatingwebhookconfigurations"}

// expressionKey is in each stored object with expressions.
var expressionKey = []byte(`xpression":`)

// compiledAmong returns what all that is stored takes compiled, but for the object of an operation.
func compiledAmong(o *objects.Op) (size int, err error) {
	for _, plural := range ofExpressions {
		table := kinds.BuiltinTable(schema.GroupResource{Group: o.Resource.Group, Resource: plural})
		versions, err := o.Store.Range(table, "")
		if err != nil {
			return 0, err
		}
		for _, v := range versions {
			if table == o.Resource.Table() && v.Key == o.Key() || !bytes.Contains(v.Value(), expressionKey) {
				continue
			}
			obj, err := codec.DecodeStored(o.Store.Tables().ByName[table], v)
			if err != nil {
				continue // it refuses writes until it is gone: see state.Objects
			}
			size += compiledSize(obj)
		}
	}
	return size, nil
}

// boundCompiled refuses what would have all policies and configurations of webhooks take more than maxCompiled. Of
// two writes at once the second is decided again, as each of them changes a rule of all writes.
func boundCompiled(o *objects.Op, obj, old tree.Object, path string) (field.ErrorList, error) {
	size := compiledSize(obj)
	if size <= compiledSize(old) {
		return nil, nil
	}
	others, err := compiledAmong(o)
	if err != nil || others+size <= maxCompiled {
		return nil, err
	}
	return field.ErrorList{field.Forbidden(field.NewPath(path), fmt.Sprintf(
		"the expressions take %d KiB compiled, those of all other policies and configurations of webhooks %d KiB: at most %d KiB are kept", size>>10, others>>10, maxCompiled>>10))}, nil
}

// validateCompiled is upstream's validation of a kind whose objects have expressions, within the
// bounds. What has more than it may from before may stay so. count is how many it has, path is
// where they are.
func validateCompiled(o *objects.Op, resource string, obj, old tree.Object, path string, count func(tree.Object) int) (field.ErrorList, error) {
	rules := validation.Of(resource)
	check := func() (field.ErrorList, error) {
		if old == nil {
			return rules.Create(obj, o.Resource.Namespaced, nil), nil
		}
		return rules.Update(o.Info.Subresource, obj, old, o.Resource.Namespaced, nil), nil
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

// validateKept is validateCompiled of policies and configurations of webhooks.
func validateKept(o *objects.Op, resource string, obj, old tree.Object, path string) (field.ErrorList, error) {
	errs, err := boundCompiled(o, obj, old, path)
	if err != nil || len(errs) > 0 {
		return errs, err
	}
	return validateCompiled(o, resource, obj, old, path, countExpressions)
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
	return validation.Of(resource+".admissionregistration.k8s.io").Create(obj, false, nil)
}
