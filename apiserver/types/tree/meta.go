package tree

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

var metadataPath = field.NewPath("metadata")

// Timestamp is a time as metadata have it: in seconds.
func Timestamp(t time.Time) string { return t.UTC().Format(time.RFC3339) }

// MatchNamespace makes the object's namespace that of the request, or refuses.
func MatchNamespace(meta Object, namespaced bool, namespace string) error {
	sent := Text(meta, "namespace")
	switch {
	case !namespaced:
		delete(meta, "namespace")
	case sent == "":
		meta["namespace"] = namespace
	case sent != namespace:
		return apierrors.NewBadRequest("the namespace of the provided object does not match the namespace sent on the request")
	}
	return nil
}

// MatchName checks that the body of an update is the object of the path.
func MatchName(meta Object, name string) error {
	switch sent := Text(meta, "name"); sent {
	case name:
		return nil
	case "":
		return apierrors.NewBadRequest(fmt.Sprintf("the name of the object (%s based on URL) was undeterminable: name must be provided", name))
	default:
		return apierrors.NewBadRequest(fmt.Sprintf("the name of the object (%s) does not match the name on the URL (%s)", sent, name))
	}
}

// PrepareCreate sets what the server alone decides; the generation if the kind begins with one;
// others keep what they were sent with, as upstream's do.
// The name may still be empty if generateName is set.
func PrepareCreate(meta Object, generation bool, now time.Time) {
	for _, name := range [...]string{"selfLink", "deletionTimestamp", "deletionGracePeriodSeconds", "resourceVersion"} {
		delete(meta, name)
	}
	meta["uid"] = uuid.NewString()
	meta["creationTimestamp"] = Timestamp(now)
	if generation {
		meta["generation"] = int64(1)
	} else if n, _ := Int(meta["generation"]); n == 0 {
		delete(meta, "generation")
	}
}

// HasVersion reports whether an object names a version of itself. What is no number is as good as
// nothing, as for upstream's storage.
func HasVersion(meta Object) bool {
	n, err := strconv.ParseUint(Text(meta, "resourceVersion"), 10, 64)
	return err == nil && n != 0
}

// PrepareUpdate carries over what an update cannot change and a client may leave
// out. Differences that remain are found by ValidateMetaUpdate.
func PrepareUpdate(meta, old Object) {
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
}

// ValidateMeta checks metadata by apimachinery's rules, the name by the kind's.
func ValidateMeta(meta Object, rule NameRule) field.ErrorList {
	var errs field.ErrorList
	name, generate := Text(meta, "name"), Text(meta, "generateName")
	if generate != "" {
		for _, msg := range rule.validate()(generate, true) {
			errs = append(errs, field.Invalid(metadataPath.Child("generateName"), generate, msg))
		}
	}
	if name == "" {
		errs = append(errs, field.Required(metadataPath.Child("name"), "name or generateName is required"))
	} else if !plainName(name, rule) {
		for _, msg := range rule.validate()(name, false) {
			errs = append(errs, field.Invalid(metadataPath.Child("name"), name, msg))
		}
	}
	if ns := Text(meta, "namespace"); ns != "" && !plainName(ns, NameLabel) {
		for _, msg := range apivalidation.ValidateNamespaceName(ns, false) {
			errs = append(errs, field.Invalid(metadataPath.Child("namespace"), ns, msg))
		}
	}
	if labels, ok := meta["labels"].(Object); ok {
		errs = append(errs, validateLabels(labels)...)
	}
	if annotations, ok := meta["annotations"].(Object); ok {
		errs = append(errs, validateAnnotations(annotations)...)
	}
	if refs, ok := meta["ownerReferences"].([]any); ok && len(refs) > 0 {
		errs = append(errs, apivalidation.ValidateOwnerReferences(ownerReferences(refs), metadataPath.Child("ownerReferences"))...)
	}
	if list, ok := Strings(meta["finalizers"]); ok && len(list) > 0 {
		errs = append(errs, apivalidation.ValidateFinalizers(list, metadataPath.Child("finalizers"))...)
	}
	if managers := StrangeManagers(meta); managers != nil {
		errs = append(errs, metav1validation.ValidateManagedFields(managers, metadataPath.Child("managedFields"))...)
	}
	return errs
}

// PlainManagers accepts entries of managedFields in which nothing is wrong but for their fields.
func PlainManagers(x any) bool {
	list, ok := x.([]any)
	for _, x := range list {
		e, isEntry := x.(Object)
		manager, operation, of := Text(e, "manager"), Text(e, "operation"), Text(e, "fieldsType")
		if !isEntry || len(manager) > 128 || operation != "Update" && operation != "Apply" || of != "" && of != "FieldsV1" || len(Text(e, "subresource")) > 64 {
			return false
		}
		for _, c := range []byte(manager) {
			if c < ' ' || c > '~' {
				return false
			}
		}
	}
	return ok
}

