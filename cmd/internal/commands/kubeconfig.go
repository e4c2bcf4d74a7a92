package commands

import (
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/quorate/quorate/internal/cli"
	"github.com/quorate/quorate/internal/datadir"
	"github.com/quorate/quorate/internal/words"
	"github.com/quorate/quorate/membership"
	"github.com/quorate/quorate/membership/pki"
	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"
)

// kubeconfigCommand prints a kubeconfig with all nodes in it, the administrator's or that of a user for
// whom the cluster signs a certificate.
func kubeconfigCommand() *cobra.Command {
	var k kubeconfigOptions
	c := &cobra.Command{
		Use: "kubeconfig", Short: "Print an administrator's kubeconfig with a context for every node, or that of another user", Args: cli.NoArguments,
		Example: `  # with a context for each node
  quorate kubeconfig --kubeconfig DATA-DIR/admin.kubeconfig

  # credentials of the control plane's programs and of a node; the key is made here, the cluster signs
  quorate kubeconfig --user system:kube-controller-manager --to controller-manager.kubeconfig
  quorate kubeconfig --user system:kube-scheduler --to scheduler.kubeconfig
  quorate kubeconfig --user system:node:worker-1 --to kubelet.kubeconfig

  # a person's, for a day
  quorate kubeconfig --user alice --group developers --expires-in 24h`,
		RunE: func(cmd *cobra.Command, _ []string) error { return k.run(cmd) },
	}
	k.connects(c)
	changes(c)
	c.Flags().StringVar(&k.of.user, "user", "", "make a credential of this user: by a certificate that the cluster signs, of a key that is made here")
	c.Flags().StringArrayVar(&k.of.groups, "group", nil, "a group that --user is in; may be given several times; system:node:NAME is in system:nodes")
	c.Flags().DurationVar(&k.expiresIn, "expires-in", 0, "for how long the credential of --user is to be valid, 10m or more; the cluster signs for --cluster-signing-duration of the nodes at most, which is the default")
	c.Flags().StringVar(&k.to, "to", "", "write to this file, with mode 0600, instead of printing; only a regular file is replaced; - is standard output")
	c.Flags().StringVarP(&k.output, "output", "o", "yaml", "yaml or json")
	cli.CompleteOutput(c, "yaml", "json")
	return c
}

// kubeconfigOptions are what kubeconfig is asked for.
type kubeconfigOptions struct {
	access
	of        credential
	expiresIn time.Duration
	to        string // "" for standard output
}

// check refuses what cannot be meant, before the cluster is asked for anything.
func (o *kubeconfigOptions) check(given func(flag string) bool) error {
	switch {
	case o.output != "yaml" && o.output != "json":
		return fmt.Errorf("--output %q: must be yaml or json", o.output)
	case o.of.user == "" && given("user"): // such as a variable that is not set: nobody means an administrator by it
		return errors.New("--user: must not be empty; without the flag it is the administrator's kubeconfig")
	case o.of.user == "" && (len(o.of.groups) > 0 || given("expires-in")):
		return errors.New("--group and --expires-in are for --user")
	case o.to == "" && given("to"): // nobody means to have a key printed by it
		return errors.New("--to: must not be empty; without the flag the kubeconfig is printed")
	}
	if given("expires-in") {
		o.of.expires = &o.expiresIn
	}
	if o.of.user != "" {
		if err := o.of.complete(); err != nil {
			return err
		}
	}
	if o.to == "-" {
		o.to = ""
	}
	if o.to != "" { // before anything is signed for it
		if err := writable(o.to); err != nil {
			return fmt.Errorf("--to: %w", err)
		}
	}
	return nil
}

// sparesInUse refuses to replace the kubeconfig in use, which has this certificate, by that of somebody
// else: what it has may be the only credential of an administrator. One's own is renewed so.
func (o *kubeconfigOptions) sparesInUse(certPEM []byte) error {
	if o.to == "" || o.of.user == "" {
		return nil
	}
	file, err := o.file()
	if err != nil {
		return err
	}
	inUse, err1 := os.Stat(file)
	replaced, err2 := os.Stat(o.to)
	if err1 != nil || err2 != nil || !os.SameFile(inUse, replaced) {
		return nil
	}
	cert, err := parseCertificate(certPEM)
	if err != nil {
		return fmt.Errorf("the certificate of the kubeconfig in use: %w", err)
	}
	if o.of.isOf(cert) {
		return nil
	}
	return fmt.Errorf("--to: %s is the kubeconfig in use, and its credential of %s would be gone: give another file", o.to, subjectOf(cert))
}

// subjectOf is a certificate's user and groups, in words.
func subjectOf(cert *x509.Certificate) string {
	s := "user " + cert.Subject.CommonName
	if len(cert.Subject.Organization) > 0 {
		s += " in " + words.And(cert.Subject.Organization)
	}
	return s
}

func (o *kubeconfigOptions) run(cmd *cobra.Command) error {
	if err := o.check(cmd.Flags().Changed); err != nil {
		return err
	}
	k, err := o.load()
	if err != nil {
		return err
	}
	if err := o.sparesInUse(k.Cert); err != nil {
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
	began := time.Now()
	if o.of.user != "" {
		if err := o.of.into(cmd.Context(), client, &k); err != nil {
			return err
		}
	}
	b, err := k.Encode()
	if err == nil && o.output == "json" {
		b, err = yaml.YAMLToJSON(b)
		b = append(b, '\n')
	}
	if err != nil {
		return err
	}
	if o.to != "" {
		err = writeKubeconfig(o.to, b)
	} else {
		_, err = cmd.OutOrStdout().Write(b)
	}
	if err != nil || o.to == "" && o.of.user == "" {
		return err
	}
	return o.say(cmd.ErrOrStderr(), k.Cert, began)
}

// say says whose credential was written, and until when it is valid.
func (o *kubeconfigOptions) say(to io.Writer, certPEM []byte, began time.Time) error {
	cert, err := parseCertificate(certPEM)
	if err != nil {
		return err
	}
	written := ""
	if o.to != "" {
		written = "written " + o.to + ": "
	}
	fmt.Fprintf(to, "%s%s, %s\n", written, subjectOf(cert), o.of.validity(cert, began))
	return nil
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
