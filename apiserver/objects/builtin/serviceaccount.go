package builtin

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/quorate/quorate/apiserver/access/auth/token"
	"github.com/quorate/quorate/apiserver/objects"
	"github.com/quorate/quorate/apiserver/types/kinds"
	"github.com/quorate/quorate/apiserver/types/tree"
	"github.com/quorate/quorate/apiserver/wire/codec"
	"github.com/quorate/quorate/apiserver/wire/status"
	"github.com/quorate/quorate/raftstore/mvcc"
	authenticationv1 "k8s.io/api/authentication/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/validate/content"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apischema "k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Tokens issues the tokens of service accounts. *token.Accounts satisfies it.
type Tokens interface {
	// Issue signs a token. Errors: token.ErrNoKey.
	Issue(s token.Spec) (string, error)
	// Audiences of the API, for requests that name none.
	Audiences() []string
}

var tokenRequestKind = &kinds.Resource{
	Group: authenticationv1.GroupName, Version: "v1", Kind: "TokenRequest", Plural: "tokenrequests", Singular: "tokenrequest",
	Namespaced: true, Model: "io.k8s.api.authentication.v1.TokenRequest",
}

// Bounds of the time that a token is valid, in seconds. Kubelets ask for exactly
// projected; old clients in pods read their token once, so a token for the API that
// is asked for like that is valid for extended, and says when it should have been
// replaced.
const (
	leastTokenSeconds = 10 * 60
	mostTokenSeconds  = 1 << 32
	projected         = 60*60 + 7
	extended          = 24 * 365 * 60 * 60
)

func serviceAccountStrategy(cfg Config) *objects.Strategy {
	s := &objects.Strategy{Prepare: nameSecrets, Warnings: warningsForServiceAccount}
	if cfg.Tokens != nil {
		tokens := &tokenRequests{tokens: cfg.Tokens, most: cfg.MaxToken}
		s.Posts = map[string]*objects.Creater{"token": objects.KeepingMeta(objects.Completed(objects.CreaterOf(tokenRequestKind, tokens.create), tokens.complete))}
	}
	return s
}

// warningsForServiceAccount tell once that an annotation is deprecated.
func warningsForServiceAccount(obj, old tree.Object) []string {
	const name = "kubernetes.io/enforce-mountable-secrets"
	has := func(obj tree.Object) bool {
		_, ok := tree.As(tree.Field(obj, "metadata", "annotations"))[name]
		return ok
	}
	if !has(obj) || old != nil && has(old) {
		return nil
	}
	return []string{"metadata.annotations[" + name + "]: deprecated in v1.32+; prefer separate namespaces to isolate access to mounted secrets"}
}

// nameSecrets leaves of references to secrets their names: they are of the account's namespace.
func nameSecrets(obj, _ tree.Object) {
	list := tree.List(obj["secrets"])
	if len(list) == 0 {
		return
	}
	named := make([]any, len(list))
	for i, ref := range list {
		r := tree.Object{}
		tree.CopyField(r, tree.As(ref), "name")
		named[i] = r
	}
	obj["secrets"] = named
}

// tokenRequests issue tokens.
type tokenRequests struct {
	tokens Tokens
	most   time.Duration // that a token may be valid; zero: not bounded
}

// create serves POST serviceaccounts/NAME/token.
func (t *tokenRequests) create(o *objects.Op, r *authenticationv1.TokenRequest) (objects.Created, error) {
	if err := matchTokenRequest(o, r); err != nil { // before it is told what there is
		return objects.Created{}, err
	}
	account, err := o.Newest(o.Resource.Table(), o.Key())
	if err != nil {
		return objects.Created{}, err
	}
	if account == nil {
		return objects.Created{}, o.NotFound()
	}
	// The state is current now. No log entry says by which rules a token was given.
	if err := o.StillDecided(); err != nil {
		return objects.Created{}, err
	}
	now := o.Store.Now()
	if err := t.fill(o, r, account.UID, now); err != nil {
		return objects.Created{}, err
	}
	if most := int64(t.most / time.Second); most > 0 && *r.Spec.ExpirationSeconds > most {
		o.Warn([]string{fmt.Sprintf("requested expiration of %d seconds shortened to %d seconds", *r.Spec.ExpirationSeconds, most)})
		r.Spec.ExpirationSeconds = &most
	}
	claims := token.Claims{Namespace: r.Namespace, Account: token.Ref{Name: r.Name, UID: account.UID}}
	if err := bindToken(o, &claims, r.Spec.BoundObjectRef); err != nil {
		return objects.Created{}, err
	}
	asked := time.Duration(*r.Spec.ExpirationSeconds) * time.Second
	spec := token.Spec{Claims: claims, Audiences: r.Spec.Audiences, Now: now, ValidFor: asked}
	if *r.Spec.ExpirationSeconds == projected && claims.Pod != nil && t.forAPI(r.Spec.Audiences) {
		spec.ValidFor, spec.WarnAfter = extended*time.Second, asked
	}
	r.Status.Token, err = t.tokens.Issue(spec)
	if errors.Is(err, token.ErrNoKey) {
		return objects.Created{}, status.NoTokenKey()
	}
	if err != nil {
		return objects.Created{}, err
	}
	r.Status.ExpirationTimestamp = metav1.NewTime(now.Add(asked))
	return objects.Created{Object: r}, nil
}

// complete fills in what validating admission sees. create does so again, when it knows that the state is current.
func (t *tokenRequests) complete(o *objects.Op, r *authenticationv1.TokenRequest) error {
	if err := matchTokenRequest(o, r); err != nil {
		return err
	}
	account, err := o.Store.Current(o.Resource.Table(), o.Key())
	if err == nil && account == nil {
		account, err = o.Newest(o.Resource.Table(), o.Key())
	}
	switch {
	case err != nil:
		return err
	case account == nil:
		return o.NotFound()
	}
	return t.fill(o, r, account.UID, o.Store.Now())
}

