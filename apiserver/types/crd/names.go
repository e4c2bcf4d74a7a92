package crd

import (
	"crypto/x509"
	"fmt"
	"reflect"
	"time"

	"k8s.io/apiextensions-apiserver/pkg/apihelpers"
	apiextensions "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
)

// Decision is a status that a definition ought to have.
type Decision struct {
	// For is the definition as it was decided on.
	For    *Definition
	Status apiextensions.CustomResourceDefinitionStatus
}

// AcceptNames decides which definitions get the names that they ask for, and returns
// those whose status is not as it ought to be. The definitions are all there are, in
// the order of their names. It is what upstream's naming, establishing and approval
// controllers decide, in one step: here there is nothing to install before a
// resource can be served.
func AcceptNames(definitions []*Definition, now time.Time) []Decision {
	taken := map[string]*groupNames{} // by group, of those in which there is something to decide
	for _, d := range definitions {
		if !d.named {
			taken[d.Spec.Group] = nil
		}
	}
	for _, d := range definitions {
		if names, wanted := taken[d.Spec.Group]; wanted {
			taken[d.Spec.Group] = names.with(&d.Status.AcceptedNames)
		}
	}
	var out []Decision
	for _, d := range definitions {
		if d.named && !apihelpers.IsProtectedCommunityGroup(d.Spec.Group) {
			continue
		}
		status := *d.Status.DeepCopy()
		conditions := []apiextensions.CustomResourceDefinitionCondition{}
		if c := approved(d); c != nil {
			conditions = append(conditions, *c)
		}
		if !d.named {
			accepted, reason, err := taken[d.Spec.Group].accept(&d.Spec.Names, &status.AcceptedNames)
			status.AcceptedNames = accepted
			conditions = append(conditions, namesAccepted(reason, err))
			taken[d.Spec.Group] = taken[d.Spec.Group].with(&accepted)
			if !d.Established() {
				conditions = append(conditions, d.established(err))
			}
		}
		changed := !reflect.DeepEqual(status.AcceptedNames, d.Status.AcceptedNames)
		for _, c := range conditions {
			changed = SetCondition(&status, c, now) || changed
		}
		if changed {
			out = append(out, Decision{For: d, Status: status})
		}
	}
	return out
}

// groupNames are the names that are taken in a group.
type groupNames struct{ resources, kinds map[string]bool }

func (g *groupNames) with(names *apiextensions.CustomResourceDefinitionNames) *groupNames {
	if g == nil {
		g = &groupNames{map[string]bool{}, map[string]bool{}}
	}
	g.resources[names.Plural], g.resources[names.Singular] = true, true
	for _, s := range names.ShortNames {
		g.resources[s] = true
	}
	g.kinds[names.Kind], g.kinds[names.ListKind] = true, true
	return g
}

// accept returns the names that a definition gets, and why some of those that it
// wants are not among them. What it has had it keeps until it gets the new one.
func (g *groupNames) accept(wanted, had *apiextensions.CustomResourceDefinitionNames) (got apiextensions.CustomResourceDefinitionNames, reason string, err error) {
	got = *had
	one := func(want, had string, taken map[string]bool, into *string, why string) {
		if e := free(want, had, taken); e != nil {
			reason, err = why, e
			return
		}
		*into = want
	}
	one(wanted.Plural, had.Plural, g.resources, &got.Plural, "PluralConflict")
	one(wanted.Singular, had.Singular, g.resources, &got.Singular, "SingularConflict")
	var errs []error
	own := map[string]bool{}
	for _, s := range had.ShortNames {
		own[s] = true
	}
	for _, s := range wanted.ShortNames {
		if e := free(s, "", g.resources); e != nil && !own[s] {
			errs = append(errs, e)
		}
	}
	if e := utilerrors.NewAggregate(errs); e != nil {
		reason, err = "ShortNamesConflict", e
	} else {
		got.ShortNames = wanted.ShortNames
	}
	one(wanted.Kind, had.Kind, g.kinds, &got.Kind, "KindConflict")
	one(wanted.ListKind, had.ListKind, g.kinds, &got.ListKind, "ListKindConflict")
	got.Categories = wanted.Categories
	return got, reason, err
}

func free(want, had string, taken map[string]bool) error {
	if want == had || !taken[want] {
		return nil
	}
	return fmt.Errorf("%q is already in use", want)
}

func namesAccepted(reason string, err error) apiextensions.CustomResourceDefinitionCondition {
	c := apiextensions.CustomResourceDefinitionCondition{
		Type: apiextensions.NamesAccepted, Status: apiextensions.ConditionTrue, Reason: "NoConflicts", Message: "no conflicts found",
	}
	if err != nil {
		c.Status, c.Reason, c.Message = apiextensions.ConditionFalse, reason, err.Error()
	}
	return c
}

