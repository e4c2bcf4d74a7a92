package main

import (
	"encoding/json"
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/quorate/quorate/internal/cli"
	"github.com/quorate/quorate/node"
	"github.com/spf13/cobra"
)

// Set by the linker in builds from make; `go install` leaves them empty.
var version, commit string

// buildVersion is the version of this binary.
func buildVersion() string {
	if version != "" {
		return version
	}
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" && info.Main.Version != "(devel)" {
		return info.Main.Version
	}
	return "unknown"
}

// versionText is what --version prints.
func versionText() string {
	return fmt.Sprintf("quorate %s (commit %s, %s)\nserves Kubernetes %s\n", buildVersion(), commit, runtime.Version(), node.KubernetesVersion(buildVersion()))
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
				return e.Encode(map[string]string{"version": buildVersion(), "commit": commit, "go": runtime.Version(), "kubernetes": node.KubernetesVersion(buildVersion())})
			}
			_, err := fmt.Fprint(cmd.OutOrStdout(), versionText())
			return err
		},
	}
	c.Flags().StringVarP(&output, "output", "o", "text", "text or json")
	cli.CompleteOutput(c, "text", "json")
	return c
}
