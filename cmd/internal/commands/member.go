package commands

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/quorate/quorate/internal/cli"
	"github.com/quorate/quorate/membership"
	"github.com/spf13/cobra"
)

// members is what the commands about members are told.
type members struct {
	access
	force bool
	keep  string
}

// changeMembers asks a node about the members, or to change them. It returns those that there are then.
type changeMembers func(cmd *cobra.Command, client *membership.AdminClient, args []string) (membership.MemberList, error)

func memberCommand() *cobra.Command {
	m := &members{}
	c := cli.Group(&cobra.Command{Use: "member", Short: "List and change the members of a cluster"})
	m.flags(c)
	list := m.command("list", "List the members", cli.NoArguments, func(cmd *cobra.Command, client *membership.AdminClient, _ []string) (membership.MemberList, error) {
		return client.Members(cmd.Context())
	})
	others := []*cobra.Command{
		m.command("add PEER-ADDRESS", "Add a running node as a non-voter", cli.Exactly("PEER-ADDRESS"), m.add),
		m.forced(m.command("promote MEMBER", "Give a non-voter a vote", cli.Exactly("MEMBER"), func(cmd *cobra.Command, client *membership.AdminClient, args []string) (membership.MemberList, error) {
			return client.Promote(cmd.Context(), args[0], m.force)
		})),
		m.forced(m.command("demote MEMBER", "Take a voter's vote", cli.Exactly("MEMBER"), func(cmd *cobra.Command, client *membership.AdminClient, args []string) (membership.MemberList, error) {
			return client.Demote(cmd.Context(), args[0], m.force)
		})),
		m.forced(keeping(m.command("remove MEMBER", "Remove a member", cli.Exactly("MEMBER"), m.remove), &m.keep)),
		m.named(m.command("transfer-leader [MEMBER]", "Hand leadership to a voter", cli.AtMost("MEMBER"), func(cmd *cobra.Command, client *membership.AdminClient, args []string) (membership.MemberList, error) {
			return client.Transfer(cmd.Context(), strings.Join(args, ""))
		})),
	}
	changes(others...)
	c.AddCommand(list)
	c.AddCommand(others...)
	return c
}

// command is a command that ends with the list of the members.
func (m *members) command(use, short string, args cobra.PositionalArgs, run changeMembers) *cobra.Command {
	return &cobra.Command{Use: use, Short: short, Args: args, RunE: func(cmd *cobra.Command, args []string) error {
		client, err := m.client()
		if err != nil {
			return err
		}
		defer client.Close()
		list, err := run(cmd, client, args)
		if err != nil {
			return err
		}
		sortMembers(list)
		return m.print(cmd.OutOrStdout(), list, func(w *tabwriter.Writer) { memberTable(w, list) })
	}}
}

// named is a command about one member.
func (m *members) named(c *cobra.Command) *cobra.Command {
	c.ValidArgsFunction = m.completeMembers
	return c
}

// forced is a command about one member that can be forced.
func (m *members) forced(c *cobra.Command) *cobra.Command {
	c.Flags().BoolVar(&m.force, "force", false, "even if it leaves no live majority, or the node lags")
	return m.named(c)
}

func (m *members) add(cmd *cobra.Command, client *membership.AdminClient, args []string) (membership.MemberList, error) {
	list, err := client.Add(cmd.Context(), args[0])
	if err == nil && m.output != "json" {
		inform(cmd, "The node at %s is a member without a vote. It gets one when it has caught up, unless it runs with --nonvoter.\n", args[0])
	}
	return list, err
}

func (m *members) remove(cmd *cobra.Command, client *membership.AdminClient, args []string) (membership.MemberList, error) {
	tokens, err := keepTokens(m.keep)
	if err != nil {
		return membership.MemberList{}, err
	}
	list, err := client.Remove(cmd.Context(), args[0], m.force, tokens)
	if err == nil && m.output != "json" {
		inform(cmd, "%s is removed. Its process ends by itself; disable its unit. The machine can join again with an empty data directory.\n%s", args[0], aboutTokens(tokens))
	}
	return list, err
}

// inform prints what was done for people: on standard error, so that what programs read is
// the list alone.
func inform(cmd *cobra.Command, format string, args ...any) {
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
	for _, m := range list.Members {
		lostLine(w, m)
	}
}
