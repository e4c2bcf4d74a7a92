// Command flags prints the flags of the kube-apiserver that this module pins, one a line: name,
// shorthand, type, the value that it has when it is named without one, and "deprecated" or "hidden".
// Columns are separated by tabs, and - is nothing.
package main

import (
	"cmp"
	"fmt"

	"github.com/spf13/pflag"
	_ "k8s.io/component-base/logs/json/register" // flags of its own
	"k8s.io/kubernetes/cmd/kube-apiserver/app"
)

func main() {
	app.NewAPIServerCommand().Flags().VisitAll(func(f *pflag.Flag) {
		state := "-"
		switch {
		case f.Deprecated != "":
			state = "deprecated"
		case f.Hidden:
			state = "hidden"
		}
		fmt.Printf("%s\t%s\t%s\t%s\t%s\n", f.Name, cmp.Or(f.Shorthand, "-"), f.Value.Type(), cmp.Or(f.NoOptDefVal, "-"), state)
	})
}
