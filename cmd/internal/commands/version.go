package commands

import (
	"encoding/json"
	"fmt"
	"runtime"

	"github.com/quorate/quorate/internal/cli"
	"github.com/quorate/quorate/node"
	"github.com/spf13/cobra"
)

// build is replaced by Run, which knows what the linker was told.
var build = cli.BuildOf("", "")

// versionText is what --version prints.
func versionText() string {
	commit := ""
	if build.Commit != "" {
		commit = "commit " + build.Commit + ", "
	}
	return fmt.Sprintf("quorate %s (%s%s)\nserves Kubernetes %s\n", build.Version, commit, runtime.Version(), node.KubernetesVersion(build.Version))
}

func versionCommand() *cobra.Command {
	var output string
	c := &cobra.Command{
		Use: "version", Short: "Print the version", Args: cli.NoArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if output != "text" && output != "json" {
				return fmt.Errorf("--output %q: must be text or json", output)
			}
			if output == "json" {
				e := json.NewEncoder(cmd.OutOrStdout())
				e.SetIndent("", "  ")
				return e.Encode(map[string]string{"version": build.Version, "commit": build.Commit, "go": runtime.Version(), "kubernetes": node.KubernetesVersion(build.Version)})
			}
			_, err := fmt.Fprint(cmd.OutOrStdout(), versionText())
			return err
		},
	}
	c.Flags().StringVarP(&output, "output", "o", "text", "text or json")
	cli.CompleteOutput(c, "text", "json")
	return c
}
