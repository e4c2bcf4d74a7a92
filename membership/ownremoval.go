package membership

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/quorate/quorate/membership/pki"
	"github.com/quorate/quorate/proto"
)

const (
	// removedFile in the data directory says that this node was removed.
	removedFile = "removed.json"
	// placeEvery is how often a node looks whether it is in the configuration. That is
	// from memory; others are asked only when it is not, or when it knows no leader.
	placeEvery = 250 * time.Millisecond
)

// ownRemoval is what a node keeps about its own removal.
type ownRemoval struct {
	Version int             `json:"version"`
	Node    proto.NodeID    `json:"nodeID"`
	Cluster proto.ClusterID `json:"clusterID"`
	Learned time.Time       `json:"learned"`
	Said    string          `json:"said"` // by a member
}

// CheckRemoved refuses the data directory of a node that knows of its removal. Call it
// before anything is opened: what is in the directory is of the past, and nothing will
// bring it up to date. A directory that has another node id since, by a recovery, is not
// concerned.
func CheckRemoved(dir string) error {
	path := filepath.Join(dir, removedFile)
	raw, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("removal of this node: %w", err)
	}
	var r ownRemoval
	if json.Unmarshal(raw, &r) == nil {
		var f identityJSON
		if b, err := os.ReadFile(filepath.Join(dir, identityFile)); err == nil && json.Unmarshal(b, &f) == nil && f.NodeID != r.Node {
			return nil
		}
	}
	// What a member said begins with the same words; the rest of it says which node, and when.
	said := strings.TrimSpace(strings.TrimPrefix(r.Said, ErrRemoved.Error()))
	return fmt.Errorf("%w (%s: %s)", ErrRemoved, path, cmp.Or(strings.Trim(said, "()"), r.Said))
}

// placeWatch finds out that this node was removed. Its own log may say no more than that
// the configuration is without it, which is so too while it catches up with where it was
// added; and when it was cut off, its log says nothing. So it asks the members of the
// configuration that it has, each by its node id: what anybody else answers, a removed
// node with a valid certificate for instance, does not count.
type placeWatch struct{ *base }

// run returns an error that wraps ErrRemoved, or nil when ctx ends.
func (w placeWatch) run(ctx context.Context) error {
	tick := min(placeEvery, w.opt.Tick)
	var leaderless time.Duration
	for sleep(ctx, tick, nil) == nil {
		conf := w.raft.Members()
		if len(conf.Servers) == 0 {
			continue
		}
		if id, _ := w.raft.Leader(); id != "" {
			leaderless = 0
		} else {
			leaderless += tick
		}
		if _, in := conf.Find(w.id.ID()); in && leaderless < searchAfter*w.opt.Tick {
			continue
		}
		leaderless = 0
		if err := w.ask(ctx, conf); err != nil {
			return w.leaveForGood(err)
		}
	}
	return nil
}

// ask returns what a member has said of this node's removal, or nil.
func (w placeWatch) ask(ctx context.Context, conf Configuration) error {
	ctx, cancel := context.WithTimeout(ctx, w.opt.CallTimeout)
	defer cancel()
	said := make(chan error, len(conf.Servers)) // each answers once
	asked := 0
	for _, s := range conf.Servers {
		if s.ID == w.id.ID() || IsRemoved(w.kv, s.ID) {
			continue
		}
		asked++
		go func() { // ends with ctx
			_, err := w.hello(ctx, s.ID, s.Address)
			said <- err
		}()
	}
	for range asked {
		if err := <-said; errors.Is(err, ErrRemoved) {
			return err
		}
	}
	return nil
}

// leaveForGood ends this node's part in the cluster. It serves nothing from here on, and
// says the same when it is started again.
func (w placeWatch) leaveForGood(why error) error {
	if w.opt.Refuse != nil {
		w.opt.Refuse(why)
	}
	w.log.Error("THIS NODE WAS REMOVED FROM THE CLUSTER: it stops serving and ends; destroy or wipe its data directory",
		"node", w.id.ID(), "name", w.id.Name(), "directory", w.opt.Dir, "said", why)
	raw, err := json.MarshalIndent(ownRemoval{1, w.id.ID(), w.id.Cluster(), w.opt.Now().UTC(), why.Error()}, "", "  ")
	if err == nil {
		err = pki.WriteFile(filepath.Join(w.opt.Dir, removedFile), append(raw, '\n'), pki.ModeSecret)
	}
	return errors.Join(why, err)
}

// checkCallerIsNotRemoved tells a node of this cluster that it was removed. It may have
// been cut off then, and there is no other way to learn of it.
func (b *base) checkCallerIsNotRemoved(id proto.NodeID, cluster string) error {
	if cluster == "" || cluster != string(b.id.Cluster()) {
		return nil
	}
	raw, gone := b.kv.Get(TableRemoved, string(id))
	if !gone {
		return nil
	}
	var r struct {
		At time.Time `json:"at"`
	}
	if json.Unmarshal(raw, &r) != nil || r.At.IsZero() {
		return ErrRemoved
	}
	return fmt.Errorf("%w (node %s, at %s)", ErrRemoved, id, r.At.UTC().Format(time.RFC3339))
}
