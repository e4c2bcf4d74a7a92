// Command kubectl is Kubernetes' own kubectl, built from its Go module for
// tests and for people who have none. Nothing is changed in it.
package main

import (
	"os"

	"k8s.io/component-base/cli"
	"k8s.io/component-base/logs"
	"k8s.io/kubectl/pkg/cmd"
	"k8s.io/kubectl/pkg/cmd/util"

	// Authentication plugins, as in the official build.
	_ "k8s.io/client-go/plugin/pkg/client/auth"
)

func main() {
	// -v counts from the start, not only once flags are parsed.
	_, _ = logs.GlogSetter(cmd.GetLogVerbosity(os.Args)) // one that is no number is refused with the flags
	command := cmd.NewDefaultKubectlCommand()
	if err := cli.RunNoErrOutput(command); err != nil {
		util.CheckErr(err)
	}
	os.Exit(0)
}
