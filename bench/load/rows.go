package load

import (
	"context"
	"fmt"
	"slices"
	"strings"
)

// row is one row of the report. It has a verb, or a mix, or what runs it.
type row struct {
	name, title string
	verb        verb
	mix         Mix
	counted     bool                                // it ends with the objects
	workers     int                                 // in a closed loop; 0: as many as there are
	prepare     func(context.Context, *bench) error // unmeasured; nil if nothing is needed
	run         func(context.Context, *bench, *tally) error
}

// rows are all of them, in the order in which they are measured.
var rows = []row{
	{name: "create", title: "create (POST)", verb: create, counted: true},
	{name: "get", title: "get, resourceVersion unset", verb: get},
	{name: "get0", title: "get, resourceVersion=0", verb: get0},
	{name: "list0", title: "list all, resourceVersion=0", verb: list0, workers: listWorkers},
	{name: "list", title: "list all, resourceVersion unset", verb: list, workers: listWorkers},
	{name: "page", title: "list limit=500, first page", verb: page, workers: listWorkers},
	{name: "update", title: "update (PUT with resourceVersion)", verb: update},
	{name: "patch", title: "merge patch", verb: patch},
	{name: "apply", title: "server-side apply (force)", verb: apply},
	{name: "watch", title: "200 watchers, per event delivered", run: watchers},
	{name: "create-quota", title: "create, with a quota", prepare: prepareQuota, run: createRuled("quota")},
	{name: "create-policies", title: "create, with 10 policies", prepare: preparePolicies, run: createRuled("policies")},
	{name: "create-webhooks", title: "create, with 3 webhooks", prepare: prepareWebhooks, run: createRuled("webhooks")},
}

// listWorkers is how many lists run at once.
const listWorkers = 4

// RowNames are the names of all rows.
func RowNames() []string { return namesOf(rows) }

func namesOf(all []row) []string {
	var n []string
	for _, r := range all {
		n = append(n, r.name)
	}
	return n
}

// paced are the rows that can be sent at a rate.
func paced() []row {
	return slices.DeleteFunc(slices.Clone(rows), func(r row) bool { return r.verb == "" })
}

// choose finds the named rows and puts them in order.
func choose(wanted []string) ([]row, error) {
	if slices.Equal(wanted, []string{"all"}) {
		return rows, nil
	}
	if len(wanted) == 0 {
		return nil, fmt.Errorf("rows: choose from %s, or all", strings.Join(RowNames(), ", "))
	}
	for _, w := range wanted {
		if !slices.Contains(RowNames(), w) {
			return nil, fmt.Errorf("rows: there is no row %q: choose from %s, or all", w, strings.Join(RowNames(), ", "))
		}
	}
	return slices.DeleteFunc(slices.Clone(rows), func(r row) bool { return !slices.Contains(wanted, r.name) }), nil
}

// verbs are those that a row's operations have.
func (r *row) verbs() []verb {
	if r.mix == nil {
		return []verb{r.verb}
	}
	var out []verb
	for _, w := range r.mix {
		out = append(out, verb(w.Verb))
	}
	return out
}
