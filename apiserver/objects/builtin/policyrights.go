package builtin

import (
	"fmt"
	"strings"

	"github.com/quorate/quorate/apiserver/access/auth"
	"github.com/quorate/quorate/apiserver/objects"
	"github.com/quorate/quorate/apiserver/types/tree"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/admission/plugin/manifest"
	"k8s.io/apiserver/pkg/authentication/user"
)

// policyStrategies are those of policies and bindings. static: names with the suffix of what
// comes from files cannot be written; otherwise they are warned of.
func policyStrategies(static bool) map[string]*objects.Strategy {
	const validating, mutating, group = "validatingadmissionpolicies", "mutatingadmissionpolicies", ".admissionregistration.k8s.io"
	of := func(resource string, may func(o *objects.Op, obj, old tree.Object) *field.Error) *objects.Strategy {
		return &objects.Strategy{Validation: validatedLater{}, ValidateWith: func(o *objects.Op, obj, old tree.Object) (field.ErrorList, error) {
			errs, err := validateKept(o, resource, obj, old, "spec")
			if err != nil || o.Subresource != nil {
				return errs, err
			}
			errs = append(errs, reservedName(o, old, static)...)
			if len(errs) == 0 && o.Client && !o.User.InGroup(auth.Masters) {
				if err := may(o, obj, old); err != nil {
					errs = append(errs, err)
				}
			}
			return errs, nil
		}}
	}
	return map[string]*objects.Strategy{
		validating + group: of(validating+group, mayUseParamKind),
		mutating + group:   of(mutating+group, mayUseParamKind),
		"validatingadmissionpolicybindings" + group: of("validatingadmissionpolicybindings"+group, mayUseParams(validating)),
		"mutatingadmissionpolicybindings" + group:   of("mutatingadmissionpolicybindings"+group, mayUseParams(mutating)),
	}
}

// reservedName refuses to create what is called as if it came from a file, or warns of it: static
// says whether rules may come from files.
func reservedName(o *objects.Op, old tree.Object, static bool) field.ErrorList {
	if !strings.HasSuffix(o.Info.Name, manifest.StaticConfigSuffix) {
		return nil
	}
	text := fmt.Sprintf("names ending with %q are reserved for static manifest-based configurations and cannot be managed via the API", manifest.StaticConfigSuffix)
	path := field.NewPath("metadata", "name")
	if static && old == nil {
		return field.ErrorList{field.Invalid(path, o.Info.Name, text)}
	}
	o.Warn([]string{path.String() + ": " + text})
	return nil
}

// paramKindOf is the same in policies of both kinds.
func paramKindOf(obj tree.Object) *admissionv1.ParamKind {
	k := tree.As(tree.Lookup(obj, "spec.paramKind"))
	if k == nil {
		return nil
	}
	return &admissionv1.ParamKind{APIVersion: tree.Text(k, "apiVersion"), Kind: tree.Text(k, "kind")}
}

// resourceOf is what a kind is served as, in the words of a role; stars where that is not known.
func resourceOf(o *objects.Op, kind *admissionv1.ParamKind) (group, version, resource string, parsed, resolved bool) {
	gv, err := schema.ParseGroupVersion(kind.APIVersion)
	if err != nil {
		return "*", "*", "*", false, false
	}
	if res := o.Store.Kinds().LookupKind(gv.WithKind(kind.Kind)); res != nil {
		return gv.Group, gv.Version, res.Plural, true, true
	}
	return gv.Group, gv.Version, "*", true, false
}

// who prints a user as upstream does.
func who(u *auth.User) string {
	return fmt.Sprintf("%v", &user.DefaultInfo{Name: u.Name, UID: u.UID, Groups: u.Groups, Extra: u.Extra})
}

