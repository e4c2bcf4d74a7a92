package main

import (
	"encoding/json"
	"fmt"
	"runtime"
	"runtime/debug"

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

func versionCommand() *cobra.Command {
	var output string
	c := &cobra.Command{
		Use: "version", Short: "Print the version", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if output != "text" && output != "json" {
				return fmt.Errorf("--output %q: must be text or json", output)
			}
			v := map[string]string{"version": buildVersion(), "commit": commit, "go": runtime.Version(), "kubernetes": kubernetesVersion()}
			if output == "json" {
				e := json.NewEncoder(cmd.OutOrStdout())
				e.SetIndent("", "  ")
				return e.Encode(v)
			}
			_, err := fmt.Fprintf(cmd.OutOrStdout(), "quorate %s (commit %s, %s)\nserves Kubernetes %s\n", v["version"], v["commit"], v["go"], v["kubernetes"])
			return err
		},
	}
	c.Flags().StringVarP(&output, "output", "o", "text", "text or json")
	return c
}
