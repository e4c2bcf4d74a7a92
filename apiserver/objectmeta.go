package apiserver

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/quorate/quorate/apiserver/kinds"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// tree is a decoded object: map[string]any, []any, string, bool, int64, float64, nil.
type tree = map[string]any

var metadataPath = field.NewPath("metadata")

// metaOf returns an object's metadata, made if absent. Package schema has
// checked the types of what is in it, for models that describe it; custom
// resources and hand-made trees get the same refusal here.
func metaOf(obj tree) (tree, error) {
	switch m := obj["metadata"].(type) {
	case nil:
		meta := tree{}
		obj["metadata"] = meta
		return meta, nil
	case tree:
		return m, nil
	}
	return nil, apierrors.NewBadRequest("metadata must be an object")
}

func text(m tree, name string) string {
	s, _ := m[name].(string)
	return s
}

func timestamp(t time.Time) string { return t.UTC().Format(time.RFC3339) }

// matchNamespace makes the object's namespace that of the request, or refuses.
func matchNamespace(meta tree, res *kinds.Resource, namespace string) error {
	sent := text(meta, "namespace")
	switch {
	case !res.Namespaced:
		delete(meta, "namespace")
	case sent == "":
		meta["namespace"] = namespace
	case sent != namespace:
		return apierrors.NewBadRequest("the namespace of the provided object does not match the namespace sent on the request")
	}
	return nil
}

// matchName checks that the body of an update is the object of the path.
func matchName(meta tree, name string) error {
	switch sent := text(meta, "name"); sent {
	case name:
		return nil
	case "":
		return apierrors.NewBadRequest(fmt.Sprintf("the name of the object (%s based on URL) was undeterminable: name must be provided", name))
	default:
		return apierrors.NewBadRequest(fmt.Sprintf("the name of the object (%s) does not match the name on the URL (%s)", sent, name))
	}
}

// prepareCreate sets what the server alone decides. The name may still be empty
// if generateName is set.
func prepareCreate(meta tree, res *kinds.Resource, now time.Time) error {
	if v := text(meta, "resourceVersion"); v != "" {
		return apierrors.NewBadRequest("resourceVersion should not be set on objects to be created")
	}
	for _, name := range [...]string{"selfLink", "deletionTimestamp", "deletionGracePeriodSeconds", "resourceVersion", "generation"} {
		delete(meta, name)
	}
	meta["uid"] = uuid.NewString()
	meta["creationTimestamp"] = timestamp(now)
	if res.HasGeneration {
		meta["generation"] = int64(1)
	}
	return nil
}

// prepareUpdate carries over what an update cannot change and a client may leave
// out. Differences that remain are found by validateMetaUpdate.
func prepareUpdate(meta, old tree) {
	delete(meta, "selfLink")
	for _, name := range [...]string{"uid", "deletionGracePeriodSeconds"} {
		if v, ok := old[name]; ok && meta[name] == nil {
			meta[name] = v
		}
	}
	// Changes of these times are ignored.
	for _, name := range [...]string{"creationTimestamp", "deletionTimestamp"} {
		if v, ok := old[name]; ok {
			meta[name] = v
		}
	}
	if v, ok := old["generation"]; ok {
		meta["generation"] = v
	} else {
		delete(meta, "generation")
	}
	// A name that was generated once stays what it is, whatever the update says.
	if v := text(old, "generateName"); v != "" && text(meta, "generateName") == "" {
		meta["generateName"] = v
	}
}

// validateMeta checks metadata by apimachinery's rules.
func validateMeta(meta tree, res *kinds.Resource) field.ErrorList {
	var errs field.ErrorList
	name, generate := text(meta, "name"), text(meta, "generateName")
	if generate != "" {
		for _, msg := range nameRule(res.NameRule)(generate, true) {
			errs = append(errs, field.Invalid(metadataPath.Child("generateName"), generate, msg))
		}
	}
	if name == "" {
		errs = append(errs, field.Required(metadataPath.Child("name"), "name or generateName is required"))
	} else if !plainName(name, res.NameRule) {
		for _, msg := range nameRule(res.NameRule)(name, false) {
			errs = append(errs, field.Invalid(metadataPath.Child("name"), name, msg))
		}
	}
	if ns := text(meta, "namespace"); ns != "" && !plainName(ns, kinds.NameLabel) {
		for _, msg := range apivalidation.ValidateNamespaceName(ns, false) {
			errs = append(errs, field.Invalid(metadataPath.Child("namespace"), ns, msg))
		}
	}
	if labels, ok := meta["labels"].(tree); ok {
		errs = append(errs, validateLabels(labels)...)
	}
	if annotations, ok := meta["annotations"].(tree); ok {
		errs = append(errs, validateAnnotations(annotations)...)
	}
	if refs, ok := meta["ownerReferences"].([]any); ok && len(refs) > 0 {
		errs = append(errs, apivalidation.ValidateOwnerReferences(ownerReferences(refs), metadataPath.Child("ownerReferences"))...)
	}
	if list, ok := stringList(meta["finalizers"]); ok && len(list) > 0 {
		errs = append(errs, apivalidation.ValidateFinalizers(list, metadataPath.Child("finalizers"))...)
	}
	return errs
}

