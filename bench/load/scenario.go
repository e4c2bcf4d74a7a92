package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
)

// scenario is one row of the report.
type scenario struct {
	name, title string
	prepare     func(context.Context, *bench) error // unmeasured; nil if nothing is needed
	run         func(context.Context, *bench) (outcome, error)
}

// scenarios are all rows, in the order in which they are measured.
var scenarios = []scenario{
	{name: "create", title: "create (POST)", run: create},
	{name: "get", title: "get, resourceVersion unset", run: getter("")},
	{name: "get0", title: "get, resourceVersion=0", run: getter("resourceVersion=0")},
	{name: "list0", title: "list all, resourceVersion=0", run: lister("resourceVersion=0", whole)},
	{name: "list", title: "list all, resourceVersion unset", run: lister("", whole)},
	{name: "page", title: "list limit=500, first page", run: lister("limit=500", 500)},
	{name: "update", title: "update (PUT with resourceVersion)", prepare: learnVersions, run: update},
	{name: "patch", title: "merge patch", run: patch},
	{name: "apply", title: "server-side apply (force)", run: apply},
	{name: "watch", title: "200 watchers, per event delivered", run: watch},
	{name: "create-quota", title: "create, with a quota", prepare: prepareQuota, run: createRuled("quota")},
	{name: "create-policies", title: "create, with 10 policies", prepare: preparePolicies, run: createRuled("policies")},
	{name: "create-webhooks", title: "create, with 3 webhooks", prepare: prepareWebhooks, run: createRuled("webhooks")},
}

func names(all []scenario) []string {
	var n []string
	for _, s := range all {
		n = append(n, s.name)
	}
	return n
}

// choose finds the named scenarios and puts them in order.
func choose(list string) ([]scenario, error) {
	if list == "all" {
		return scenarios, nil
	}
	wanted := strings.Split(list, ",")
	for _, w := range wanted {
		if !slices.Contains(names(scenarios), w) {
			return nil, fmt.Errorf("there is no scenario %q: choose from %s", w, strings.Join(names(scenarios), ", "))
		}
	}
	var chosen []scenario
	for _, s := range scenarios {
		if slices.Contains(wanted, s.name) {
			chosen = append(chosen, s)
		}
	}
	return chosen, nil
}
