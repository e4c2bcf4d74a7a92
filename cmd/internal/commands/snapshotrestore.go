package commands

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"

	"github.com/quorate/quorate/internal/cli"
	"github.com/quorate/quorate/internal/datadir"
	"github.com/quorate/quorate/internal/hostport"
	"github.com/quorate/quorate/internal/words"
	"github.com/quorate/quorate/raftstore/disk"
	"github.com/spf13/cobra"
)

// snapshotRestoreCommand makes the first node of a new cluster from a backup.
func snapshotRestoreCommand() *cobra.Command {
	var r restore
	cfg := &settings{}
	flags := cfg.flags()
	c := &cobra.Command{
		Use:   "restore FILE",
		Short: "Make a new data directory from a backup",
		Long: `Makes the data directory of the first node of a NEW cluster: a new cluster id, so
that members of the old cluster are refused; new revisions begin at what the clock
says, 100,000 for each second since 1970, so that none is given out again, also
when a backup was restored before (objects keep the resourceVersion that they
have); and watches and exact reads from before answer 410, so that every client
lists again. FILE may be - for standard input.

The node's name, data directory and peer address are those with which it will run:
give them as flags, or its configuration as to 'quorate node' (--config, or
variables). None of them is guessed. Start the node as always, then let further
nodes join with empty directories: do not restore the backup for each of them, that
would make clusters of one.

The clock of this machine must be right. If it cannot be, --bump-revision says how
far above the backup the new revisions begin: more than every cluster that was made
of this backup, of later ones, or of the same one earlier can have gone on.`,
		Example: `  runuser -u quorate -- quorate snapshot restore - --data-dir /var/lib/quorate/n1 \
    --name n1 --peer-advertise-address 192.0.2.1:7443 <FILE
  quorate snapshot restore FILE --config /etc/quorate/n1.yaml
  quorate snapshot restore FILE --config .quorate/n1.yaml    # a playground's node`,
		Args: cli.Exactly("FILE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := r.complete(args[0], cfg, cmd.InOrStdin()); err != nil {
				return err
			}
			done, err := r.run(args[0], cmd.InOrStdin())
			if errors.Is(err, disk.ErrClock) {
				return fmt.Errorf("%w; set it, or say with --bump-revision where to begin", err)
			}
			if err != nil {
				return err
			}
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s holds cluster %s at revision %d\n%s\n%s\n\n%s\n"+
				"Service account tokens are refused, too, unless the old pki/token.key of their node is put into %s before its start:\npods get new ones from their kubelets, or are started again.\n",
				r.dir, done.ClusterId, done.Applied, beginning(done), r.next(), deadKubeconfigs(r.dir), filepath.Join(r.dir, "pki"))
			return err
		},
	}
	c.Flags().StringVar(&r.config, "config", os.Getenv(envPrefix+"CONFIG"), "the node's configuration file, from which the settings below are taken")
	cli.DefaultIs(c.Flags(), "config", "$"+envPrefix+"CONFIG")
	for _, name := range []string{"data-dir", "name", "peer-address", "peer-advertise-address"} {
		f := flags.Lookup(name)
		f.Usage, f.DefValue, f.Annotations = restoreUsage[name], "", nil
		c.Flags().AddFlag(f)
	}
	cli.Environment(c, cli.Note{envPrefix + "SETTING", "any setting of the node, named like its flag: " + envPrefix + "DATA_DIR is --data-dir"})
	c.Flags().Uint64Var(&r.bump, "bump-revision", 0, "begin this far above the backup's revision, whatever the clock says (default: the clock decides)")
	return c
}

var restoreUsage = map[string]string{
	"data-dir":               "the new data directory; must be empty or absent",
	"name":                   "name of the node",
	"peer-address":           "host:port for other nodes, as the node is told; enough if they reach it there",
	"peer-advertise-address": "host:port under which other nodes will reach the node (default: --peer-address)",
}

// complete takes from the node's configuration what was not given, and refuses to guess:
// a default of the node would be another one on another host, and an address that no other
// node reaches is found out only when the second one is to join.
func (r *restore) complete(backup string, cfg *settings, stdin io.Reader) error {
	if backup == "-" && r.config == "-" {
		return errors.New("standard input cannot be both the backup and the configuration")
	}
	origins, err := resolve(cfg.set, r.config, stdin, os.Environ())
	if err != nil {
		return err
	}
	var missing []string
	for _, setting := range []struct {
		missing string
		names   []string
	}{
		{"--data-dir", []string{"data-dir"}}, {"--name", []string{"name"}},
		{"--peer-advertise-address", []string{"peer-advertise-address", "peer-address"}},
	} {
		if !slices.ContainsFunc(setting.names, func(name string) bool {
			return origins[name] != fromDefault && cfg.set.Lookup(name).Value.String() != ""
		}) {
			missing = append(missing, setting.missing)
		}
	}
	if len(missing) > 0 {
		return fmt.Errorf("not said: %s. Give what the node will run with, as flags or with its configuration file: --config FILE", words.And(missing))
	}
	r.dir, r.name, r.peerAddress = cfg.DataDir, cfg.Name, cmp.Or(cfg.PeerAdvertise, cfg.PeerListen)
	if err := hostport.Check(r.peerAddress, true); err != nil {
		return fmt.Errorf("--peer-advertise-address: %w", err)
	}
	return datadir.CheckUser("quorate snapshot restore - --data-dir "+r.dir+" ... <FILE", r.dir)
}

// next says how the node is started.
func (r *restore) next() string {
	if r.config != "" {
		return fmt.Sprintf("start it with the cluster's secret in its token file:\n  quorate node --config %s", r.config)
	}
	return fmt.Sprintf("put the secret in a token file (see 'quorate node --help') and start it:\n  quorate node --data-dir %s --name %s --peer-advertise-address %s --token-file FILE",
		r.dir, r.name, r.peerAddress)
}

// beginning says why the new cluster begins where it does.
func beginning(done disk.Restored) string {
	switch by := done.Applied - uint64(done.Backup); done.Why {
	case disk.ByBump:
		return fmt.Sprintf("  the backup is at revision %d, and --bump-revision adds %d; the clock was not asked. Revisions are given out again if another cluster\n  of this backup's line has gone on further than that.", done.Backup, by)
	case disk.BehindBackup:
		return fmt.Sprintf("  the backup is at revision %d, which is ahead of this machine's clock: the revision was bumped by hand once, or a clock is or was wrong.\n  So the new cluster begins %d above the backup. If this backup, or a later one, was restored before, restore it again with a larger --bump-revision.", done.Backup, by)
	default:
		return fmt.Sprintf("  the backup is at revision %d; the new cluster begins where this machine's clock says, above all that any cluster before it has given out.", done.Backup)
	}
}

// restore is what the command is told.
type restore struct {
	config                 string
	dir, name, peerAddress string
	bump                   uint64
}

// run makes the data directory, or nothing.
func (r *restore) run(file string, backup io.Reader) (disk.Restored, error) {
	if file != "-" {
		f, err := os.Open(file)
		if err != nil {
			return disk.Restored{}, err
		}
		defer f.Close()
		backup = f
	}
	return datadir.Restore(r.dir, r.name, r.peerAddress, r.bump, backup)
}