// StrangeManagers are the managedFields of metadata, without their fields, for upstream's validation
// to look at; nil if they are plain.
func StrangeManagers(meta Object) []metav1.ManagedFieldsEntry {
	list := List(meta["managedFields"])
	if len(list) == 0 || PlainManagers(list) {
		return nil
	}
	entries := make([]metav1.ManagedFieldsEntry, len(list))
	for i, x := range list {
		e := As(x)
		entries[i] = metav1.ManagedFieldsEntry{
			Manager: Text(e, "manager"), Operation: metav1.ManagedFieldsOperationType(Text(e, "operation")),
			FieldsType: Text(e, "fieldsType"), Subresource: Text(e, "subresource"),
		}
	}
	return entries
}

// NameRule is a rule of apimachinery's validation package for metadata.name.
type NameRule string

// The rules that kinds have.
const (
	NameSubdomain NameRule = ""             // DNS-1123 subdomain
	NameLabel     NameRule = "dns-label"    // DNS-1123 label
	NameLabel1035 NameRule = "dns-1035"     // DNS-1035 label (services)
	NamePath      NameRule = "path-segment" // anything but /, %, ., ..
)

func (rule NameRule) validate() apivalidation.ValidateNameFunc {
	switch rule {
	case NameLabel:
		return apivalidation.NameIsDNSLabel
	case NameLabel1035:
		return apivalidation.NameIsDNS1035Label
	case NamePath:
		return PathSegmentName
	}
	return apivalidation.NameIsDNSSubdomain
}

// PathSegmentName is upstream's rule for names that only have to fit in a path.
func PathSegmentName(name string, prefix bool) []string {
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
func plainName(s string, rule NameRule) bool {
	if s == "" || len(s) > 63 || !alnum(s[0]) || !alnum(s[len(s)-1]) {
		return false
	}
	if rule == NameLabel1035 && s[0] <= '9' {
		return false
	}
	for i := range len(s) {
		if c := s[i]; !alnum(c) && c != '-' {
			return false
		}
	}
	return true
}

// IsPlainDNSLabel accepts ordinary DNS-1123 labels, such as names of namespaces: a subset of them.
func IsPlainDNSLabel(s string) bool { return plainName(s, NameLabel) }

// IsPlainLabelKey accepts ordinary names of labels and annotations, a subset of those that are valid.
func IsPlainLabelKey(s string) bool { return plainQualifiedName(s) }

// IsPlainLabelValue accepts ordinary values of labels, a subset of those that are valid.
func IsPlainLabelValue(s string) bool { return s == "" || plainLabel(s) }

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
		if !plainName(part, NameLabel) {
			return false
		}
	}
	return len(prefix) <= 253 && plainLabel(name)
}

func validateLabels(labels Object) (errs field.ErrorList) {
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

func validateAnnotations(annotations Object) (errs field.ErrorList) {
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
		m, _ := r.(Object)
		o := metav1.OwnerReference{
			APIVersion: Text(m, "apiVersion"), Kind: Text(m, "kind"),
			Name: Text(m, "name"), UID: types.UID(Text(m, "uid")),
		}
		if b, ok := m["controller"].(bool); ok {
			o.Controller = &b
		}
		out = append(out, o)
	}
	return out
}

// ValidateMetaUpdate checks that immutable metadata is what it was, and that a
// deleting object gets no new finalizers.
func ValidateMetaUpdate(meta, old Object) (errs field.ErrorList) {
	for _, name := range [...]string{"name", "namespace", "uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds"} {
		if !Equal(meta[name], old[name]) {
			errs = append(errs, field.Invalid(metadataPath.Child(name), meta[name], apivalidation.FieldImmutableErrorMsg))
		}
	}
	if old["deletionTimestamp"] != nil {
		before, _ := Strings(old["finalizers"])
		after, _ := Strings(meta["finalizers"])
		errs = append(errs, apivalidation.ValidateNoNewFinalizers(after, before, metadataPath.Child("finalizers"))...)
	}
	return errs
}

// HasFinalizers reports whether anything still has to happen before a deleted
// object may go.
func HasFinalizers(meta Object) bool {
	list, _ := meta["finalizers"].([]any)
	return len(list) > 0
}

// SetFinalizers replaces the list; an empty one is left out.
func SetFinalizers(meta Object, list []string) {
	if len(list) == 0 {
		delete(meta, "finalizers")
		return
	}
	meta["finalizers"] = FromStrings(list)
}
