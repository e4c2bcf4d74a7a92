package commands

import (
	"context"
	"errors"
	"os"
	"syscall"

	"github.com/quorate/quorate/internal/cli"
	"github.com/quorate/quorate/internal/collector"
	"github.com/quorate/quorate/node"
	"github.com/spf13/cobra"
)

func nodeCommand() *cobra.Command {
	c := settingsCommand("node", "Run one node", func(cmd *cobra.Command, s *settings) error {
		return runNode(cmd.Context(), s)
	})
	c.Long = `Runs one node of a cluster. The same command line serves for the first start, for
every restart and for nodes that join later: whether the node is new is told from
its data directory. With --bootstrap-expect N, N nodes that know each other from
--join and share the secret of --token-file make a new cluster; if one of them
belongs to a cluster already, the others join it.

Every flag is also a variable, --data-dir is QUORATE_DATA_DIR, and a key of the
file that --config names. A flag wins over a variable, a variable over the file.
'quorate config view --show-origin' shows what came from where.`
	c.Example = `  # a cluster of one
  quorate node --data-dir DIR --bootstrap-expect 1

  # three hosts, each with its own addresses, and the same secret in FILE
  quorate node --bootstrap-expect 3 --join a:7443,b:7443,c:7443 --token-file FILE \
    --api-address 192.0.2.1:6443 --peer-address 192.0.2.1:7443

  # one more node; the token is from 'quorate token create'
  quorate node --join a:6443 --join-token @FILE \
    --api-address 192.0.2.4:6443 --peer-address 192.0.2.4:7443`
	cli.ExitCodes(c,
		cli.Note{"1", "it did not start, or has to stop for good: a setting, a port, its data directory, its removal from the cluster"},
		cli.Note{"2", "it ended itself, because going on could have lost or invented data; start it again"})
	cli.Files(c,
		cli.Note{"DATA-DIR/node.json", "who the node is: its id and its cluster"},
		cli.Note{"DATA-DIR/raft-log, DATA-DIR/raft.db", "the log's entries; its term and vote"},
		cli.Note{"DATA-DIR/state.db, DATA-DIR/snapshot.meta", "the state, the newest snapshot"},
		cli.Note{"DATA-DIR/token", "the cluster's secret, unless --token-file names another file"},
		cli.Note{"DATA-DIR/pki", "certificates and keys, all made from the secret"},
		cli.Note{"DATA-DIR/admin.kubeconfig", "an administrator's kubeconfig for this node"})
	return c
}

// runNode runs a node until ctx ends or it cannot go on. The process is the node's alone.
func runNode(ctx context.Context, s *settings) error {
	// Secrets lie in the data directory, whichever user starts the node.
	syscall.Umask(0o077)
	defer collector.Start()()
	log, watched := newLogger(s, os.Stderr)
	libraryLogs(log)
	c := s.Config
	c.Version, c.Log, c.LogBlocked, c.Flagz = build.Version, log, watched.blocked, s.values
	c.WholeProcess, c.Fatal = true, func(error) { os.Exit(exitCannotGoOn) }
	n, err := node.Open(ctx, c)
	if err != nil {
		return err
	}
	return errors.Join(n.Run(ctx), n.Close())
}

// exitCannotGoOn is the exit code of a node whose log, disk or state machine can no longer be trusted.
const exitCannotGoOn = 2