// mayUseParamKind refuses a policy about a kind that the user may not read: the policy would read
// it for him.
func mayUseParamKind(o *objects.Op, obj, old tree.Object) *field.Error {
	kind := paramKindOf(obj)
	if kind == nil {
		return nil
	}
	if was := paramKindOf(old); was != nil && *was == *kind {
		return nil
	}
	group, version, resource, _, _ := resourceOf(o, kind)
	d, _, err := o.Store.Authorizer.Authorize(o.Context, auth.Attributes{
		User: o.User, Verb: "get", ResourceRequest: true, Name: "*", Namespace: "*", APIGroup: group, APIVersion: version, Resource: resource,
	})
	if d == auth.Allow {
		return nil
	}
	if err == nil {
		err = fmt.Errorf(`user %v must have "get" permission on all objects of the referenced paramKind (kind=%s, apiVersion=%s)`, who(o.User), kind.Kind, kind.APIVersion)
	}
	return field.Forbidden(field.NewPath("spec", "paramKind"), err.Error())
}

// mayUseParams refuses a binding to objects that the user may not read.
func mayUseParams(policies string) func(o *objects.Op, obj, old tree.Object) *field.Error {
	return func(o *objects.Op, obj, old tree.Object) *field.Error {
		ref := tree.As(tree.Lookup(obj, "spec.paramRef"))
		if ref == nil {
			return nil
		}
		policy, _ := tree.Lookup(obj, "spec.policyName").(string)
		if old != nil && policy == tree.Lookup(old, "spec.policyName") && equality.Semantic.DeepEqual(ref, tree.As(tree.Lookup(old, "spec.paramRef"))) {
			return nil
		}
		if err := bindingRight(o, policies, policy, ref); err != nil {
			return field.Forbidden(field.NewPath("spec", "paramRef"), err.Error())
		}
		return nil
	}
}

func bindingRight(o *objects.Op, policies, policy string, ref tree.Object) error {
	a := auth.Attributes{
		User: o.User, Verb: "get", ResourceRequest: true, Name: tree.Text(ref, "name"), Namespace: tree.Text(ref, "namespace"),
		APIGroup: "*", APIVersion: "*", Resource: "*",
	}
	if a.Name == "" {
		a.Verb = "list"
	}
	kind, found := storedParamKind(o, policies, policy)
	parsed, resolved := true, true
	if kind != nil {
		a.APIGroup, a.APIVersion, a.Resource, parsed, resolved = resourceOf(o, kind)
	}
	o.Asks(a.Namespace)
	d, _, err := o.Store.Authorizer.Authorize(o.Context, a)
	const least = `to determine minimum required permissions and user %v does not have "%v" permission for all groups, versions and resources`
	switch {
	case d == auth.Allow:
		return nil
	case err != nil:
		return fmt.Errorf(`failed to authorize request: %w`, err)
	case !found:
		return fmt.Errorf("unable to get policy %s "+least, policy, who(o.User), a.Verb)
	case !parsed:
		return fmt.Errorf("unable to parse paramKind %v "+least, kind, who(o.User), a.Verb)
	case !resolved:
		return fmt.Errorf("unable to resolve paramKind %v "+least, kind, who(o.User), a.Verb)
	case policies == "mutatingadmissionpolicies": // upstream's words are in another order there
		return fmt.Errorf(`user %v does not have "%v" permission on the object referenced by paramRef`, a.Verb, who(o.User))
	}
	return fmt.Errorf(`user %v does not have "%v" permission on the object referenced by paramRef`, who(o.User), a.Verb)
}

// storedParamKind is the kind of parameters that a policy names, nil if none.
func storedParamKind(o *objects.Op, policies, name string) (kind *admissionv1.ParamKind, found bool) {
	gvr := schema.GroupVersionResource{Group: "admissionregistration.k8s.io", Version: "v1", Resource: policies}
	other, err := o.Derived(gvr, name, "get")
	if err != nil {
		return nil, false
	}
	v, err := o.Store.Current(other.Resource.Table(), name)
	if err != nil || v == nil {
		return nil, false
	}
	obj, err := other.Decode(v)
	if err != nil {
		return nil, false
	}
	return paramKindOf(obj), true
}
