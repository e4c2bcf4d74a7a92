package commands

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"text/tabwriter"

	"github.com/quorate/quorate/internal/cli"
	"github.com/quorate/quorate/membership"
	"github.com/quorate/quorate/membership/pki"
	"github.com/spf13/cobra"
)

// access is how operating commands reach a cluster: through any node, with the
// administrator's certificate.
type access struct {
	kubeconfig string
	context    string
	output     string
}

func (a *access) flags(c *cobra.Command) {
	a.connects(c)
	c.PersistentFlags().StringVarP(&a.output, "output", "o", "table", "table or json")
	cli.CompleteOutput(c, "table", "json")
}

// connects are the flags of commands that print something else than tables.
func (a *access) connects(c *cobra.Command) {
	c.PersistentFlags().StringVar(&a.kubeconfig, "kubeconfig", "", "administrator's kubeconfig (default: $KUBECONFIG, then ~/.kube/config)")
	c.PersistentFlags().StringVar(&a.context, "context", "", "ask this context's node first (default: the current context)")
	_ = c.RegisterFlagCompletionFunc("context", a.completeContexts)
	cli.Environment(c, cli.Note{"KUBECONFIG", "the administrator's kubeconfig, if --kubeconfig is not given; of several files the first"})
	cli.Files(c,
		cli.Note{"~/.kube/config", "the administrator's kubeconfig, if neither --kubeconfig nor KUBECONFIG names one"},
		cli.Note{"DATA-DIR/admin.kubeconfig", "the one that each node keeps of itself"})
}

// file is the kubeconfig in use.
func (a *access) file() (string, error) {
	path := a.kubeconfig
	if path == "" {
		path, _, _ = strings.Cut(os.Getenv("KUBECONFIG"), string(filepath.ListSeparator))
	}
	if path == "" {
		home, err := os.UserHomeDir()
		if err != nil {
			return "", errors.New("no kubeconfig: give one with --kubeconfig")
		}
		path = filepath.Join(home, ".kube", "config")
	}
	return path, nil
}

// load reads the kubeconfig. The nodes of all its contexts are tried in turn,
// the chosen one first.
func (a *access) load() (pki.Kubeconfig, error) {
	path, err := a.file()
	if err != nil {
		return pki.Kubeconfig{}, err
	}
	k, err := pki.ReadKubeconfig(path, a.context)
	if errors.Is(err, fs.ErrNotExist) {
		err = fmt.Errorf("there is no kubeconfig %s: give one with --kubeconfig or KUBECONFIG; each node keeps one in DATA-DIR/admin.kubeconfig", path)
	}
	return k, err
}

func (a *access) client() (*membership.AdminClient, error) {
	if err := cli.CheckOutput(a.output); err != nil {
		return nil, err
	}
	k, err := a.load()
	if err != nil {
		return nil, err
	}
	return membership.NewAdminClient(k)
}

// print writes v as JSON, or as the table that rows fills.
func (a *access) print(w io.Writer, v any, rows func(*tabwriter.Writer)) error {
	if a.output == "json" {
		e := json.NewEncoder(w)
		e.SetIndent("", "  ")
		return e.Encode(v)
	}
	t := tabwriter.NewWriter(w, 0, 8, 3, ' ', 0)
	rows(t)
	return t.Flush()
}

// changes notes that commands need a quorum.
func changes(commands ...*cobra.Command) {
	for _, c := range commands {
		cli.ExitCodes(c, cli.Note{"3", "there is no quorum; the error names who is missing"})
	}
}

// exitNoQuorum is the exit code for scripts when there is no quorum: of `quorate status`, and
// of what would change the cluster.
const exitNoQuorum = 3
