package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/quorate/quorate/internal/datadir"
	"github.com/quorate/quorate/membership"
	"github.com/quorate/quorate/membership/pki"
	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"
)

// kubeconfigCommand prints a kubeconfig with all nodes in it, the administrator's or that of a user for
// whom the cluster signs a certificate.
func kubeconfigCommand() *cobra.Command {
	var a access
	var of credential
	var to string
	c := &cobra.Command{
		Use: "kubeconfig", Short: "Print an administrator's kubeconfig with a context for every node, or that of another user", Args: noArguments,
		Example: `  # with a context for each node
  quorate kubeconfig --kubeconfig DATA-DIR/admin.kubeconfig

  # credentials of the control plane's programs and of a node; the key is made here, the cluster signs
  quorate kubeconfig --user system:kube-controller-manager --to controller-manager.kubeconfig
  quorate kubeconfig --user system:kube-scheduler --to scheduler.kubeconfig
  quorate kubeconfig --user system:node:worker-1 --to kubelet.kubeconfig

  # a person's, for a day
  quorate kubeconfig --user alice --group developers --expires-in 24h`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if a.output != "yaml" && a.output != "json" {
				return fmt.Errorf("--output %q: must be yaml or json", a.output)
			}
			if of.user == "" && cmd.Flags().Changed("user") { // such as a variable that is not set: nobody means an administrator by it
				return errors.New("--user: must not be empty; without the flag it is the administrator's kubeconfig")
			}
			if of.user == "" && (len(of.groups) > 0 || of.expires != 0) {
				return errors.New("--group and --expires-in are for --user")
			}
			if to == "" && cmd.Flags().Changed("to") { // nobody means to have a key printed by it
				return errors.New("--to: must not be empty; without the flag the kubeconfig is printed")
			}
			if of.user != "" {
				if err := of.complete(); err != nil {
					return err
				}
			}
			if to == "-" {
				to = ""
			}
			if to != "" { // before anything is signed for it
				if err := writable(to); err != nil {
					return fmt.Errorf("--to: %w", err)
				}
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
			if of.user != "" {
				if err := of.into(cmd.Context(), client, &k); err != nil {
					return err
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
			if to != "" {
				return writeKubeconfig(to, b)
			}
			_, err = cmd.OutOrStdout().Write(b)
			return err
		},
	}
	a.connects(c)
	changes(c)
	c.Flags().StringVar(&of.user, "user", "", "make a credential of this user: by a certificate that the cluster signs, of a key that is made here")
	c.Flags().StringArrayVar(&of.groups, "group", nil, "a group that --user is in; may be given several times; system:node:NAME is in system:nodes")
	c.Flags().DurationVar(&of.expires, "expires-in", 0, "for how long the credential of --user is valid, from 10m to --cluster-signing-duration of the nodes (default: the latter)")
	c.Flags().StringVar(&to, "to", "", "write to this file, with mode 0600, instead of printing; only a regular file is replaced; - is standard output")
	c.Flags().StringVarP(&a.output, "output", "o", "yaml", "yaml or json")
	completeOutput(c, "yaml", "json")
	return c
}

// checkKubeconfigTarget refuses a name that a kubeconfig must not take, as `quorate snapshot save` does.
func checkKubeconfigTarget(file string) error {
	return datadir.CheckTarget(file, "kubeconfig", "user.kubeconfig")
}

// writable returns nil if a kubeconfig can have this name.
func writable(file string) error {
	if err := checkKubeconfigTarget(file); err != nil {
		return err
	}
	dir := filepath.Dir(file)
	f, err := os.CreateTemp(dir, ".quorate.*")
	if failed := (*fs.PathError)(nil); errors.As(err, &failed) {
		return fmt.Errorf("no file can be made in %s: %w", dir, failed.Err)
	}
	if err != nil {
		return err
	}
	return errors.Join(f.Close(), os.Remove(f.Name()))
}

// writeKubeconfig replaces a regular file, or makes one.
func writeKubeconfig(file string, data []byte) error {
	if err := checkKubeconfigTarget(file); err != nil { // it may have come meanwhile
		return fmt.Errorf("--to: %w", err)
	}
	return pki.WriteFile(file, data, pki.ModeSecret)
}