func nameRule(rule kinds.NameRule) apivalidation.ValidateNameFunc {
	switch rule {
	case kinds.NameLabel:
		return apivalidation.NameIsDNSLabel
	case kinds.NameLabel1035:
		return apivalidation.NameIsDNS1035Label
	case kinds.NamePath:
		return pathSegmentName
	}
	return apivalidation.NameIsDNSSubdomain
}

// pathSegmentName is upstream's rule for names that only have to fit in a path.
func pathSegmentName(name string, prefix bool) []string {
	if !prefix && (name == "." || name == "..") {
		return []string{fmt.Sprintf("may not be '%s'", name)}
	}
	var msgs []string
	for _, c := range [...]string{"/", "%"} {
		if strings.Contains(name, c) {
			msgs = append(msgs, fmt.Sprintf("may not contain '%s'", c))
		}
	}
	return msgs
}

// plainName accepts the names that nearly all objects have, without the regular
// expressions of the library, which then only has to word refusals. It accepts
// a subset of every rule.
func plainName(s string, rule kinds.NameRule) bool {
	if s == "" || len(s) > 63 || !alnum(s[0]) || !alnum(s[len(s)-1]) {
		return false
	}
	if rule == kinds.NameLabel1035 && s[0] <= '9' {
		return false
	}
	for i := range len(s) {
		if c := s[i]; !alnum(c) && c != '-' {
			return false
		}
	}
	return true
}

func alnum(c byte) bool { return c >= 'a' && c <= 'z' || c >= '0' && c <= '9' }

// plainLabel accepts ordinary label values, and label names without a prefix.
func plainLabel(s string) bool {
	if len(s) == 0 || len(s) > 63 || !alnum(s[0]|0x20) || !alnum(s[len(s)-1]|0x20) {
		return false
	}
	for i := range len(s) {
		if c := s[i]; !alnum(c) && !(c >= 'A' && c <= 'Z') && c != '-' && c != '_' && c != '.' {
			return false
		}
	}
	// |0x20 above lets control bytes 0x10..0x19 through; the loop does not.
	return true
}

// plainQualifiedName accepts ordinary label and annotation names.
func plainQualifiedName(s string) bool {
	prefix, name, ok := strings.Cut(s, "/")
	if !ok {
		return plainLabel(s)
	}
	for part := range strings.SplitSeq(prefix, ".") {
		if !plainName(part, kinds.NameLabel) {
			return false
		}
	}
	return len(prefix) <= 253 && plainLabel(name)
}

func validateLabels(labels tree) (errs field.ErrorList) {
	path := metadataPath.Child("labels")
	for k, v := range labels {
		s, _ := v.(string)
		if plainQualifiedName(k) && (s == "" || plainLabel(s)) {
			continue
		}
		errs = append(errs, metav1validation.ValidateLabels(map[string]string{k: s}, path)...)
	}
	return errs
}

func validateAnnotations(annotations tree) (errs field.ErrorList) {
	path := metadataPath.Child("annotations")
	size := 0
	for k, v := range annotations {
		s, _ := v.(string)
		size += len(k) + len(s)
		if !plainQualifiedName(k) {
			errs = append(errs, apivalidation.ValidateAnnotations(map[string]string{k: ""}, path)...)
		}
	}
	if size > apivalidation.TotalAnnotationSizeLimitB {
		errs = append(errs, field.TooLong(path, "", apivalidation.TotalAnnotationSizeLimitB))
	}
	return errs
}

func ownerReferences(refs []any) []metav1.OwnerReference {
	out := make([]metav1.OwnerReference, 0, len(refs))
	for _, r := range refs {
		m, _ := r.(tree)
		o := metav1.OwnerReference{
			APIVersion: text(m, "apiVersion"), Kind: text(m, "kind"),
			Name: text(m, "name"), UID: types.UID(text(m, "uid")),
		}
		if b, ok := m["controller"].(bool); ok {
			o.Controller = &b
		}
		out = append(out, o)
	}
	return out
}

