package objects

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/quorate/quorate/apiserver/types/crd"
	"github.com/quorate/quorate/apiserver/types/kinds"
	"github.com/quorate/quorate/apiserver/types/schema"
	"github.com/quorate/quorate/apiserver/types/tree"
	"github.com/quorate/quorate/apiserver/wire/codec"
	"github.com/quorate/quorate/apiserver/wire/request"
	"github.com/quorate/quorate/apiserver/wire/status"
	"k8s.io/apimachinery/pkg/runtime"
	apischema "k8s.io/apimachinery/pkg/runtime/schema"
)

// DecodeBody decodes a body as an object of a kind, checks that it is one, and makes it fit its
// model. What that drops is ignored, warned about or refused, as fieldValidation asks.
func (o *Op) DecodeBody(contentType string, raw []byte, res *kinds.Resource) (tree.Object, error) {
	model, err := ModelOf(res)
	if err != nil {
		return nil, err
	}
	body, err := codec.Decode(contentType, raw, res)
	if err != nil {
		return nil, err
	}
	if body.Object == nil {
		return nil, status.Unrecognized(res.Kind, fmt.Errorf("the body is not an object"), raw)
	}
	o.sent = body.JSON
	if _, err := apischema.ParseGroupVersion(tree.Text(body.Object, "apiVersion")); err != nil {
		return nil, status.Unrecognized(res.Kind, err, raw)
	}
	if res.Custom {
		switch err := saysKind(body.Object, res); {
		case errors.Is(err, errNoKind) && o.Options.Strictness() == request.IgnoreFields:
			return nil, status.CannotBeHandled(res.GVK(), res.Kind, missingKind(raw))
		case errors.Is(err, errNoKind):
			return nil, status.Unrecognized(res.Kind, missingKind(raw), raw)
		case errors.Is(err, errOtherKind) && o.Info.Subresource == "status":
			body.Object["kind"] = res.Kind // nobody looks at it: the status is taken into what is there
		case errors.Is(err, errOtherKind):
			gvk := res.GroupVersion().WithKind(tree.Text(body.Object, "kind"))
			if err := o.takeOther(body.Object); err != nil {
				return nil, status.CannotBeHandled(gvk, res.Kind, err)
			}
			return body.Object, nil
		case err != nil:
			return nil, err
		}
	}
	gvk, err := CheckKind(body.Object, res.GVK())
	if err != nil {
		return nil, err
	}
	unknown, err := o.fit(model, body.Object, body.Numbers)
	if err == nil && res == o.Resource {
		err = o.fitKind(body.Object)
	}
	if err != nil {
		return nil, status.CannotBeHandled(gvk, res.Kind, err)
	}
	duplicates := body.Duplicates
	if !o.Resource.Custom {
		duplicates = knownDuplicates(duplicates, unknown, model)
	}
	found := findings(duplicates, unknown)
	if len(found) > 1 && !o.Resource.Custom { // whose are in upstream's order
		found = body.InOrder(found)
	}
	return body.Object, o.Found(found, gvk, res.Kind)
}

// fit is Fit of a model for what may have a json.Number (see codec.Body).
func (o *Op) fit(model *schema.Model, obj tree.Object, numbers bool) (unknown []string, err error) {
	o.emptied = schema.Emptied{}
	unknown, err = model.FitSent(obj, &o.emptied)
	if err == nil && numbers {
		_, err = codec.PlainNumbers(obj)
	}
	return unknown, err
}

// takeOther makes a custom resource that says another kind one of this, and remembers what it says:
// only its metadata must fit.
func (r *Request) takeOther(obj tree.Object) error {
	if err := crd.FitMetadata(obj); err != nil {
		return err
	}
	gvk := apischema.FromAPIVersionAndKind(tree.Text(obj, "apiVersion"), tree.Text(obj, "kind"))
	r.Other = &gvk
	obj["kind"], obj["apiVersion"] = r.Resource.Kind, r.Resource.GroupVersion().String()
	return nil
}

// fitKind is Fit of the kind's strategy.
func (r *Request) fitKind(obj tree.Object) error {
	if h := r.Strategy(); h.Fit != nil {
		return h.Fit(obj)
	}
	return nil
}

// errNoKind is of a body that does not say its kind, errOtherKind of one that says another.
var errNoKind, errOtherKind = errors.New("object has no kind"), errors.New("object has another kind")

// saysKind checks that an object is one of a custom resource, which says its kind and version
// itself: those of built-in kinds may leave it to the path. Errors: errNoKind, errOtherKind.
func saysKind(obj tree.Object, res *kinds.Resource) error {
	kind := tree.Text(obj, "kind")
	if kind == "" {
		return errNoKind
	}
	if version := tree.Text(obj, "apiVersion"); version != res.GroupVersion().String() {
		return status.VersionMismatch(version, res.GroupVersion().String())
	}
	if kind != res.Kind {
		return errOtherKind
	}
	return nil
}

