package commands

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/hashicorp/raft"
	"github.com/quorate/quorate/internal/cli"
	"github.com/quorate/quorate/internal/datadir"
	"github.com/quorate/quorate/membership"
	"github.com/quorate/quorate/raftstore/disk"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// recovery is what 'quorate recover' is told.
type recovery struct {
	dir, peerAddress string
	inspect, yes     bool
	acceptWrong      bool // recover a state that was found to be wrong
	bump             uint64

	typed string // the command, as it may be typed again
	in    io.Reader
	out   io.Writer
}

func recoverCommand() *cobra.Command {
	var r recovery
	c := &cobra.Command{
		Use:   "recover --data-dir DIR",
		Short: "Make a new cluster of one survivor when the majority is lost for good",
		Long: `Turns the data directory of ONE survivor into that of the only voter of a NEW
cluster, when a majority of the voters can never come back. The node must not run.
Start it afterwards as always; the other hosts get empty data directories and join.

What the survivor's log holds is kept, also entries that it was not told to be
committed: an acknowledged write may be among them. Writes that only lost nodes had
are gone, and nothing on this disk says whether there were any.

With several survivors, stop them all, run --inspect on each, and recover the one
whose log ends highest: by term first, then by index. Leave out a survivor whose
state was found to be wrong, also if its log ends highest: recover refuses it. If
there is no other and no backup, --accept-wrong-state takes it as it is.

The new cluster has an id and a node id of its own, so that nodes of the old one are
refused for ever. New revisions begin at what the clock says, as after 'quorate
snapshot restore' and for the same reason: the lost nodes may have given out
revisions that this log does not know. Watches and exact reads from before answer
410, so that every client lists again.

It may be killed at any time and run again. The files that it replaces stay in
DIR/before-recovery until you delete them.

Run it as the user whose directory it is: root is refused.`,
		Example: `  runuser -u quorate -- quorate recover --data-dir /var/lib/quorate/n1 --inspect
  runuser -u quorate -- quorate recover --data-dir /var/lib/quorate/n1`,
		Args: cli.NoArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			r.in, r.out, r.typed = cmd.InOrStdin(), cmd.OutOrStdout(), typed(cmd, "data-dir")
			return r.run()
		},
	}
	cli.Files(c, cli.Note{"DATA-DIR/before-recovery", "the files that were replaced, until you delete them"})
	c.Flags().StringVar(&r.dir, "data-dir", "", "the survivor's data directory")
	c.Flags().BoolVar(&r.inspect, "inspect", false, "only say what the directory holds, to compare survivors")
	c.Flags().BoolVar(&r.yes, "yes", false, "do not ask")
	c.Flags().BoolVar(&r.acceptWrong, "accept-wrong-state", false, "recover a state that a majority of the members has found to be wrong: the new cluster serves it as it is")
	c.Flags().StringVar(&r.peerAddress, "peer-advertise-address", "", "peer address of the node (default: the one that it had)")
	c.Flags().Uint64Var(&r.bump, "bump-revision", 0, "begin this far above the end of the log, whatever the clock says (default: the clock decides)")
	cli.Needs(c, "data-dir")
	return c
}

// typed is a command with the flags that it was given, that of the name first.
func typed(cmd *cobra.Command, first string) string {
	words := []string{cmd.CommandPath()}
	add := func(f *pflag.Flag) {
		switch {
		case f.Value.Type() == "bool" && f.Value.String() == "true":
			words = append(words, "--"+f.Name)
		case f.Value.Type() == "bool":
			words = append(words, "--"+f.Name+"="+f.Value.String())
		default:
			words = append(words, "--"+f.Name, f.Value.String())
		}
	}
	add(cmd.Flags().Lookup(first))
	cmd.Flags().Visit(func(f *pflag.Flag) {
		if f.Name != first {
			add(f)
		}
	})
	return strings.Join(words, " ")
}

func (r recovery) run() error {
	lock, err := r.lock()
	if err != nil {
		return err
	}
	defer lock.Close()
	switch err := disk.Unfinished(r.dir); {
	case errors.Is(err, disk.ErrRecovering) && !r.inspect:
		if _, err := disk.FinishRecovery(r.dir); err != nil {
			return err
		}
		r.say("A recovery of %s had been interrupted; it is finished now.\n", r.dir)
		return r.next()
	case err != nil:
		return err
	}
	identity, err := membership.LoadIdentity(r.dir, "")
	if err != nil {
		return err
	}
	s, err := disk.InspectSurvivor(r.dir)
	if err != nil {
		return err
	}
	own, lost := r.report(identity, s)
	found, wrong := membership.FoundWrong(r.dir)
	if wrong {
		r.say("WRONG:      a majority of the members found the state of this node to be wrong: %s\n            recover another survivor, also one whose log ends lower\n", found)
	}
	if r.inspect {
		return nil
	}
	switch {
	case wrong && !r.acceptWrong:
		return fmt.Errorf("node %s (%s): %w: recover another survivor, also one whose log ends lower, or restore a backup; if this state is all that is left, --accept-wrong-state makes the new cluster of it, wrong as it is",
			identity.Name(), identity.ID(), disk.ErrWrongState)
	case r.peerAddress == "" && own == "":
		return fmt.Errorf("the configuration does not name node %s (%s): say with --peer-advertise-address where the others will reach it", identity.Name(), identity.ID())
	case r.peerAddress == "":
		r.peerAddress = own
	}
	if lost == 0 && !wrong { // one that is wrong does not start
		return fmt.Errorf("node %s is the only voter of its cluster: there is nothing to recover; start it", identity.Name())
	}
	if err := r.confirm(identity.Name()); err != nil {
		return err
	}
	return r.recover(identity)
}

