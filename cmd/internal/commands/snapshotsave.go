package commands

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/quorate/quorate/internal/backup"
	"github.com/quorate/quorate/internal/cli"
	"github.com/quorate/quorate/membership"
	"github.com/spf13/cobra"
	"golang.org/x/term"
)

func snapshotSaveCommand() *cobra.Command {
	var a access
	c := &cobra.Command{
		Use:   "save FILE",
		Short: "Save a backup of the whole state from a running node",
		Long: `Reads the state of one node, history included, reads it back and checks it, and
then gives it its name. FILE may be - for standard output; a file of that name is
replaced only if it is a regular one. The backup holds Secrets in clear: its mode is
0600.

It is taken from the first node of the kubeconfig that a majority confirms, so that
nothing acknowledged before is missing. With --context from the node of that context
if it answers, and if there is no majority from any: then a warning on standard
error says so.`,
		Args: cli.Exactly("FILE"),
		RunE: func(cmd *cobra.Command, args []string) error { return saveBackup(cmd, &a, args[0]) },
	}
	a.flags(c)
	return c
}

func saveBackup(cmd *cobra.Command, a *access, file string) error {
	if file != "-" {
		if err := backup.CheckTarget(file); err != nil {
			return err
		}
	} else if f, ok := cmd.OutOrStdout().(*os.File); ok && term.IsTerminal(int(f.Fd())) {
		return errors.New("standard output is a terminal: send the backup to a file or a program")
	}
	client, err := a.client()
	if err != nil {
		return err
	}
	defer client.Close()
	stream, err := openBackup(cmd.Context(), client, a.context == "")
	if err != nil {
		return err
	}
	defer stream.Close()
	if file == "-" {
		// The summary goes where it does not spoil the backup.
		b, err := backup.Parse(io.TeeReader(stream, cmd.OutOrStdout()))
		if err != nil {
			return fmt.Errorf("what was written is not a whole backup: %w", err)
		}
		return report(cmd, b, cmd.ErrOrStderr(), a.output)
	}
	b, err := backup.Write(stream, file)
	if err != nil {
		return err
	}
	return report(cmd, b, cmd.OutOrStdout(), a.output)
}

// openBackup asks the nodes in turn. The best is the one that a majority confirms; who
// has chosen a node gets what that one has.
func openBackup(ctx context.Context, client *membership.AdminClient, best bool) (io.ReadCloser, error) {
	if best {
		if stream, err := client.Open(ctx, backup.Path+backup.ConfirmedQuery); err == nil || ctx.Err() != nil {
			return stream, err
		}
	}
	return client.Open(ctx, backup.Path)
}

func report(cmd *cobra.Command, b backup.Info, to io.Writer, output string) error {
	if why := warning(&b.Taken); why != "" {
		fmt.Fprintln(cmd.ErrOrStderr(), why)
	}
	return printBackup(b, to, output)
}
