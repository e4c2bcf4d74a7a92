package cli

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"
)

// CompletionCommand prints the scripts by which shells complete command lines. Cobra's
// own would print to where standard output was when it was made.
func CompletionCommand() *cobra.Command {
	c := Group(&cobra.Command{Use: "completion", Short: "Print a script with which a shell completes command lines"})
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
			Use: shell.name, Short: "Print the script for " + shell.name, Example: "  " + shell.use, Args: NoArguments,
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

// CompleteOutput offers what --output takes.
func CompleteOutput(c *cobra.Command, formats ...cobra.Completion) {
	_ = c.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(formats, cobra.ShellCompDirectiveNoFileComp))
}
