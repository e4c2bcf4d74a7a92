package commands

import (
	"encoding/json"
	"fmt"
	"io"
	"time"

	"github.com/quorate/quorate/internal/backup"
	"github.com/quorate/quorate/internal/cli"
	"github.com/spf13/cobra"
)

func snapshotCommand() *cobra.Command {
	c := cli.Group(&cobra.Command{Use: "snapshot", Short: "Save, inspect, verify and restore backups"})
	var output string
	inspect := &cobra.Command{
		Use: "inspect FILE", Short: "Say what a backup holds, from when and from which node", Args: cli.Exactly("FILE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := cli.CheckOutput(output); err != nil {
				return err
			}
			b, err := backup.Read(args[0])
			if err != nil {
				return err
			}
			return printBackup(b, cmd.OutOrStdout(), output)
		},
	}
	inspect.Flags().StringVarP(&output, "output", "o", "table", "table or json")
	cli.CompleteOutput(inspect, "table", "json")
	c.AddCommand(snapshotSaveCommand(), inspect, &cobra.Command{
		Use: "verify FILE", Short: "Read a backup to its end and check every checksum", Args: cli.Exactly("FILE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if _, err := backup.Read(args[0]); err != nil {
				return err
			}
			_, err := fmt.Fprintf(cmd.OutOrStdout(), "%s is whole\n", args[0])
			return err
		},
	}, snapshotRestoreCommand())
	return c
}

// printBackup says what a backup holds.
func printBackup(b backup.Info, w io.Writer, output string) error {
	if output == "json" {
		e := json.NewEncoder(w)
		e.SetIndent("", "  ")
		return e.Encode(b)
	}
	t := &b.Taken
	taken := fmt.Sprintf("%s from %s, %s", t.Time.Format("2006-01-02 15:04:05 UTC"), t.Node, standing(t))
	_, err := fmt.Fprintf(w, "cluster:   %s\nrevision:  %d\ntaken:     %s\nversion:   %s\nfloor:     %d\nhash:      %s\nversions:  %d\nsize:      %s\n",
		b.ClusterID, b.Revision, taken, t.Version, b.Floor, b.Hash, b.Versions, size(uint64(b.Bytes)))
	return err
}

// standing says where the node stood in its cluster.
func standing(t *backup.Taken) string {
	if t.Confirmed {
		return t.Role + "; a majority confirmed that nothing was missing"
	}
	return t.Role + "; NOT confirmed by a majority"
}

// warning is what has to be said of a backup that may be old, or "".
func warning(t *backup.Taken) string {
	if t.Confirmed {
		return ""
	}
	heard := "and has never heard from a leader since its start"
	switch {
	case t.Role == "leader":
		heard = "though it calls itself the leader"
	case t.LastContactMS >= 0:
		heard = "and last heard from a leader " + (time.Duration(t.LastContactMS) * time.Millisecond).Round(time.Millisecond).String() + " before"
	}
	return fmt.Sprintf("warning: %s (%s) reached no majority (%s), %s.\n"+
		"The backup holds what this node has: newer writes may be missing. 'quorate status' shows the nodes.", t.Node, t.Role, t.NotConfirmed, heard)
}
