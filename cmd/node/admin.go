package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/quorate/quorate/membership"
	"github.com/quorate/quorate/membership/pki"
	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"
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
	completeOutput(c, "table", "json")
}

// connects are the flags of commands that print something else than tables.
func (a *access) connects(c *cobra.Command) {
	c.PersistentFlags().StringVar(&a.kubeconfig, "kubeconfig", "", "administrator's kubeconfig (default: $KUBECONFIG, then ~/.kube/config)")
	c.PersistentFlags().StringVar(&a.context, "context", "", "ask this context's node first (default: the current context)")
	_ = c.RegisterFlagCompletionFunc("context", a.completeContexts)
	environment(c, note{"KUBECONFIG", "the administrator's kubeconfig, if --kubeconfig is not given; of several files the first"})
	files(c,
		note{"~/.kube/config", "the administrator's kubeconfig, if neither --kubeconfig nor KUBECONFIG names one"},
		note{"DATA-DIR/admin.kubeconfig", "the one that each node keeps of itself"})
}

// load reads the kubeconfig. The nodes of all its contexts are tried in turn,
// the chosen one first.
func (a *access) load() (pki.Kubeconfig, error) {
	path := a.kubeconfig
	if path == "" {
		path, _, _ = strings.Cut(os.Getenv("KUBECONFIG"), string(filepath.ListSeparator))
	}
	if path == "" {
		home, err := os.UserHomeDir()
		if err != nil {
			return pki.Kubeconfig{}, errors.New("no kubeconfig: give one with --kubeconfig")
		}
		path = filepath.Join(home, ".kube", "config")
	}
	k, err := pki.ReadKubeconfig(path, a.context)
	if errors.Is(err, fs.ErrNotExist) {
		err = fmt.Errorf("there is no kubeconfig %s: give one with --kubeconfig or KUBECONFIG; each node keeps one in DATA-DIR/admin.kubeconfig", path)
	}
	return k, err
}

