package main

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"
)

// completionCommand prints the scripts by which shells complete command lines. Cobra's
// own would print to where standard output was when it was made.
func completionCommand() *cobra.Command {
	c := group(&cobra.Command{Use: "completion", Short: "Print a script with which a shell completes command lines"})
	for _, shell := range []struct {
		name, use string
		script    func(*cobra.Command, io.Writer) error
	}{
		{"bash", "source <(quorate completion bash)   # needs the package bash-completion; for ever: in ~/.bashrc",
			func(c *cobra.Command, w io.Writer) error { return c.GenBashCompletionV2(w, true) }},
		{"zsh", "source <(quorate completion zsh)    # for ever: in ~/.zshrc, behind compinit", (*cobra.Command).GenZshCompletion},
		{"fish", "quorate completion fish | source    # for ever: > ~/.config/fish/completions/quorate.fish",
			func(c *cobra.Command, w io.Writer) error { return c.GenFishCompletion(w, true) }},
		{"powershell", "quorate completion powershell | Out-String | Invoke-Expression", (*cobra.Command).GenPowerShellCompletionWithDesc},
	} {
		c.AddCommand(&cobra.Command{
			Use: shell.name, Short: "Print the script for " + shell.name, Example: "  " + shell.use, Args: noArguments,
			ValidArgsFunction: cobra.NoFileCompletions,
			RunE: func(c *cobra.Command, _ []string) error {
				if err := shell.script(c.Root(), c.OutOrStdout()); err != nil {
					return fmt.Errorf("completion for %s: %w", shell.name, err)
				}
				return nil
			},
		})
	}
	return c
}

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

// completeOutput offers what --output takes.
func completeOutput(c *cobra.Command, formats ...cobra.Completion) {
	_ = c.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(formats, cobra.ShellCompDirectiveNoFileComp))
}