// lock takes the data directory of a stopped node.
func (r recovery) lock() (io.Closer, error) {
	switch _, err := os.Lstat(filepath.Join(r.dir, "node.json")); {
	case errors.Is(err, fs.ErrNotExist) && disk.Unfinished(r.dir) == nil:
		return nil, fmt.Errorf("%s is not the data directory of a node: it has no node.json", r.dir)
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return nil, fmt.Errorf("%s: %w", r.dir, err)
	}
	if err := errors.Join(datadir.CheckUser(r.typed, r.dir), datadir.CheckOwnFiles(r.dir)); err != nil {
		return nil, err
	}
	return datadir.Lock(r.dir)
}

// report says what there is and what a recovery keeps and loses. It returns the
// node's address in the configuration and how many other voters that has.
func (r recovery) report(identity *membership.Identity, s disk.Survivor) (own string, others int) {
	r.say("node:       %s (%s)\n", identity.Name(), identity.ID())
	r.say("cluster:    %s\n", s.Cluster)
	for _, m := range s.Configuration.Servers {
		kind := "voter"
		if m.Suffrage != raft.Voter {
			kind = "no vote"
		}
		mine := ""
		if string(m.ID) == string(identity.ID()) {
			own, mine = string(m.Address), ", this node"
		} else if m.Suffrage == raft.Voter {
			others++
		}
		r.say("member:     %s at %s (%s%s)\n", m.ID, m.Address, kind, mine)
	}
	r.say("applied:    %d, of term %d\n", s.Applied, s.Term)
	r.say("log ends:   %d, of term %d    <- of several survivors the highest counts: term first, then index\n", s.LastIndex, s.LastTerm)
	r.say("objects:    %d\n", s.Objects)
	r.say("kept:       all that was applied, and the %d entries behind it, %d of them writes; these may or may not\n            have been committed, and take effect\n", s.Tail, s.Writes)
	if s.Dead > 0 {
		r.say("not kept:   %d entries at the end of the log: they are of a term that lost, and were never committed\n", s.Dead)
	}
	if s.LogLost {
		r.say("not there:  the log is gone or an old copy; writes of the last second before the end may be missing\n")
	}
	r.say("lost:       what other nodes committed behind entry %d without this one; nothing here says whether there is any\n", s.LastIndex)
	return own, others
}

// confirm asks, unless --yes was given.
func (r recovery) confirm(name string) error {
	if r.yes {
		return nil
	}
	r.say("\nThis makes a NEW cluster of this one node. The other nodes of the old one can never come back into it:\ntheir data directories have to be moved away. If a majority can still be brought back, do that instead.\nType the name of the node, %s, to go on: ", name)
	answer, err := bufio.NewReader(r.in).ReadString('\n')
	switch {
	case strings.TrimSpace(answer) == name:
		return nil
	case err != nil && answer == "":
		return errors.New("nothing was changed: there is nobody to ask; --yes says that you mean it")
	}
	return errors.New("nothing was changed")
}

// recover makes the new cluster, and says what came of it.
func (r recovery) recover(old *membership.Identity) error {
	done, id, err := datadir.Recover(r.dir, old, r.peerAddress, r.bump, r.acceptWrong)
	if errors.Is(err, disk.ErrClock) {
		return fmt.Errorf("%w; set it, or say with --bump-revision where to begin", err)
	}
	if err != nil {
		return err
	}
	r.say("\n%s is now the only voter of cluster %s, as node %s at %s.\nNew revisions begin at %d.\n%s\nWhat was there before is in %s.\n",
		old.Name(), done.State.ClusterId, id, r.peerAddress, done.State.Applied, recoveredBeginning(done), done.Aside)
	return r.next()
}

// recoveredBeginning says why the new cluster begins where it does.
func recoveredBeginning(done disk.Recovered) string {
	end := max(uint64(done.Survivor.Applied), done.Survivor.LastIndex)
	switch by := done.State.Applied - end; done.Why {
	case disk.ByBump:
		return fmt.Sprintf("  The log ends at %d, and --bump-revision adds %d; the clock was not asked. Revisions are given out again if the lost nodes\n  had gone on further than that.", end, by)
	case disk.BehindBackup:
		return fmt.Sprintf("  The log ends at %d, which is ahead of this machine's clock: the revision was bumped by hand once, or a clock is or was wrong.\n  So the new cluster begins %d above it. If the lost nodes can have gone on further, put the old files back and recover with a larger --bump-revision.", end, by)
	default:
		return fmt.Sprintf("  The log ends at %d; the new cluster begins where this machine's clock says, above all that the lost nodes can have given out.", end)
	}
}

func (r recovery) next() error {
	r.say("Start the node as always, then the other hosts with empty data directories and their usual settings: they join.\n\n%s\n"+
		"Service account tokens that the lost nodes have signed are refused, too; those of this node hold.\n", deadKubeconfigs(r.dir))
	return nil
}

func (r recovery) say(format string, args ...any) { fmt.Fprintf(r.out, format, args...) }

// deadKubeconfigs says which credentials a new cluster refuses, and how there are others.
func deadKubeconfigs(dir string) string {
	own := filepath.Join(dir, "admin.kubeconfig")
	return fmt.Sprintf("Kubeconfigs from before are refused (401, Unauthorized), also those of 'quorate kubeconfig': hand out new ones. The node\n"+
		"writes an administrator's when it starts:\n"+
		"  quorate kubeconfig --kubeconfig %s > admin.kubeconfig\n"+
		"  quorate kubeconfig --kubeconfig %s --user NAME --group GROUP --to NAME.kubeconfig", own, own)
}