// validateMetaUpdate checks that immutable metadata is what it was, and that a
// deleting object gets no new finalizers.
func validateMetaUpdate(meta, old tree) (errs field.ErrorList) {
	for _, name := range [...]string{"name", "namespace", "uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds"} {
		if !treeEqual(meta[name], old[name]) {
			errs = append(errs, field.Invalid(metadataPath.Child(name), meta[name], apivalidation.FieldImmutableErrorMsg))
		}
	}
	if old["deletionTimestamp"] != nil {
		before, _ := stringList(old["finalizers"])
		after, _ := stringList(meta["finalizers"])
		errs = append(errs, apivalidation.ValidateNoNewFinalizers(after, before, metadataPath.Child("finalizers"))...)
	}
	return errs
}

// hasFinalizers reports whether anything still has to happen before a deleted
// object may go.
func hasFinalizers(meta tree) bool {
	list, _ := meta["finalizers"].([]any)
	return len(list) > 0
}

// setFinalizers replaces the list; an empty one is left out.
func setFinalizers(meta tree, list []string) {
	if len(list) == 0 {
		delete(meta, "finalizers")
		return
	}
	out := make([]any, len(list))
	for i, s := range list {
		out[i] = s
	}
	meta["finalizers"] = out
}

// immutableErrors compares the fields that a kind declares immutable.
func immutableErrors(res *kinds.Resource, obj, old tree) (errs field.ErrorList) {
	for _, path := range res.ImmutableFields {
		was, now := lookup(old, path), lookup(obj, path)
		if !treeEqual(was, now) {
			errs = append(errs, field.Invalid(dottedPath(path), now, apivalidation.FieldImmutableErrorMsg))
		}
	}
	return append(errs, frozenErrors(res, obj, old)...)
}

// frozenErrors compares the fields of an object that was declared immutable as a
// whole.
func frozenErrors(res *kinds.Resource, obj, old tree) (errs field.ErrorList) {
	if res.FrozenBy == "" || lookup(old, res.FrozenBy) != true {
		return nil
	}
	why := fmt.Sprintf("field is immutable when `%s` is set", res.FrozenBy)
	if lookup(obj, res.FrozenBy) != true {
		errs = append(errs, field.Forbidden(dottedPath(res.FrozenBy), why))
	}
	for _, path := range res.FrozenFields {
		if !treeEqual(lookup(old, path), lookup(obj, path)) {
			errs = append(errs, field.Forbidden(dottedPath(path), why))
		}
	}
	return errs
}

func dottedPath(path string) *field.Path {
	parts := strings.Split(strings.TrimPrefix(path, "."), ".")
	return field.NewPath(parts[0], parts[1:]...)
}

// lookup follows a dotted path through objects; nil if it ends early.
func lookup(obj tree, path string) any {
	var at any = obj
	for part := range strings.SplitSeq(strings.TrimPrefix(path, "."), ".") {
		m, ok := at.(tree)
		if !ok {
			return nil
		}
		at = m[part]
	}
	return at
}

// treeEqual compares decoded JSON. An absent field and an empty list or object
// differ: what is stored differs too.
func treeEqual(a, b any) bool {
	switch a := a.(type) {
	case tree:
		b, ok := b.(tree)
		if !ok || len(a) != len(b) {
			return false
		}
		for k, v := range a {
			w, ok := b[k]
			if !ok || !treeEqual(v, w) {
				return false
			}
		}
		return true
	case []any:
		b, ok := b.([]any)
		return ok && slices.EqualFunc(a, b, treeEqual)
	case int64:
		switch b := b.(type) {
		case int64:
			return a == b
		case float64:
			return float64(a) == b
		}
		return false
	case float64:
		if b, ok := b.(int64); ok {
			return a == float64(b)
		}
	}
	return a == b
}

// countGeneration raises metadata.generation if anything outside metadata and
// status has changed.
func countGeneration(res *kinds.Resource, obj, old tree, meta tree) {
	// A status that is no subresource of a custom resource is a field like others.
	plain := res.Custom && res.Subresource("status") == nil
	if specEqual(obj, old) && (!plain || treeEqual(obj["status"], old["status"])) {
		return
	}
	was, _ := wholeNumber(meta["generation"])
	meta["generation"] = was + 1
}

func specEqual(obj, old tree) bool {
	return halfEqual(obj, old) && halfEqual(old, obj)
}

func halfEqual(a, b tree) bool {
	for k, v := range a {
		switch k {
		case "metadata", "status", "kind", "apiVersion":
			continue
		}
		if w, ok := b[k]; !ok || !treeEqual(v, w) {
			return false
		}
	}
	return true
}
