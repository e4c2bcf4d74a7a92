package controllers

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
)

// Name of a controller, in upstream's words where upstream has it.
type Name string

// The controllers that there are.
const (
	NamespaceController Name = "namespace-controller"
	GarbageController   Name = "garbage-collector-controller"
	EventTTLController  Name = "event-ttl-controller"
	// AccountController gives every namespace the service account default.
	AccountController Name = "serviceaccount-controller"
	// KubernetesController keeps the Service kubernetes. Upstream has it in its API
	// server, where --endpoint-reconciler-type=none switches it off.
	KubernetesController Name = "kubernetes-service-controller"
)

// All are the names of all controllers.
var All = []Name{NamespaceController, GarbageController, EventTTLController, AccountController, KubernetesController}

// named returns the controller of a name, with or without -controller, or of one
// that upstream had earlier.
func named(s string) (Name, bool) {
	if s == "garbagecollector" {
		return GarbageController, true
	}
	for _, n := range All {
		if s == string(n) || s+"-controller" == string(n) {
			return n, true
		}
	}
	return "", false
}

// Select returns the controllers that a list enables: "*" is all that it does not
// name, "foo" enables foo, "-foo" disables it. A name that is not known is an
// error. As upstream, but for a list that only disables, such as "-foo": there it
// disables the others too, which nobody means.
func Select(list []string) ([]Name, error) {
	asked := map[Name]bool{}
	others := len(list) > 0 && !slices.ContainsFunc(list, func(s string) bool { return !strings.HasPrefix(s, "-") })
	for _, s := range list {
		if s == "*" {
			others = true
			continue
		}
		bare, without := strings.CutPrefix(s, "-")
		n, ok := named(bare)
		if !ok {
			return nil, fmt.Errorf("%q is not in the list of known controllers: %v", bare, All)
		}
		if was, ok := asked[n]; ok && was == without {
			return nil, fmt.Errorf("%s is enabled and disabled", n)
		}
		asked[n] = !without
	}
	return slices.DeleteFunc(slices.Clone(All), func(n Name) bool {
		on, ok := asked[n]
		return ok && !on || !ok && !others
	}), nil
}

// Controller runs until ctx ends, or returns why it cannot go on: then it may be
// called again.
type Controller func(ctx context.Context, log *slog.Logger) error

// API is what all controllers need together. *apiserver.Server satisfies it.
type API interface {
	Namespaces
	Garbage
	Expiring
	Accounts
}

// Make returns the controllers of these names.
func Make(api API, objects Objects, servers Servers, names []Name) map[Name]Controller {
	all := map[Name]Controller{
		NamespaceController: func(ctx context.Context, log *slog.Logger) error { return EmptyNamespaces(ctx, api, log) },
		GarbageController:   func(ctx context.Context, log *slog.Logger) error { return CollectGarbage(ctx, api, log) },
		EventTTLController:  func(ctx context.Context, log *slog.Logger) error { return Expire(ctx, api, log) },
		AccountController:   func(ctx context.Context, log *slog.Logger) error { return EnsureAccounts(ctx, api, log) },
		KubernetesController: func(ctx context.Context, log *slog.Logger) error {
			return KeepKubernetesService(ctx, objects, servers, log)
		},
	}
	out := map[Name]Controller{}
	for _, n := range names {
		out[n] = all[n]
	}
	return out
}
