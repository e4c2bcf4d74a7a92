package builtin

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/quorate/quorate/apiserver/access/auth"
	"github.com/quorate/quorate/apiserver/objects"
	"github.com/quorate/quorate/apiserver/types/validation"
	"github.com/quorate/quorate/apiserver/wire/status"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apischema "k8s.io/apimachinery/pkg/runtime/schema"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// TokenReviewer says whose a token is. *auth.Authentication satisfies it.
type TokenReviewer interface {
	// Review returns the user of a token and whom of the audiences it is for. The
	// error says why the token does not hold.
	Review(ctx context.Context, token string, audiences []string) (u *auth.User, both []string, err error)
}

// reviews answer what users ask about permissions and about themselves. Nothing of it is
// stored.
type reviews struct {
	roles    Roles         // nil: rules are not known
	nodes    bool          // kubelets may do more than the roles say
	reviewer TokenReviewer // nil: no token holds
	tokens   Tokens        // nil: there are no tokens of service accounts
}

func checkSubject(_ *objects.Op, r *authorizationv1.SubjectAccessReview) error {
	return invalidReview(validation.SubjectAccessReview(r))
}

// subject serves SubjectAccessReview.
func (v *reviews) subject(o *objects.Op, r *authorizationv1.SubjectAccessReview) (objects.Created, error) {
	r.Status = reviewAccess(o, userOf(&r.Spec), r.Spec.ResourceAttributes, r.Spec.NonResourceAttributes)
	return objects.Created{Object: r}, nil
}

func checkLocalSubject(o *objects.Op, r *authorizationv1.LocalSubjectAccessReview) error {
	r.Namespace = o.Info.ObjectNamespace
	return invalidReview(validation.LocalSubjectAccessReview(r))
}

// localSubject serves LocalSubjectAccessReview.
func (v *reviews) localSubject(o *objects.Op, r *authorizationv1.LocalSubjectAccessReview) (objects.Created, error) {
	r.Status = reviewAccess(o, userOf(&r.Spec), r.Spec.ResourceAttributes, r.Spec.NonResourceAttributes)
	return objects.Created{Object: r}, nil
}

func checkSelf(_ *objects.Op, r *authorizationv1.SelfSubjectAccessReview) error {
	return invalidReview(validation.SelfSubjectAccessReview(r))
}

// self serves SelfSubjectAccessReview.
func (v *reviews) self(o *objects.Op, r *authorizationv1.SelfSubjectAccessReview) (objects.Created, error) {
	r.Status = reviewAccess(o, o.User, r.Spec.ResourceAttributes, r.Spec.NonResourceAttributes)
	return objects.Created{Object: r}, nil
}

func checkRulesOfSelf(_ *objects.Op, r *authorizationv1.SelfSubjectRulesReview) error {
	if r.Spec.Namespace == "" {
		return status.BadRequest("no namespace on request")
	}
	return nil
}

// rulesOfSelf serves SelfSubjectRulesReview.
func (v *reviews) rulesOfSelf(o *objects.Op, r *authorizationv1.SelfSubjectRulesReview) (objects.Created, error) {
	answer := authorizationv1.SelfSubjectRulesReview{Status: authorizationv1.SubjectRulesReviewStatus{
		ResourceRules: []authorizationv1.ResourceRule{}, NonResourceRules: []authorizationv1.NonResourceRule{},
	}}
	if v.roles == nil {
		answer.Status.Incomplete = true
		return objects.Created{Object: &answer}, nil
	}
	rules, err := v.roles.RulesFor(o.User, r.Spec.Namespace)
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
	if _, kubelet := o.User.Node(); kubelet && v.nodes {
		answer.Status.Incomplete = true
		err = utilerrors.NewAggregate([]error{errNodeRules, err})
	}
	if err != nil {
		answer.Status.EvaluationError = err.Error()
	}
	return objects.Created{Object: &answer}, nil
}

var errNodeRules = errors.New("node authorizer does not support user rule resolution")

// myself serves SelfSubjectReview.
func (v *reviews) myself(o *objects.Op, r *authenticationv1.SelfSubjectReview) (objects.Created, error) {
	answer := authenticationv1.SelfSubjectReview{
		ObjectMeta: metav1.ObjectMeta{CreationTimestamp: metav1.NewTime(o.Store.Now())},
		Status:     authenticationv1.SelfSubjectReviewStatus{UserInfo: userInfo(o.User)},
	}
	return objects.Created{Object: &answer}, nil
}

func checkToken(_ *objects.Op, r *authenticationv1.TokenReview) error {
	if r.Spec.Token == "" {
		return status.BadRequest("token is required for TokenReview in authentication")
	}
	return nil
}

// token serves TokenReview.
func (v *reviews) token(o *objects.Op, r *authenticationv1.TokenReview) (objects.Created, error) {
	if v.reviewer == nil {
		return objects.Created{Object: r}, nil
	}
	audiences := r.Spec.Audiences
	if len(audiences) == 0 && v.tokens != nil {
		audiences = v.tokens.Audiences()
	}
	r.Status = authenticationv1.TokenReviewStatus{}
	if strings.TrimSpace(r.Spec.Token) == "" { // a header with it names no token, and nothing is wrong with it
		return objects.Created{Object: r}, nil
	}
	u, both, err := v.reviewer.Review(o.Context, r.Spec.Token, audiences)
	if err != nil {
		r.Status.Error = err.Error()
	} else {
		r.Status.Authenticated, r.Status.User, r.Status.Audiences = true, userInfo(u), both
	}
	return objects.Created{Object: r}, nil
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
func reviewAccess(o *objects.Op, u *auth.User, r *authorizationv1.ResourceAttributes, path *authorizationv1.NonResourceAttributes) authorizationv1.SubjectAccessReviewStatus {
	a := auth.Attributes{User: u}
	var ignored []string
	if r != nil {
		a.ResourceRequest = true
		a.Verb, a.Namespace, a.APIGroup, a.APIVersion = r.Verb, r.Namespace, r.Group, r.Version
		a.Resource, a.Subresource, a.Name = r.Resource, r.Subresource, r.Name
		if a.APIVersion == "" {
			a.APIVersion = "*"
		}
		ignored, a.FieldSelector = unreadableSelectors(r), fieldRequirements(r.FieldSelector)
	} else {
		a.Verb, a.Path = path.Verb, path.Path
	}
	d, reason, err := o.Store.Authorizer.Authorize(o.Context, a)
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
