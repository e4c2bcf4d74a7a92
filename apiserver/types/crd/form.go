package crd

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel/model"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/defaulting"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/listtype"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/objectmeta"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/pruning"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/validation/field"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"k8s.io/apiserver/pkg/cel/common"
)

// form gives a schema to package schema.
type form struct{ *compilation }

// Fit prunes what the schema does not know, and reads the metadata, its own and
// that of embedded objects, as the Go type would.
func (f form) Fit(obj map[string]any) ([]string, error) { return f.coerce(obj, coercion{}) }

// FitMerged is Fit that leaves the nulls.
func (f form) FitMerged(obj map[string]any) ([]string, error) {
	return f.coerce(obj, coercion{nulls: true})
}

// DropNulls takes out fields that are null and cannot be.
func (f form) DropNulls(obj map[string]any) {
	defaulting.PruneNonNullableNullsWithoutDefaults(obj, f.structural)
}

// Default fills in the schema's defaults. Errors: ErrDefaults.
func (f form) Default(obj map[string]any) error { return complete(obj, f.structural) }

// FitMetadata reads the metadata of an object of which nothing else is known, as the Go type would.
func FitMetadata(obj map[string]any) error {
	meta, found, err := objectmeta.GetObjectMeta(obj, false)
	if err != nil || !found {
		return err
	}
	return objectmeta.SetObjectMeta(obj, meta)
}

// coercion is how an object is read: lenient drops what metadata cannot be, as for objects that
// are stored, and nulls leaves fields that are null and cannot be.
type coercion struct{ lenient, nulls bool }

// coerce is what upstream does to each object that it decodes.
func (c *compilation) coerce(obj map[string]any, how coercion) (unknown []string, err error) {
	kind, apiVersion := obj["kind"], obj["apiVersion"]
	meta, found, unknown, err := objectmeta.GetObjectMetaWithOptions(obj, objectmeta.ObjectMetaOptions{
		DropMalformedFields: how.lenient, ReturnUnknownFieldPaths: true,
	})
	if err != nil {
		return nil, err
	}
	unknown = append(unknown, pruning.PruneWithOptions(obj, c.structural, true, structuralschema.UnknownFieldPathOptions{TrackUnknownFieldPaths: true})...)
	if !how.nulls {
		defaulting.PruneNonNullableNullsWithoutDefaults(obj, c.structural)
	}
	refused, paths := objectmeta.CoerceWithOptions(nil, obj, c.structural, false, objectmeta.CoerceOptions{
		DropInvalidFields: how.lenient, ReturnUnknownFieldPaths: true,
	})
	if refused != nil {
		return nil, refused
	}
	if kind != nil {
		obj["kind"] = kind
	}
	if apiVersion != nil {
		obj["apiVersion"] = apiVersion
	}
	if found {
		if err := objectmeta.SetObjectMeta(obj, meta); err != nil {
			return nil, err
		}
	}
	return append(unknown, paths...), nil
}

// upgrade brings an object that was stored in another form into the one of this
// version, as upstream does: it is pruned and completed as the version that it is
// stored in has it now, and then pruned for this one.
func (v *Version) upgrade(form string, obj map[string]any) error {
	from, err := v.definition.StoredIn(form)
	if err != nil {
		return err
	}
	if from.resource.StorageForm != form {
		if err := from.Complete(obj); err != nil {
			return err
		}
	}
	switch {
	case from == v:
		return nil
	case v.definition.webhook != nil:
		return fmt.Errorf("stored object of %s: %w", from.resource.GVK(), errNotConverted)
	}
	return v.Prune(obj)
}

// errNotConverted is a mistake of ours: who decodes objects of a definition with a
// webhook has it convert them before.
var errNotConverted = errors.New("has to be converted by a webhook")

// Complete prunes an object that has the version's fields and fills in its defaults.
func (v *Version) Complete(obj map[string]any) error {
	c, err := v.pruned(obj)
	if err != nil {
		return err
	}
	if err := complete(obj, c.structural); err != nil {
		return fmt.Errorf("stored object of %s: %w", v.resource.GVK(), err)
	}
	return nil
}

// Prune takes out of an object what the version does not know.
func (v *Version) Prune(obj map[string]any) error {
	_, err := v.pruned(obj)
	return err
}

func (v *Version) pruned(obj map[string]any) (*compilation, error) {
	c, err := v.compilation()
	if err != nil {
		return nil, err
	}
	if _, err := c.coerce(obj, coercion{lenient: true}); err != nil {
		return nil, fmt.Errorf("stored object of %s: %w", v.resource.GVK(), err)
	}
	return c, nil
}