// established is the condition of a definition whose names are accepted, or err. One whose webhook
// nobody could trust waits until that is mended; later writes of it are refused.
func (d *Definition) established(err error) apiextensions.CustomResourceDefinitionCondition {
	c := apiextensions.CustomResourceDefinitionCondition{
		Type: apiextensions.Established, Status: apiextensions.ConditionTrue,
		Reason: "InitialNamesAccepted", Message: "the initial names have been accepted",
	}
	switch {
	case err != nil:
		c.Status, c.Reason, c.Message = apiextensions.ConditionFalse, "NotAccepted", "not all names are accepted"
	case d.webhook != nil && len(d.webhook.CABundle) > 0 && !x509.NewCertPool().AppendCertsFromPEM(d.webhook.CABundle):
		c.Status, c.Reason, c.Message = apiextensions.ConditionFalse, "InvalidCABundle", "The conversion webhook CABundle is invalid"
	}
	return c
}

// approved is the condition of definitions in the groups of the Kubernetes project;
// nil for others.
func approved(d *Definition) *apiextensions.CustomResourceDefinitionCondition {
	if !apihelpers.IsProtectedCommunityGroup(d.Spec.Group) {
		return nil
	}
	c := &apiextensions.CustomResourceDefinitionCondition{
		Type: apiextensions.KubernetesAPIApprovalPolicyConformant, Status: apiextensions.ConditionFalse,
	}
	state, reason := apihelpers.GetAPIApprovalState(d.Metadata.Annotations)
	switch state {
	case apihelpers.APIApprovalInvalid:
		c.Reason = "InvalidAnnotation"
	case apihelpers.APIApprovalMissing:
		c.Reason = "MissingAnnotation"
	case apihelpers.APIApproved:
		c.Status, c.Reason = apiextensions.ConditionTrue, "ApprovedAnnotation"
	case apihelpers.APIApprovalBypassed:
		c.Reason = "UnapprovedAnnotation"
	default:
		c.Status, c.Reason = apiextensions.ConditionUnknown, "UnknownAnnotation"
	}
	c.Message = reason
	return c
}

// The conditions of a deletion.
var (
	// TerminatingPending is set with the deletion.
	TerminatingPending = terminating(apiextensions.ConditionTrue, "InstanceDeletionPending", "CustomResourceDefinition marked for deletion; CustomResource deletion will begin soon")
	// TerminatingNow is set while instances are deleted.
	TerminatingNow = terminating(apiextensions.ConditionTrue, "InstanceDeletionInProgress", "CustomResource deletion is in progress")
	// TerminatingDone is set when none is left.
	TerminatingDone = terminating(apiextensions.ConditionFalse, "InstanceDeletionCompleted", "removed all instances")
	// TerminatingNever is set instead if there never were any.
	TerminatingNever = terminating(apiextensions.ConditionFalse, "NeverEstablished", "resource was never established")
)

func terminating(status apiextensions.ConditionStatus, reason, message string) apiextensions.CustomResourceDefinitionCondition {
	return apiextensions.CustomResourceDefinitionCondition{Type: apiextensions.Terminating, Status: status, Reason: reason, Message: message}
}

// TerminatingFailed is the condition of a deletion that could not go on.
func TerminatingFailed(err error) apiextensions.CustomResourceDefinitionCondition {
	return terminating(apiextensions.ConditionTrue, "InstanceDeletionFailed", "could not issue all deletes: "+err.Error())
}

// TerminatingCheck is the condition of a deletion that waits for instances which
// something holds.
var TerminatingCheck = terminating(apiextensions.ConditionTrue, "InstanceDeletionCheck", "could not confirm zero CustomResources remaining: timed out waiting for the condition")

// Deleting reports whether a status already says how the deletion of instances goes.
func Deleting(s *apiextensions.CustomResourceDefinitionStatus) bool {
	c := apihelpers.FindCRDCondition(holder(s), apiextensions.Terminating)
	return c != nil && c.Status == apiextensions.ConditionTrue && c.Reason != TerminatingPending.Reason
}

// TerminatingSince is when a deletion began; zero if none has.
func TerminatingSince(s *apiextensions.CustomResourceDefinitionStatus) time.Time {
	if c := apihelpers.FindCRDCondition(holder(s), apiextensions.Terminating); c != nil {
		return c.LastTransitionTime.Time
	}
	return time.Time{}
}

// SetCondition sets a condition and reports whether that changed anything.
func SetCondition(s *apiextensions.CustomResourceDefinitionStatus, c apiextensions.CustomResourceDefinitionCondition, now time.Time) bool {
	old := apihelpers.FindCRDCondition(holder(s), c.Type)
	if apihelpers.IsCRDConditionEquivalent(&c, old) {
		return false
	}
	c.LastTransitionTime = metav1.NewTime(now.UTC().Truncate(time.Second))
	if old == nil {
		s.Conditions = append(s.Conditions, c)
		return true
	}
	if old.Status == c.Status {
		c.LastTransitionTime = old.LastTransitionTime
	}
	*old = c
	return true
}

// holder is a definition for the helpers that look at a status; the conditions are
// shared.
func holder(s *apiextensions.CustomResourceDefinitionStatus) *apiextensions.CustomResourceDefinition {
	return &apiextensions.CustomResourceDefinition{Status: *s}
}
