package controllers

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/quorate/quorate/apiserver/objects"
	"github.com/quorate/quorate/apiserver/types/crd"
	"github.com/quorate/quorate/apiserver/types/kinds"
	"github.com/quorate/quorate/apiserver/types/schema"
	"github.com/quorate/quorate/apiserver/types/tree"
	"github.com/quorate/quorate/apiserver/wire/request"
	"github.com/quorate/quorate/raftstore/mvcc"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	apischema "k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/admission/plugin/policy/validating"
	"k8s.io/apiserver/pkg/cel/openapi/resolver"
	"k8s.io/kube-openapi/pkg/validation/spec"
)

var policiesGVR = admissionv1.SchemeGroupVersion.WithResource("validatingadmissionpolicies")

// policyStatusManager owns what it says of policies, as upstream's does.
const policyStatusManager = "validatingadmissionpolicy-status"

// policyChecker says in the status of each ValidatingAdmissionPolicy which of its expressions do not fit the types that it
// matches, once for each generation.
type policyChecker struct{ base }

func (c policyChecker) run(ctx context.Context) error {
	table := kinds.BuiltinTable(policiesGVR.GroupResource())
	return c.onChange(ctx, []string{table}, 0, func() (again bool, _ error) {
		versions, err := c.objects.Range(table, "")
		if err != nil {
			return false, fmt.Errorf("list admission policies: %w", err)
		}
		for _, v := range versions {
			err := c.check(ctx, v)
			if ctx.Err() != nil {
				return false, context.Cause(ctx)
			}
			if err != nil {
				again = true
				c.reports.failed("cannot check the types of an admission policy, retrying", "policy", v.Key, "err", err)
			}
		}
		return again, nil
	})
}

func (c policyChecker) check(ctx context.Context, v *mvcc.Version) error {
	var p admissionv1.ValidatingAdmissionPolicy
	if err := json.Unmarshal(v.Value(), &p); err != nil {
		return fmt.Errorf("decode: %w", err)
	}
	if p.Generation <= p.Status.ObservedGeneration {
		return nil
	}
	warnings, err := typeWarnings(ctx, c.objects.Kinds(), &p)
	if err != nil {
		return err
	}
	checked := tree.Object{}
	if len(warnings) > 0 {
		checked["expressionWarnings"] = warnings
	}
	raw, err := json.Marshal(tree.Object{
		"apiVersion": admissionv1.SchemeGroupVersion.String(), "kind": "ValidatingAdmissionPolicy", "metadata": tree.Object{"name": p.Name},
		"status": tree.Object{"observedGeneration": p.Generation, "typeChecking": checked},
	})
	if err != nil {
		return err
	}
	res := c.objects.Kinds().Lookup(policiesGVR)
	if res == nil {
		return errors.New("the registry has no admission policies")
	}
	o, force := c.objects.System(ctx, res, "", p.Name, "patch"), true
	o.Info.Subresource, o.Subresource = "status", res.Subresource("status")
	o.Options = request.Options{FieldManager: policyStatusManager, Force: &force}
	o.Manager = policyStatusManager
	target := objects.PartOf(objects.CopyStatus)
	apply, err := o.DecodeApply(raw, target)
	if err == nil {
		_, err = o.Modify(apply, target)
	}
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// maxTypeChecks is how many compilations the leader makes to check the types of one policy: about
// four seconds of its time. Upstream has no bound.
const maxTypeChecks = 10_000

// typeChecks is how many compilations upstream's checker would make at most: it compiles all
// variables anew for each expression, and each type that the rules match.
func typeChecks(s *admissionv1.ValidatingAdmissionPolicySpec) int {
	const typesOfRule = 10 // upstream's bound
	expressions, types := 0, 0
	for _, v := range s.Validations {
		if expressions++; v.MessageExpression != "" {
			expressions++
		}
	}
	if s.MatchConstraints != nil {
		for i := range s.MatchConstraints.ResourceRules {
			r := &s.MatchConstraints.ResourceRules[i].Rule
			types += min(typesOfRule, len(r.APIGroups)*len(r.APIVersions)*len(r.Resources))
		}
	}
	return expressions * types * (1 + len(s.Variables))
}

// typeWarnings are what upstream's checker says of the expressions of a policy. Errors: the
// context's, which is looked at between expressions.
func typeWarnings(ctx context.Context, registry *kinds.Registry, p *admissionv1.ValidatingAdmissionPolicy) (out []admissionv1.ExpressionWarning, _ error) {
	if n := typeChecks(&p.Spec); n > maxTypeChecks {
		return []admissionv1.ExpressionWarning{{FieldRef: field.NewPath("spec", "validations").String(), Warning: fmt.Sprintf(
			"types were not checked: it would take %d compilations, of all variables for each expression and type; at most %d are made", n, maxTypeChecks)}}, nil
	}
	checker := &validating.TypeChecker{SchemaResolver: schemas{registry}, RestMapper: mapper{registry: registry}}
	types := checker.CreateContext(p)
	check := func(expression string, at *field.Path) error {
		if expression == "" {
			return nil
		}
		if found := checker.CheckExpression(types, expression); len(found) > 0 {
			out = append(out, admissionv1.ExpressionWarning{FieldRef: at.String(), Warning: found.String()})
		}
		return context.Cause(ctx)
	}
	for i, v := range p.Spec.Validations {
		at := field.NewPath("spec", "validations").Index(i)
		if err := errors.Join(check(v.Expression, at.Child("expression")), check(v.MessageExpression, at.Child("messageExpression"))); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// mapper tells the kinds of resources. Nothing else is asked of it.
type mapper struct {
	meta.RESTMapper
	registry *kinds.Registry
}

func (m mapper) KindsFor(gvr apischema.GroupVersionResource) ([]apischema.GroupVersionKind, error) {
	if res := m.registry.Lookup(gvr); res != nil {
		return []apischema.GroupVersionKind{res.GVK()}, nil
	}
	return nil, &meta.NoResourceMatchError{PartialResource: gvr}
}

// schemas are those of what is served, with all that they refer to.
type schemas struct{ registry *kinds.Registry }

// ResolveSchema implements resolver.SchemaResolver.
func (s schemas) ResolveSchema(gvk apischema.GroupVersionKind) (*spec.Schema, error) {
	res := s.registry.LookupKind(gvk)
	if res == nil {
		return nil, fmt.Errorf("cannot resolve %v: %w", gvk, resolver.ErrSchemaNotFound)
	}
	const prefix = "#/components/schemas/"
	var failed error
	made, err := resolver.PopulateRefs(func(ref string) (*spec.Schema, bool) {
		if v := crd.Of(res); v != nil && ref == prefix+res.Model {
			own, err := v.Schema(false)
			failed = errors.Join(failed, err)
			return own, err == nil
		}
		if len(ref) <= len(prefix) {
			return nil, false
		}
		raw, ok := schema.Raw(ref[len(prefix):])
		if !ok {
			return nil, false
		}
		model := &spec.Schema{}
		if err := json.Unmarshal(raw, model); err != nil {
			failed = errors.Join(failed, err)
			return nil, false
		}
		return model, true
	}, prefix+res.Model)
	if failed != nil {
		return nil, fmt.Errorf("schema of %v: %w", gvk, failed)
	}
	return made, err
}
