package commands

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/quorate/quorate/internal/cli"
	"github.com/quorate/quorate/membership"
	"github.com/spf13/cobra"
)

// statusOutput is how `quorate status` prints.
type statusOutput struct {
	access
	wide, watch bool
	color       bool // at a terminal
}

// statusEvery is how often --watch asks.
const statusEvery = time.Second

func statusCommand() *cobra.Command {
	var o statusOutput
	c := &cobra.Command{
		Use:   "status",
		Short: "Show all nodes of a cluster: role, term, lag, health",
		Long: `Asks one node, which asks the others. It needs no quorum: members that do not
answer are shown with the reason.`,
		Example: `  quorate status
  quorate status -o wide     # also versions, addresses and ids
  quorate status --watch`,
		Args: cli.NoArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			out := cmd.OutOrStdout()
			if o.output == "wide" {
				o.output, o.wide = "table", true
			}
			client, err := o.client()
			if err != nil {
				return err
			}
			defer client.Close()
			terminal := isTerminal(out)
			o.color = terminal && os.Getenv("NO_COLOR") == ""
			if o.watch {
				return o.again(cmd.Context(), client, out, terminal)
			}
			st, err := o.show(cmd.Context(), client, out)
			if err == nil && !st.Quorum {
				err = cli.ExitError{Code: exitNoQuorum}
			}
			return err
		},
	}
	cli.ExitCodes(c, cli.Note{"1", "no node answers"}, cli.Note{"3", "there is no quorum, or the node waits for its first cluster"})
	cli.Environment(c, cli.Note{"NO_COLOR", "no colours at a terminal, if it is set"})
	o.connects(c)
	c.Flags().StringVarP(&o.output, "output", "o", "table", "table, wide or json")
	cli.CompleteOutput(c, "table", "wide", "json")
	c.Flags().BoolVarP(&o.watch, "watch", "w", false, "show it again every second, until Ctrl-C")
	return c
}

// isTerminal reports whether people see at once what is written.
func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	if !ok {
		return false
	}
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}

func (o *statusOutput) show(ctx context.Context, client *membership.AdminClient, out io.Writer) (membership.ClusterStatus, error) {
	st, err := client.Status(ctx)
	if err != nil {
		return st, err
	}
	var text bytes.Buffer
	if err := o.print(&text, st, func(w *tabwriter.Writer) { o.table(w, st) }); err != nil {
		return st, err
	}
	// Empty cells at the end of a line are blanks.
	var trimmed bytes.Buffer
	for line := range bytes.Lines(text.Bytes()) {
		trimmed.Write(append(bytes.TrimRight(line, " \n"), '\n'))
	}
	_, err = trimmed.WriteTo(out)
	return st, err
}

// again shows the status every second until ctx ends. That no node answers is shown too: one may come back.
func (o *statusOutput) again(ctx context.Context, client *membership.AdminClient, out io.Writer, terminal bool) error {
	tick := time.NewTicker(statusEvery)
	defer tick.Stop()
	for {
		var text bytes.Buffer
		if _, err := o.show(ctx, client, &text); err != nil {
			fmt.Fprintln(&text, "error:", err)
		}
		if ctx.Err() != nil {
			return nil
		}
		if terminal {
			fmt.Fprint(out, "\x1b[H\x1b[2J") // from an empty screen's first line on
		}
		if _, err := text.WriteTo(out); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

func (o *statusOutput) table(w *tabwriter.Writer, st membership.ClusterStatus) {
	more := func(cells ...string) string {
		if !o.wide {
			return ""
		}
		return "\t" + strings.Join(cells, "\t")
	}
	fmt.Fprintln(w, "NAME\tROLE\tTERM\tCOMMIT\tAPPLIED\tLAG\tLAST CONTACT\tDB SIZE"+more("VERSION", "API", "ID"))
	for _, m := range st.Members {
		if m.Error != "" {
			fmt.Fprintf(w, "%s\tunreachable\t\t\t\t\t\t%s\n", m.Name, more("", m.APIAddress, string(m.ID)))
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
		fmt.Fprintf(w, "%s\t%s\t%d\t%d\t%d\t%d\t%s\t%s%s\n", m.Name, role, m.Term, m.Commit, m.Applied, m.Lag, contact, size(m.DBBytes),
			more(m.Version, m.APIAddress, string(m.ID)))
	}
	if st.Waiting != "" {
		fmt.Fprintf(w, "\n%s waits for a cluster: %s\n", st.Members[0].Name, st.Waiting)
		return
	}
	quorum := "quorum"
	if !st.Quorum {
		quorum = o.alarm("NO QUORUM") + ": writes and normal reads fail; reads with resourceVersion=0 go on"
	}
	fmt.Fprintf(w, "\ncluster %s: %d of %d voters reachable: %s\n", st.ClusterID, st.LiveVoters, st.Voters, quorum)
	featureLine(w, st)
	for _, text := range st.Notices {
		fmt.Fprintf(w, "NOTE: %s\n", text)
	}
	for _, d := range st.Diverged {
		fmt.Fprintf(w, "%s: %s\n", o.alarm("STATE HASHES DIFFER"), d)
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

// alarm is text that nobody must overlook.
func (o *statusOutput) alarm(text string) string {
	if !o.color {
		return text
	}
	return "\x1b[1;31m" + text + "\x1b[0m"
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