// missingKind says that a body has no kind, with its beginning: all of it in upstream.
func missingKind(raw []byte) error {
	const most = 4096
	//lint:ignore ST1005 the words are upstream's
	return fmt.Errorf("Object 'Kind' is missing in '%s'", raw[:min(len(raw), most)])
}

// knownDuplicates leaves out the duplicates in JSON that are, or are within, fields which are unknown, or which belong to
// others: upstream's decoder steps over those.
func knownDuplicates(duplicates, unknown []string, model *schema.Model) []string {
	if len(duplicates) == 0 || len(unknown) == 0 && !model.HasRaw() {
		return duplicates
	}
	at := make(map[string]bool, len(unknown))
	for _, path := range unknown {
		at[path] = true
	}
	var kept []string
	for _, d := range duplicates {
		quoted, ok := strings.CutPrefix(d, "duplicate field ")
		path, err := strconv.Unquote(quoted)
		if !ok || err != nil || !within(path, at) && !model.WithinRaw(path) {
			kept = append(kept, d)
		}
	}
	return kept
}

// within reports whether a path is, or is below, one of others.
func within(path string, others map[string]bool) bool {
	for i := range len(path) {
		if (path[i] == '.' || path[i] == '[') && others[path[:i]] {
			return true
		}
	}
	return others[path]
}

// DecodePut decodes a body that is to be what the path names.
func (o *Op) DecodePut(contentType string, raw []byte, on Target) (Put, error) {
	sent, err := o.DecodeBody(contentType, raw, on.Kind(o))
	if err == nil {
		err = o.MatchPath(sent)
	}
	if err == nil {
		o.dedupOwners(tree.As(sent["metadata"]), sameOwners)
	}
	return Put{sent}, err
}

// DecodeApply decodes a configuration.
func (o *Op) DecodeApply(raw []byte, on Target) (a Apply, err error) {
	body, err := codec.DecodeApplied(raw, on.Kind(o))
	if err != nil {
		return a, err
	}
	if body.Object == nil {
		return a, status.BadRequest("error decoding YAML: the body is not an object")
	}
	if len(body.Duplicates) > 0 { // fields that are unknown are the merge's to find
		switch o.Options.Strictness() {
		case request.StrictFields:
			return a, status.BadRequest("error strict decoding YAML: error converting YAML to JSON: %s", joinFindings(body.Duplicates))
		case request.WarnFields:
			o.Warn(body.Duplicates)
		}
	}
	if a.Model, err = o.Model(); err != nil {
		return a, err
	}
	if a.Manager, err = o.FieldManager(); err != nil {
		return a, err
	}
	a.body, o.sent = body.Object, body.JSON
	a.Tree, a.wrong = on.configuration(o, body.Object, a.Model)
	if body.Numbers { // the merge knows none that are kept as they were sent
		for _, obj := range []tree.Object{a.body, a.Tree} {
			if _, err := codec.PlainNumbers(obj); err != nil {
				return a, status.BadRequest("error decoding YAML: %s", err)
			}
		}
	}
	return a, nil
}

// decodePosted decodes what is posted and not stored straight into its type of k8s.io/api, as
// upstream decodes it.
func (o *Op) decodePosted(contentType string, raw []byte, p *Creater) (runtime.Object, error) {
	res, in := p.KindOf(o), p.New()
	strict := o.Options.Strictness() != request.IgnoreFields
	findings, gvk, err := codec.DecodeTyped(contentType, raw, res, in, strict, func(apiVersion, kind string) (apischema.GroupVersionKind, error) {
		if _, err := apischema.ParseGroupVersion(apiVersion); err != nil {
			return apischema.GroupVersionKind{}, status.Unrecognized(res.Kind, err, raw)
		}
		if slices.Contains(p.Also, apiVersion) {
			apiVersion = res.GroupVersion().String()
		}
		return sentKind(kind, apiVersion, res.GVK())
	})
	if err != nil {
		return nil, err
	}
	if err := o.Found(findings, gvk, res.Kind); err != nil {
		return nil, err
	}
	o.dedupPosted(in)
	return in, nil
}

// Found refuses or warns about what strict decoding has found, as fieldValidation asks.
func (r *Request) Found(findings []string, gvk apischema.GroupVersionKind, kind string) error {
	switch r.Options.Strictness() {
	case request.StrictFields:
		if len(findings) > 0 {
			return status.StrictDecoding(gvk, kind, findings)
		}
	case request.WarnFields:
		r.Warn(findings)
	}
	return nil
}