// Validate checks an object, but for its own metadata: against the schema, its list
// types and its rules. old is nil for a create. Parts that were as they are in old
// may be wrong as they were. found is what is wrong with its metadata.
func (v *Version) Validate(ctx context.Context, obj, old map[string]any, found field.ErrorList) (field.ErrorList, error) {
	c, err := v.compilation()
	if err != nil {
		return nil, err
	}
	if old == nil {
		errs := validation.ValidateCustomResource(nil, obj, c.validator)
		errs = append(errs, v.scaleSpec(obj)...)
		errs = append(errs, v.scaleStatus(obj)...)
		errs = append(errs, objectmeta.Validate(nil, obj, c.structural, false)...)
		errs = append(errs, listtype.ValidateListSetsAndMaps(nil, c.structural, obj)...)
		return c.ruled(ctx, found, errs, obj, nil), nil
	}
	related := common.NewCorrelatedObject(obj, old, &model.Structural{Structural: c.structural})
	errs := validation.ValidateCustomResourceUpdate(nil, obj, old, c.validator, validation.WithRatcheting(related))
	errs = append(errs, v.scaleSpec(obj)...)
	errs = append(errs, v.scaleStatus(obj)...)
	errs = append(errs, objectmeta.Validate(nil, obj, c.structural, false)...)
	errs = append(errs, c.newListErrors(obj, old)...)
	return c.ruled(ctx, found, errs, obj, old, cel.WithRatcheting(related)), nil
}

// ValidateOther checks an object that says to be of another kind: the schema is not asked.
func (v *Version) ValidateOther(ctx context.Context, obj, old map[string]any, found field.ErrorList) (field.ErrorList, error) {
	c, err := v.compilation()
	if err != nil {
		return nil, err
	}
	errs := objectmeta.Validate(nil, obj, c.structural, false)
	if old == nil {
		errs = append(errs, listtype.ValidateListSetsAndMaps(nil, c.structural, obj)...)
		return c.ruled(ctx, found, errs, obj, nil), nil
	}
	errs = append(errs, c.newListErrors(obj, old)...)
	return c.ruled(ctx, found, errs, obj, old, cel.WithRatcheting(common.NewCorrelatedObject(obj, old, &model.Structural{Structural: c.structural}))), nil
}

// ValidateStatus is Validate of an object of which only the status may have changed.
func (v *Version) ValidateStatus(ctx context.Context, obj, old map[string]any, found field.ErrorList) (field.ErrorList, error) {
	c, err := v.compilation()
	if err != nil {
		return nil, err
	}
	related := common.NewCorrelatedObject(obj, old, &model.Structural{Structural: c.structural})
	var errs field.ErrorList
	if status, ok := obj["status"]; ok && c.status != nil {
		errs = validation.ValidateCustomResourceUpdate(field.NewPath("status"), status, old["status"], c.status, validation.WithRatcheting(related.Key("status")))
	}
	errs = append(errs, v.scaleStatus(obj)...)
	errs = append(errs, c.newListErrors(obj, old)...)
	return c.ruled(ctx, found, errs, obj, old, cel.WithRatcheting(related)), nil
}

// newListErrors are those of lists that were right before.
func (c *compilation) newListErrors(obj, old map[string]any) field.ErrorList {
	errs := listtype.ValidateListSetsAndMaps(nil, c.structural, obj)
	if len(errs) == 0 || len(listtype.ValidateListSetsAndMaps(nil, c.structural, old)) > 0 {
		return nil
	}
	return errs
}

// ruled adds to errs what the rules (x-kubernetes-validations) say, unless these, or what was found
// before, say that the object is not even what they can be asked about.
func (c *compilation) ruled(ctx context.Context, before, errs field.ErrorList, obj, old map[string]any, options ...cel.Option) field.ErrorList {
	if c.rules == nil {
		return errs
	}
	if slices.ContainsFunc(before, blocksRules) || slices.ContainsFunc(errs, blocksRules) {
		return append(errs, field.Invalid(nil, nil, "some validation rules were not checked because the object was invalid; correct the existing errors to complete validation"))
	}
	var was any
	if old != nil {
		was = old
	}
	found, _ := c.rules.Validate(ctx, nil, c.structural, obj, was, celconfig.RuntimeCELCostBudget, options...)
	return append(errs, found...)
}

func blocksRules(err *field.Error) bool {
	switch err.Type {
	case field.ErrorTypeNotSupported, field.ErrorTypeRequired, field.ErrorTypeTooLong, field.ErrorTypeTooMany, field.ErrorTypeTypeInvalid:
		return true
	}
	return false
}

// scaleSpec and scaleStatus check the fields that the subresource scale shows.
func (v *Version) scaleSpec(obj map[string]any) field.ErrorList {
	if s := v.resource.Subresource("scale"); s != nil {
		return replicas(obj, s.SpecReplicas)
	}
	return nil
}

func (v *Version) scaleStatus(obj map[string]any) field.ErrorList {
	s := v.resource.Subresource("scale")
	if s == nil {
		return nil
	}
	errs := replicas(obj, s.StatusReplicas)
	if s.Selector != "" {
		selector, _, err := unstructured.NestedString(obj, steps(s.Selector)...)
		if err != nil {
			errs = append(errs, field.Invalid(field.NewPath(s.Selector), selector, err.Error()))
		}
	}
	return errs
}

func replicas(obj map[string]any, path string) field.ErrorList {
	n, _, err := unstructured.NestedInt64(obj, steps(path)...)
	switch {
	case err != nil:
		return field.ErrorList{field.Invalid(field.NewPath(path), n, err.Error())}
	case n < 0:
		return field.ErrorList{field.Invalid(field.NewPath(path), n, "should be a non-negative integer")}
	case n > math.MaxInt32:
		return field.ErrorList{field.Invalid(field.NewPath(path), n, fmt.Sprintf("should be less than or equal to %v", math.MaxInt32))}
	}
	return nil
}

func steps(path string) []string { return strings.Split(strings.TrimPrefix(path, "."), ".") }
