package apiserver

import (
	"context"
	"net/http"
	"slices"
	"strings"

	"github.com/quorate/quorate/apiserver/auth"
	"github.com/quorate/quorate/apiserver/status"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apischema "k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// TokenReviewer says whose a token is. *auth.Authentication satisfies it.
type TokenReviewer interface {
	// Review returns the user of a token and whom of the audiences it is for. The
	// error says why the token does not hold.
	Review(ctx context.Context, token string, audiences []string) (u *auth.User, both []string, err error)
}

// reviewSubject serves SubjectAccessReview.
func (c *call) reviewSubject() error {
	var r authorizationv1.SubjectAccessReview
	f, err := c.readPosted(c.Resource, &r)
	if err != nil {
		return err
	}
	wipeSystemFields(&r.ObjectMeta)
	r.Namespace = ""
	errs := append(validateSubject(&r.Spec), validateNoMeta(r.ObjectMeta, "must be empty")...)
	if err := invalidReview(errs); err != nil {
		return err
	}
	r.Status = c.reviewAccess(userOf(&r.Spec), r.Spec.ResourceAttributes, r.Spec.NonResourceAttributes)
	return c.answerTyped(f, http.StatusCreated, c.Resource, &r)
}

// reviewLocalSubject serves LocalSubjectAccessReview.
func (c *call) reviewLocalSubject() error {
	var r authorizationv1.LocalSubjectAccessReview
	f, err := c.readPosted(c.Resource, &r)
	if err != nil {
		return err
	}
	wipeSystemFields(&r.ObjectMeta)
	if r.Namespace == "" {
		r.Namespace = c.Info.ObjectNamespace
	} else if r.Namespace != c.Info.ObjectNamespace {
		return status.NamespaceMismatch()
	}
	meta := r.ObjectMeta
	meta.Namespace = ""
	errs := append(validateSubject(&r.Spec), validateNoMeta(meta, "must be empty except for namespace")...)
	if a := r.Spec.ResourceAttributes; a != nil && a.Namespace != r.Namespace {
		errs = append(errs, field.Invalid(field.NewPath("spec.resourceAttributes.namespace"), a.Namespace, "must match metadata.namespace"))
	}
	if a := r.Spec.NonResourceAttributes; a != nil {
		errs = append(errs, field.Invalid(field.NewPath("spec.nonResourceAttributes"), a, "disallowed on this kind of request"))
	}
	if err := invalidReview(errs); err != nil {
		return err
	}
	r.Status = c.reviewAccess(userOf(&r.Spec), r.Spec.ResourceAttributes, r.Spec.NonResourceAttributes)
	return c.answerTyped(f, http.StatusCreated, c.Resource, &r)
}

// reviewSelf serves SelfSubjectAccessReview.
func (c *call) reviewSelf() error {
	var r authorizationv1.SelfSubjectAccessReview
	f, err := c.readPosted(c.Resource, &r)
	if err != nil {
		return err
	}
	wipeSystemFields(&r.ObjectMeta)
	r.Namespace = ""
	errs := append(validateAttributes(r.Spec.ResourceAttributes, r.Spec.NonResourceAttributes), validateNoMeta(r.ObjectMeta, "must be empty")...)
	if err := invalidReview(errs); err != nil {
		return err
	}
	r.Status = c.reviewAccess(c.User, r.Spec.ResourceAttributes, r.Spec.NonResourceAttributes)
	return c.answerTyped(f, http.StatusCreated, c.Resource, &r)
}

// reviewRules serves SelfSubjectRulesReview.
func (c *call) reviewRules() error {
	var r authorizationv1.SelfSubjectRulesReview
	f, err := c.readPosted(c.Resource, &r)
	if err != nil {
		return err
	}
	if r.Spec.Namespace == "" {
		return status.BadRequest("no namespace on request")
	}
	answer := authorizationv1.SelfSubjectRulesReview{Status: authorizationv1.SubjectRulesReviewStatus{
		ResourceRules: []authorizationv1.ResourceRule{}, NonResourceRules: []authorizationv1.NonResourceRule{},
	}}
	if c.s.cfg.Roles == nil {
		answer.Status.Incomplete = true
		return c.answerTyped(f, http.StatusCreated, c.Resource, &answer)
	}
	rules, err := c.s.cfg.Roles.RulesFor(c.User, r.Spec.Namespace)
	for _, x := range rules {
		if len(x.Resources) > 0 {
			answer.Status.ResourceRules = append(answer.Status.ResourceRules, authorizationv1.ResourceRule{
				Verbs: x.Verbs, APIGroups: x.APIGroups, Resources: x.Resources, ResourceNames: x.ResourceNames})
		}
		if len(x.NonResourceURLs) > 0 {
			answer.Status.NonResourceRules = append(answer.Status.NonResourceRules, authorizationv1.NonResourceRule{
				Verbs: x.Verbs, NonResourceURLs: x.NonResourceURLs})
		}
	}
	if err != nil {
		answer.Status.EvaluationError = err.Error()
	}
	return c.answerTyped(f, http.StatusCreated, c.Resource, &answer)
}

// reviewMyself serves SelfSubjectReview.
func (c *call) reviewMyself() error {
	var r authenticationv1.SelfSubjectReview
	f, err := c.readPosted(c.Resource, &r)
	if err != nil {
		return err
	}
	answer := authenticationv1.SelfSubjectReview{
		ObjectMeta: metav1.ObjectMeta{CreationTimestamp: metav1.NewTime(c.s.cfg.Now())},
		Status:     authenticationv1.SelfSubjectReviewStatus{UserInfo: userInfo(c.User)},
	}
	return c.answerTyped(f, http.StatusCreated, c.Resource, &answer)
}

// reviewToken serves TokenReview.
func (c *call) reviewToken() error {
	var r authenticationv1.TokenReview
	f, err := c.readPosted(c.Resource, &r)
	if err != nil {
		return err
	}
	wipeSystemFields(&r.ObjectMeta)
	r.Namespace = ""
	if r.Spec.Token == "" {
		return status.BadRequest("token is required for TokenReview in authentication")
	}
	if c.s.cfg.Reviewer == nil {
		return c.answerTyped(f, http.StatusCreated, c.Resource, &r)
	}
	audiences := r.Spec.Audiences
	if len(audiences) == 0 && c.s.cfg.Tokens != nil {
		audiences = c.s.cfg.Tokens.Audiences()
	}
	r.Status = authenticationv1.TokenReviewStatus{}
	u, both, err := c.s.cfg.Reviewer.Review(c.Context, r.Spec.Token, audiences)
	if err != nil {
		r.Status.Error = err.Error()
	} else {
		r.Status.Authenticated, r.Status.User, r.Status.Audiences = true, userInfo(u), both
	}
	return c.answerTyped(f, http.StatusCreated, c.Resource, &r)
}

func userInfo(u *auth.User) authenticationv1.UserInfo {
	extra := make(map[string]authenticationv1.ExtraValue, len(u.Extra))
	for k, v := range u.Extra {
		extra[k] = v
	}
	return authenticationv1.UserInfo{Username: u.Name, UID: u.UID, Groups: u.Groups, Extra: extra}
}

func userOf(s *authorizationv1.SubjectAccessReviewSpec) *auth.User {
	u := &auth.User{Name: s.User, UID: s.UID, Groups: slices.Clone(s.Groups)}
	for k, v := range s.Extra {
		if u.Extra == nil {
			u.Extra = map[string][]string{}
		}
		u.Extra[k] = v
	}
	return u
}

// reviewAccess asks the authorizer as a request of that user would.
func (c *call) reviewAccess(u *auth.User, r *authorizationv1.ResourceAttributes, path *authorizationv1.NonResourceAttributes) authorizationv1.SubjectAccessReviewStatus {
	a := auth.Attributes{User: u}
	var ignored []string
	if r != nil {
		a.ResourceRequest = true
		a.Verb, a.Namespace, a.APIGroup, a.APIVersion = r.Verb, r.Namespace, r.Group, r.Version
		a.Resource, a.Subresource, a.Name = r.Resource, r.Subresource, r.Name
		if a.APIVersion == "" {
			a.APIVersion = "*"
		}
		ignored = unreadableSelectors(r)
	} else {
		a.Verb, a.Path = path.Verb, path.Path
	}
	d, reason, err := c.s.cfg.Authorizer.Authorize(c.Context, a)
	if err != nil {
		ignored = append([]string{err.Error()}, ignored...)
	}
	return authorizationv1.SubjectAccessReviewStatus{
		Allowed: d == auth.Allow, Denied: d == auth.Deny, Reason: reason, EvaluationError: strings.Join(ignored, "; "),
	}
}

// invalidReview is the 422 of a review, which upstream gives without the kind's name.
func invalidReview(errs field.ErrorList) error {
	if len(errs) == 0 {
		return nil
	}
	return status.Invalid(apischema.GroupKind{Group: authorizationv1.GroupName}, "", errs)
}

func validateNoMeta(m metav1.ObjectMeta, text string) field.ErrorList {
	m.ManagedFields = nil
	if equality.Semantic.DeepEqual(metav1.ObjectMeta{}, m) {
		return nil
	}
	return field.ErrorList{field.Invalid(field.NewPath("metadata"), m, text)}
}
