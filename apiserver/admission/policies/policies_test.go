package policies_test

import (
	"context"
	"log/slog"
	"testing"

	"github.com/quorate/quorate/apiserver/access/auth"
	"github.com/quorate/quorate/apiserver/admission"
	"github.com/quorate/quorate/apiserver/admission/policies"
	"github.com/quorate/quorate/apiserver/admission/upstream"
	"github.com/quorate/quorate/apiserver/objects/objectstest"
	"github.com/quorate/quorate/apiserver/types/crd"
	"github.com/quorate/quorate/apiserver/types/kinds"
	"github.com/quorate/quorate/apiserver/types/state"
	"github.com/quorate/quorate/apiserver/types/tree"
	"github.com/quorate/quorate/apiserver/wire/codec"
	"github.com/quorate/quorate/internal/must"
	"github.com/quorate/quorate/raftstore/mvcc"
	"github.com/quorate/quorate/raftstore/view"
)

func TestOperations(t *testing.T) { objectstest.Run(t, "testdata/*.txt", options(t)) }

func options(t testing.TB) objectstest.Options {
	return objectstest.Options{Admission: func(s view.Store, authorizer auth.Authorizer) []admission.Named {
		cfg := config(t, s, authorizer)
		m, err := policies.NewMutating(cfg, nil)
		must.OK(t, err)
		v, err := policies.NewValidating(cfg, nil)
		must.OK(t, err)
		return []admission.Named{{Name: "MutatingAdmissionPolicy", Plugin: m}, {Name: "ValidatingAdmissionPolicy", Plugin: v}}
	}}
}

// config reads the definitions of a store as a server does, but asks no conversion webhooks.
func config(t testing.TB, s view.Store, authorizer auth.Authorizer) policies.Config {
	t.Helper()
	builtin, err := kinds.Builtin()
	must.OK(t, err)
	log := slog.New(slog.DiscardHandler)
	convert := func(obj tree.Object, from, to *kinds.Resource) (tree.Object, error) {
		if v := crd.Of(to); v != nil {
			obj = tree.Clone(obj)
			obj["apiVersion"] = to.GroupVersion().String()
			return obj, v.Prune(obj)
		}
		return kinds.Convert(obj, from, to)
	}
	return policies.Config{
		Store: s, State: state.New(s), Authorizer: authorizer, Log: log,
		Kinds: upstream.NewKinds(crd.New(s, builtin, log).Current, convert), Namespaces: upstream.NewNamespaces(state.New(s), func(context.Context) error { return nil }),
		Decode: func(_ context.Context, res *kinds.Resource, versions []*mvcc.Version) (out []tree.Object, err error) {
			out = make([]tree.Object, len(versions))
			for i, v := range versions {
				if out[i], err = codec.DecodeStored(res, v); err != nil {
					return nil, err
				}
			}
			return out, nil
		},
	}
}
