package main

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/quorate/quorate/membership"
	"github.com/spf13/cobra"
)

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
