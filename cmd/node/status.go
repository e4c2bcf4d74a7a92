package main

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/quorate/quorate/internal/cli"
	"github.com/quorate/quorate/membership"
	"github.com/spf13/cobra"
)

func statusCommand() *cobra.Command {
	var a access
	c := &cobra.Command{
		Use:   "status",
		Short: "Show all nodes of a cluster: role, term, lag, health",
		Long: `Asks one node, which asks the others. It needs no quorum: members that do not
answer are shown with the reason.`,
		Args: cli.NoArguments,
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
				return cli.ExitError{Code: exitNoQuorum}
			}
			return nil
		},
	}
	cli.ExitCodes(c, cli.Note{"1", "no node answers"}, cli.Note{"3", "there is no quorum, or the node waits for its first cluster"})
	a.flags(c)
	return c
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
	for _, text := range st.Notices {
		fmt.Fprintf(w, "NOTE: %s\n", text)
	}
	for _, d := range st.Diverged {
		fmt.Fprintf(w, "STATE HASHES DIFFER: %s\n", d)
	}
	for _, id := range slices.Sorted(maps.Keys(st.WrongStates)) {
		// By id: the node that replaces it may have its name already.
		wrong := st.WrongStates[id]
		fmt.Fprintf(w, "%s HAS STOPPED, its state is wrong: %s. Replace it: quorate member remove %s\n", wrong.Name, wrong.Found, id)
	}
	for _, m := range st.Members {
		lostLine(w, m.MemberInfo)
	}
	for _, m := range st.Members {
		if m.Error != "" {
			fmt.Fprintf(w, "%s: %s\n", m.Name, m.Error)
		}
	}
}

// lostLine says that a member came back without entries, and what to do.
func lostLine(w io.Writer, m membership.MemberInfo) {
	if m.LostEntries != "" {
		fmt.Fprintf(w, "%s HAS LOST ENTRIES and takes no part: %s. Keep its data directory until the cluster has a quorum and its data is checked. Then replace it: quorate member remove %s\n",
			m.Name, m.LostEntries, m.ID)
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
