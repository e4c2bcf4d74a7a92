package policies

import (
	"context"
	"log/slog"

	"github.com/quorate/quorate/apiserver/access/auth"
	"github.com/quorate/quorate/apiserver/admission"
	"github.com/quorate/quorate/apiserver/admission/static"
	"github.com/quorate/quorate/apiserver/admission/suspension"
	"github.com/quorate/quorate/apiserver/admission/upstream"
	"github.com/quorate/quorate/apiserver/types/kinds"
	"github.com/quorate/quorate/apiserver/types/state"
	"github.com/quorate/quorate/apiserver/types/tree"
	"github.com/quorate/quorate/raftstore/mvcc"
	"github.com/quorate/quorate/raftstore/view"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission/plugin/policy/matching"
	"k8s.io/apiserver/pkg/warning"
)

// Decode returns stored versions as objects of a resource. They share nothing with the state.
// Errors: Status errors, of a conversion webhook too.
type Decode func(ctx context.Context, res *kinds.Resource, versions []*mvcc.Version) ([]tree.Object, error)

// Config is what policies are evaluated with. All of it is required.
type Config struct {
	Store      view.Store
	State      *state.State
	Kinds      *upstream.Kinds
	Namespaces *upstream.Namespaces
	Authorizer auth.Authorizer
	Decode     Decode
	// Suspensions are what is not asked at the moment; nil: nothing is suspended.
	Suspensions *suspension.View
	// Static is how policies come from files.
	Static static.Files
	Log    *slog.Logger
}

func (c *Config) matcher() *matching.Matcher {
	return matching.NewMatcher(c.Namespaces, &upstream.Client{Namespaces: c.Namespaces})
}

const group = "admissionregistration.k8s.io"

// unguarded are posted and not stored: a policy about them could lock everybody out. The list
// is upstream's (pkg/kubeapiserver/admission/exclusion).
var unguarded = map[schema.GroupResource]bool{
	{Group: "authentication.k8s.io", Resource: "selfsubjectreviews"}:       true,
	{Group: "authentication.k8s.io", Resource: "tokenreviews"}:             true,
	{Group: "authorization.k8s.io", Resource: "localsubjectaccessreviews"}: true,
	{Group: "authorization.k8s.io", Resource: "selfsubjectaccessreviews"}:  true,
	{Group: "authorization.k8s.io", Resource: "selfsubjectrulesreviews"}:   true,
	{Group: "authorization.k8s.io", Resource: "subjectaccessreviews"}:      true,
}

// ofPolicies are the policies themselves: only those from files are asked about them, so that
// the others can always be taken away.
var ofPolicies = map[schema.GroupResource]bool{
	{Group: group, Resource: "validatingadmissionpolicies"}:       true,
	{Group: group, Resource: "validatingadmissionpolicybindings"}: true,
	{Group: group, Resource: "mutatingadmissionpolicies"}:         true,
	{Group: group, Resource: "mutatingadmissionpolicybindings"}:   true,
}

// warned passes the warnings of a decision on to the client.
type warned struct{ a *admission.Attributes }

func (w warned) AddWarning(_, text string) { w.a.Warn(text) }

func withWarnings(ctx context.Context, a *admission.Attributes) context.Context {
	return warning.WithWarningRecorder(ctx, warned{a})
}