// fill completes and validates a request for a token of the account with a uid.
func (t *tokenRequests) fill(o *objects.Op, r *authenticationv1.TokenRequest, uid string, now time.Time) error {
	if r.UID != "" && string(r.UID) != uid {
		return tokenConflict(tokenRequestKind.GVK().Group, "TokenRequest", o.Info.Name,
			"the UID in the token request (%s) does not match the UID of the service account (%s)", r.UID, uid)
	}
	r.Name, r.Namespace, r.UID = o.Info.Name, o.Info.ObjectNamespace, types.UID(uid)
	r.CreationTimestamp, r.Status = metav1.NewTime(now), authenticationv1.TokenRequestStatus{}
	if len(r.Spec.Audiences) == 0 {
		r.Spec.Audiences = t.tokens.Audiences()
	}
	return validExpiry(r)
}

// matchTokenRequest checks that a body which names a service account means the
// path's.
func matchTokenRequest(o *objects.Op, r *authenticationv1.TokenRequest) error {
	if r.Name == "" || r.Name == o.Info.Name {
		return nil
	}
	return status.Invalid(tokenRequestKind.GVK().GroupKind(), o.Info.Name, field.ErrorList{
		field.Invalid(field.NewPath("metadata", "name"), r.Name, "must match the service account name if specified"),
	})
}

// validExpiry checks how long the token is to be valid, an hour if that is left out.
func validExpiry(r *authenticationv1.TokenRequest) error {
	const byDefault = int64(60 * 60)
	if r.Spec.ExpirationSeconds == nil {
		seconds := byDefault
		r.Spec.ExpirationSeconds = &seconds
	}
	seconds := *r.Spec.ExpirationSeconds
	at := field.NewPath("spec", "expirationSeconds")
	switch {
	case seconds < leastTokenSeconds:
		return status.Invalid(tokenRequestKind.GVK().GroupKind(), "", field.ErrorList{field.Invalid(at, seconds, "may not specify a duration less than 10 minutes")})
	case seconds > mostTokenSeconds:
		return status.Invalid(tokenRequestKind.GVK().GroupKind(), "", field.ErrorList{field.Invalid(at, seconds, "may not specify a duration larger than 2^32 seconds")})
	}
	return nil
}

func (t *tokenRequests) forAPI(audiences []string) bool {
	own := map[string]bool{}
	for _, a := range t.tokens.Audiences() {
		own[a] = true
	}
	for _, a := range audiences {
		if !own[a] {
			return false
		}
	}
	return true
}

// bindToken looks up what a token is to end with.
func bindToken(o *objects.Op, claims *token.Claims, ref *authenticationv1.BoundObjectReference) error {
	if ref == nil {
		return nil
	}
	gvk := apischema.FromAPIVersionAndKind(ref.APIVersion, ref.Kind)
	bound := &token.Ref{Name: ref.Name}
	var table, key string
	switch {
	case gvk.Group == "" && gvk.Kind == "Pod":
		table, key, claims.Pod = "pods", o.Info.ObjectNamespace+"/"+ref.Name, bound
	case gvk.Group == "" && gvk.Kind == "Secret":
		table, key, claims.Secret = "secrets", o.Info.ObjectNamespace+"/"+ref.Name, bound
	case gvk.Group == "" && gvk.Kind == "Node":
		table, key, claims.Node = "nodes", ref.Name, bound
	default:
		return status.BadRequest("cannot bind token to object of type %s", gvk)
	}
	if ref.Name == "" {
		return status.BadRequest("Name parameter required.")
	}
	if msgs := content.IsPathSegmentName(ref.Name); len(msgs) > 0 {
		return status.BadRequest("Name parameter invalid: %q: %s", ref.Name, strings.Join(msgs, ";"))
	}
	v, err := o.Newest(table, key)
	if err != nil {
		return err
	}
	if v == nil {
		return status.NotFound(apischema.GroupResource{Resource: table}, ref.Name)
	}
	bound.UID = v.UID
	if claims.Pod != nil {
		if err := bindToPod(o, claims, v); err != nil {
			return err
		}
	}
	if ref.UID != "" && string(ref.UID) != v.UID {
		return tokenConflict(gvk.Group, gvk.Kind, ref.Name,
			"the UID in the bound object reference (%s) does not match the UID in record. The object might have been deleted and then recreated", ref.UID)
	}
	return nil
}

// bindToPod checks that a pod is the service account's, and notes where it runs.
func bindToPod(o *objects.Op, claims *token.Claims, pod *mvcc.Version) error {
	res := o.Store.Kinds().Lookup(podsGVR)
	if res == nil {
		return status.NoSuchResource()
	}
	obj, err := codec.DecodeStored(res, pod)
	if err != nil {
		return err
	}
	if name, _ := tree.Lookup(obj, "spec.serviceAccountName").(string); name != o.Info.Name {
		return status.BadRequest("cannot bind token for serviceaccount %q to pod running with different serviceaccount name.", o.Info.Name)
	}
	node, _ := tree.Lookup(obj, "spec.nodeName").(string)
	if node == "" {
		return nil
	}
	claims.Node = &token.Ref{Name: node}
	v, err := o.Store.Current("nodes", node)
	if v != nil {
		claims.Node.UID = v.UID
	}
	return err
}

func tokenConflict(group, kind, name, format string, args ...any) error {
	return apierrors.NewConflict(apischema.GroupResource{Group: group, Resource: kind}, name, fmt.Errorf(format, args...))
}
