package main

import (
	"fmt"

	"github.com/quorate/quorate/membership"
	"github.com/quorate/quorate/membership/pki"
	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"
)

// kubeconfigCommand prints the administrator's kubeconfig with all nodes in it.
func kubeconfigCommand() *cobra.Command {
	var a access
	c := &cobra.Command{
		Use: "kubeconfig", Short: "Print an administrator's kubeconfig with a context for every node", Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if a.output != "yaml" && a.output != "json" {
				return fmt.Errorf("--output %q: must be yaml or json", a.output)
			}
			k, err := a.load()
			if err != nil {
				return err
			}
			client, err := membership.NewAdminClient(k)
			if err != nil {
				return err
			}
			defer client.Close()
			list, err := client.Members(cmd.Context())
			if err != nil {
				return err
			}
			sortMembers(list)
			k.Endpoints, k.Current = nil, ""
			for _, m := range list.Members {
				if m.APIAddress != "" {
					k.Endpoints = append(k.Endpoints, pki.Endpoint{Name: "quorate-" + m.Name, Server: m.APIAddress})
				}
			}
			b, err := k.Encode()
			if err == nil && a.output == "json" {
				b, err = yaml.YAMLToJSON(b)
				b = append(b, '\n')
			}
			if err != nil {
				return err
			}
			_, err = cmd.OutOrStdout().Write(b)
			return err
		},
	}
	a.connects(c)
	c.Flags().StringVarP(&a.output, "output", "o", "yaml", "yaml or json")
	completeOutput(c, "yaml", "json")
	return c
}
