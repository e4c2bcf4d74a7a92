package commands

import (
	"context"
	"time"

	"github.com/spf13/cobra"
)

// completeWithin bounds a question to the cluster that only completion asks.
const completeWithin = 2 * time.Second

// completeMembers offers the names of the cluster's members, if it can be asked.
func (a *access) completeMembers(cmd *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	client, err := a.client()
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(cmd.Context(), completeWithin)
	defer cancel()
	list, err := client.Members(ctx)
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	sortMembers(list)
	var out []cobra.Completion
	for _, m := range list.Members {
		what := "non-voter"
		switch {
		case m.Leader:
			what = "leader"
		case m.Voter:
			what = "voter"
		}
		out = append(out, cobra.CompletionWithDesc(m.Name, what))
	}
	return out, cobra.ShellCompDirectiveNoFileComp
}

// completeContexts offers the contexts of the kubeconfig.
func (a *access) completeContexts(*cobra.Command, []string, string) ([]cobra.Completion, cobra.ShellCompDirective) {
	b := *a
	b.context = "" // what is typed so far is none
	k, err := b.load()
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	var out []cobra.Completion
	for _, e := range k.Endpoints {
		out = append(out, cobra.CompletionWithDesc(e.Name, e.Server))
	}
	return out, cobra.ShellCompDirectiveNoFileComp
}