func (a *access) client() (*membership.AdminClient, error) {
	if err := checkOutput(a.output); err != nil {
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

func statusCommand() *cobra.Command {
	var a access
	c := &cobra.Command{
		Use:   "status",
		Short: "Show all nodes of a cluster: role, term, lag, health",
		Long: `Asks one node, which asks the others. It needs no quorum: members that do not
answer are shown with the reason.`,
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			client, err := a.client()
			if err != nil {
				return err
			}
			defer client.Close()
			st, err := client.Status(cmd.Context())
			if err != nil {
				return err
			}
			if err := a.print(cmd.OutOrStdout(), st, func(w *tabwriter.Writer) { statusTable(w, st) }); err != nil {
				return err
			}
			if !st.Quorum {
				return exitError{code: exitNoQuorum}
			}
			return nil
		},
	}
	exitCodes(c, note{"1", "no node answers"}, note{"3", "there is no quorum, or the node waits for its first cluster"})
	a.flags(c)
	return c
}

// exitNoQuorum is the exit code for scripts when there is no quorum: of `quorate status`, and
// of what would change the cluster.
const exitNoQuorum = 3

// changes notes that commands need a quorum.
func changes(commands ...*cobra.Command) {
	for _, c := range commands {
		exitCodes(c, note{"3", "there is no quorum; the error names who is missing"})
	}
}

func statusTable(w *tabwriter.Writer, st membership.ClusterStatus) {
	fmt.Fprintln(w, "NAME\tROLE\tTERM\tCOMMIT\tAPPLIED\tLAG\tLAST CONTACT\tDB SIZE\tVERSION\tAPI\tID")
	for _, m := range st.Members {
		if m.Error != "" {
			fmt.Fprintf(w, "%s\tunreachable\t\t\t\t\t\t\t\t%s\t%s\n", m.Name, m.APIAddress, m.ID)
			continue
		}
		contact := "-"
		if m.Role != "leader" && m.LastContactMS >= 0 {
			contact = (time.Duration(m.LastContactMS) * time.Millisecond).String()
		}
		role := m.Role
		if st.Waiting != "" && m.ID == st.AnsweredBy {
			role = "waiting"
		}
		fmt.Fprintf(w, "%s\t%s\t%d\t%d\t%d\t%d\t%s\t%s\t%s\t%s\t%s\n", m.Name, role, m.Term, m.Commit, m.Applied, m.Lag, contact, size(m.DBBytes), m.Version, m.APIAddress, m.ID)
	}
	if st.Waiting != "" {
		fmt.Fprintf(w, "\n%s waits for a cluster: %s\n", st.Members[0].Name, st.Waiting)
		return
	}
	quorum := "quorum"
	if !st.Quorum {
		quorum = "NO QUORUM: writes and normal reads fail; reads with resourceVersion=0 go on"
	}
	fmt.Fprintf(w, "\ncluster %s: %d of %d voters reachable: %s\n", st.ClusterID, st.LiveVoters, st.Voters, quorum)
	featureLine(w, st)
	for _, d := range st.Diverged {
		fmt.Fprintf(w, "STATE HASHES DIFFER: %s\n", d)
	}
	for _, id := range slices.Sorted(maps.Keys(st.WrongStates)) {
		// By id: the node that replaces it may have its name already.
		wrong := st.WrongStates[id]
		fmt.Fprintf(w, "%s HAS STOPPED, its state is wrong: %s. Replace it: quorate member remove %s\n", wrong.Name, wrong.Found, id)
	}
	for _, m := range st.Members {
		if m.Error != "" {
			fmt.Fprintf(w, "%s: %s\n", m.Name, m.Error)
		}
	}
}

// featureLine says what the cluster speaks, and who keeps it from more.
func featureLine(w io.Writer, st membership.ClusterStatus) {
	newest := st.FeatureVersion
	for _, m := range st.Members {
		newest = max(newest, m.FeatureVersion)
	}
	if newest == st.FeatureVersion {
		fmt.Fprintf(w, "feature version %d\n", st.FeatureVersion)
		return
	}
	var behind []string
	for _, m := range st.Members {
		if m.Error != "" {
			behind = append(behind, m.Name+" does not answer")
		} else if m.FeatureVersion < newest {
			behind = append(behind, fmt.Sprintf("%s supports %d", m.Name, m.FeatureVersion))
		}
	}
	fmt.Fprintf(w, "feature version %d; members support %d", st.FeatureVersion, newest)
	if len(behind) > 0 {
		fmt.Fprintf(w, ", it is raised when all do: %s", strings.Join(behind, ", "))
	}
	fmt.Fprintln(w)
}

// size prints bytes for people.
func size(n uint64) string {
	units := []string{"B", "KiB", "MiB", "GiB", "TiB"}
	f := float64(n)
	for len(units) > 1 && f >= 1024 {
		f, units = f/1024, units[1:]
	}
	if units[0] == "B" {
		return fmt.Sprintf("%d B", n)
	}
	return fmt.Sprintf("%.1f %s", f, units[0])
}

func memberCommand() *cobra.Command {
	var a access
	var force bool
	var keep string
	c := group(&cobra.Command{Use: "member", Short: "List and change the members of a cluster"})
	a.flags(c)
	sub := func(use, short string, args cobra.PositionalArgs, run func(*cobra.Command, *membership.AdminClient, []string) (membership.MemberList, error)) *cobra.Command {
		return &cobra.Command{Use: use, Short: short, Args: args, RunE: func(cmd *cobra.Command, args []string) error {
			client, err := a.client()
			if err != nil {
				return err
			}
			defer client.Close()
			list, err := run(cmd, client, args)
			if err != nil {
				return err
			}
			sortMembers(list)
			return a.print(cmd.OutOrStdout(), list, func(w *tabwriter.Writer) { memberTable(w, list) })
		}}
	}
	named := func(c *cobra.Command) *cobra.Command {
		c.ValidArgsFunction = a.completeMembers
		return c
	}
	forced := func(c *cobra.Command) *cobra.Command {
		named(c)
		c.Flags().BoolVar(&force, "force", false, "even if it leaves no live majority, or the node lags")
		return c
	}
	c.AddCommand(
		sub("list", "List the members", noArguments, func(cmd *cobra.Command, m *membership.AdminClient, _ []string) (membership.MemberList, error) {
			return m.Members(cmd.Context())
		}),
		sub("add PEER-ADDRESS", "Add a running node as a non-voter", exactly("PEER-ADDRESS"), func(cmd *cobra.Command, m *membership.AdminClient, args []string) (membership.MemberList, error) {
			list, err := m.Add(cmd.Context(), args[0])
			if err == nil && a.output != "json" {
				tell(cmd, "The node at %s is a member without a vote. It gets one when it has caught up, unless it runs with --nonvoter.\n", args[0])
			}
			return list, err
		}),
		forced(sub("promote MEMBER", "Give a non-voter a vote", exactly("MEMBER"), func(cmd *cobra.Command, m *membership.AdminClient, args []string) (membership.MemberList, error) {
			return m.Promote(cmd.Context(), args[0], force)
		})),
		forced(sub("demote MEMBER", "Take a voter's vote", exactly("MEMBER"), func(cmd *cobra.Command, m *membership.AdminClient, args []string) (membership.MemberList, error) {
			return m.Demote(cmd.Context(), args[0], force)
		})),
		forced(keeping(sub("remove MEMBER", "Remove a member", exactly("MEMBER"), func(cmd *cobra.Command, m *membership.AdminClient, args []string) (membership.MemberList, error) {
			tokens, err := keepTokens(keep)
			if err != nil {
				return membership.MemberList{}, err
			}
			list, err := m.Remove(cmd.Context(), args[0], force, tokens)
			if err == nil && a.output != "json" {
				tell(cmd, "%s is removed. Its process ends by itself; disable its unit. The machine can join again with an empty data directory.\n%s", args[0], aboutTokens(tokens))
			}
			return list, err
		}), &keep)),
		named(sub("transfer-leader [MEMBER]", "Hand leadership to a voter", atMost("MEMBER"), func(cmd *cobra.Command, m *membership.AdminClient, args []string) (membership.MemberList, error) {
			return m.Transfer(cmd.Context(), strings.Join(args, ""))
		})),
	)
	for _, sub := range c.Commands() {
		if sub.Name() != "list" {
			changes(sub)
		}
	}
	return c
}

// tell prints what was done for people: on standard error, so that what programs read is
// the list alone.
func tell(cmd *cobra.Command, format string, args ...any) {
	fmt.Fprintf(cmd.ErrOrStderr(), format, args...)
}

// sortMembers orders members by name, as people look for them.
func sortMembers(list membership.MemberList) {
	slices.SortFunc(list.Members, func(a, b membership.MemberInfo) int {
		return cmp.Or(strings.Compare(a.Name, b.Name), strings.Compare(string(a.ID), string(b.ID)))
	})
}

func memberTable(w *tabwriter.Writer, list membership.MemberList) {
	fmt.Fprintln(w, "NAME\tVOTER\tLEADER\tPEER ADDRESS\tAPI\tID")
	for _, m := range list.Members {
		fmt.Fprintf(w, "%s\t%t\t%t\t%s\t%s\t%s\n", m.Name, m.Voter, m.Leader, m.PeerAddress, m.APIAddress, m.ID)
	}
}

func tokenCommand() *cobra.Command {
	var a access
	c := group(&cobra.Command{Use: "token", Short: "Make and revoke join tokens"})
	a.flags(c)
	var ttl time.Duration
	var req membership.TokenRequest
	create := &cobra.Command{
		Use: "create", Short: "Make a join token and print it; its secret is shown this once", Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if ttl < time.Second || ttl > membership.MaxTokenTTL {
				return fmt.Errorf("--ttl %s: must be from 1s to %dh", ttl, membership.MaxTokenTTL/time.Hour)
			}
			if req.Uses < 0 || req.Uses > membership.MaxTokenUses {
				return fmt.Errorf("--uses %d: must be from 1 to %d, or 0 for any number", req.Uses, membership.MaxTokenUses)
			}
			client, err := a.client()
			if err != nil {
				return err
			}
			defer client.Close()
			req.TTLSeconds = int64(ttl / time.Second)
			t, err := client.CreateToken(cmd.Context(), req)
			if err != nil {
				return err
			}
			if a.output == "json" {
				return a.print(cmd.OutOrStdout(), t, nil)
			}
			fmt.Fprintln(cmd.OutOrStdout(), t.Token)
			fmt.Fprintf(cmd.ErrOrStderr(), "valid until %s; on the new node:\n  quorate node --join-token @FILE --join %s    # the API's port of any member\n",
				t.Info.Expires.Local().Format(time.DateTime), client.Server())
			return nil
		},
	}
	create.Flags().DurationVar(&ttl, "ttl", time.Hour, "how long the token works")
	create.Flags().IntVar(&req.Uses, "uses", 1, "how many nodes may use it; 0 for any number")
	create.Flags().StringVar(&req.Note, "note", "", "what it is for")
	list := &cobra.Command{
		Use: "list", Short: "List the join tokens, without their secrets", Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			client, err := a.client()
			if err != nil {
				return err
			}
			defer client.Close()
			tokens, err := client.Tokens(cmd.Context())
			if err != nil {
				return err
			}
			return a.print(cmd.OutOrStdout(), tokens, func(w *tabwriter.Writer) {
				fmt.Fprintln(w, "ID\tSTATE\tEXPIRES\tUSED\tNOTE")
				for _, t := range tokens {
					fmt.Fprintf(w, "%s\t%s\t%s\t%d/%s\t%s\n", t.ID, t.State, t.Expires.Local().Format(time.DateTime), t.Used, uses(t.Uses), t.Note)
				}
			})
		},
	}
	del := &cobra.Command{
		Use: "delete ID", Short: "Revoke a join token", Args: exactly("ID"),
		RunE: func(cmd *cobra.Command, args []string) error {
			client, err := a.client()
			if err != nil {
				return err
			}
			defer client.Close()
			if err := client.DeleteToken(cmd.Context(), args[0]); err != nil {
				return err
			}
			fmt.Fprintf(cmd.OutOrStdout(), "join token %s is revoked\n", args[0])
			return nil
		},
	}
	changes(create, del)
	c.AddCommand(create, list, del)
	return c
}

// uses is how many uses a join token allows.
func uses(n int) string {
	if n == 0 {
		return "any"
	}
	return strconv.Itoa(n)
}

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
