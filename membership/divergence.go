package membership

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/quorate/quorate/membership/pki"
	"github.com/quorate/quorate/proto"
)

const (
	// compareEvery is how often a node compares its state hashes with the others'.
	compareEvery = 30 * time.Second
	// compareFirst is how long after its start it does so for the first time.
	compareFirst = 5 * time.Second
	// reportWithin bounds how long a node that must stop tries to tell the cluster.
	reportWithin = 3 * time.Second
	// evidenceFile in the data directory says that this node's state was wrong.
	evidenceFile = "state-differs.json"
)

// ErrStateDiffers is returned by Run when this node's state is not what a majority of
// the voters, two others at least, say it must be at the same index:
// its state machine or its disk is broken. The node must not serve, nor start again.
var ErrStateDiffers = errors.New("the state of this node differs from the cluster's")

// evidence is what this node knew when it found that its state was wrong.
type evidence struct {
	Version int              `json:"version"`
	Node    proto.NodeID     `json:"nodeID"`
	Name    string           `json:"name"`
	Cluster proto.ClusterID  `json:"clusterID,omitempty"`
	Release string           `json:"release,omitempty"`
	Found   time.Time        `json:"found"`
	Index   uint64           `json:"index"`
	Hash    string           `json:"hash"`   // of this node, after the entry at Index
	Theirs  string           `json:"theirs"` // of the others
	Others  []evidenceMember `json:"others"`
}

// evidenceMember is one of those who agree with each other.
type evidenceMember struct {
	ID   proto.NodeID `json:"id"`
	Name string       `json:"name"`
}

// String says what was found.
func (e evidence) String() string {
	names := make([]string, len(e.Others))
	for i, o := range e.Others {
		names[i] = o.Name
	}
	return fmt.Sprintf("at log index %d %s has the state hash %s, and %s agree on %s", e.Index, e.Name, e.Hash, strings.Join(names, ", "), e.Theirs)
}

// CheckState refuses the data directory of a node whose state was found to be wrong.
// Call it before anything is opened.
func CheckState(dir string) error {
	found, e, wrong := readEvidence(dir)
	if !wrong {
		return nil
	}
	// By id: the name may be that of a node that has replaced this one already.
	id, called := "ID", "the node"
	if e.Node != "" {
		id, called = string(e.Node), "node "+e.Name
	}
	return fmt.Errorf(`%w: %s
  its disk, its memory or its software is broken. Everything in %s is left as it was, as evidence.
  To replace %s: run 'quorate member remove %s' against another node, move the directory away, and start
  the node again: it joins with a new id. Check the disk and the memory first; report it with %s`,
		ErrStateDiffers, found, dir, called, id, filepath.Join(dir, evidenceFile))
}

// FoundWrong returns what was found about the state in a data directory, for a person,
// and whether it was found to be wrong: evidence that cannot be read is evidence.
func FoundWrong(dir string) (found string, wrong bool) {
	found, _, wrong = readEvidence(dir)
	return found, wrong
}

func readEvidence(dir string) (found string, e evidence, wrong bool) {
	raw, err := os.ReadFile(filepath.Join(dir, evidenceFile))
	if errors.Is(err, fs.ErrNotExist) {
		return "", e, false
	}
	if err == nil {
		err = json.Unmarshal(raw, &e)
	}
	if err != nil || e.Name == "" {
		return "what was found cannot be read", evidence{}, true
	}
	return fmt.Sprintf("%s (found %s)", e, e.Found.UTC().Format(time.RFC3339)), e, true
}

// stateCheck checks that the members' states are equal, on every node: for each index at
// which two of them have noted their rolling hash, the hashes are the same.
type stateCheck struct {
	*base
	divergences atomic.Int64
	differs     chan evidence // that this node's state is wrong
}

// run returns ErrStateDiffers when this node is the one that is wrong.
func (s *stateCheck) run(ctx context.Context) error {
	for pause := compareFirst; ; pause = compareEvery {
		t := time.NewTimer(pause)
		select {
		case <-ctx.Done():
			t.Stop()
			return nil
		case e := <-s.differs: // ClusterStatus was quicker
			t.Stop()
			return s.condemn(ctx, e)
		case <-t.C:
		}
		conf := s.raft.Members()
		if len(conf.Servers) < 2 {
			continue
		}
		s.examine(conf, s.askAll(ctx, conf.Servers))
	}
}

// examine logs each difference as an error each time it is seen. If it is this node
// that is wrong, run ends it. Otherwise nothing is stopped: either another node
// is wrong and finds out itself, or nothing can tell who is.
func (s *stateCheck) examine(conf Configuration, answers map[proto.NodeID]statusAnswer) {
	for _, d := range diverged(answers) {
		s.divergences.Add(1)
		s.log.Error("STATE HASHES DIFFER: take a backup, find the node that is wrong, and replace it", "difference", d)
	}
	e, ok := judge(s.id.ID(), conf, answers)
	if !ok {
		return
	}
	select {
	case s.differs <- e:
	default: // it ends already
	}
}

// condemn ends this node's part: from here on it serves nothing. What it has on disk
// stays, with a marker that keeps it from starting again.
func (s *stateCheck) condemn(ctx context.Context, e evidence) error {
	e.Version, e.Node, e.Name, e.Cluster = 1, s.id.ID(), s.id.Name(), s.id.Cluster()
	e.Release, e.Found = s.opt.Version, s.opt.Now().UTC()
	err := fmt.Errorf("%w: %s", ErrStateDiffers, e)
	if s.opt.Refuse != nil {
		s.opt.Refuse(err)
	}
	s.log.Error("THE STATE OF THIS NODE IS WRONG: it stops serving and ends", "difference", e.String())
	raw, merr := json.MarshalIndent(e, "", "  ")
	if merr == nil {
		merr = pki.WriteFile(filepath.Join(s.opt.Dir, evidenceFile), append(raw, '\n'), pki.ModeSecret)
	}
	// The others show it until this node is removed. This needs a majority, and the log
	// is not what is wrong.
	ctx, cancel := context.WithTimeout(ctx, reportWithin)
	defer cancel()
	if perr := s.kv.Put(ctx, TableDiverged, string(e.Node), raw, false); perr != nil {
		s.log.Warn("cannot tell the cluster that this node's state is wrong", "err", perr)
	}
	return errors.Join(err, merr)
}

// Divergences counts the differences between members' states that this node has
// seen. Anything but zero needs a person.
func (s *stateCheck) Divergences() int64 { return s.divergences.Load() }

// WrongStates returns, by id, what members have reported that found their own state to
// be wrong and stopped, until they are removed. It answers from this node's state.
//
// A report can outlive its member: the report was still on its way when the member was
// removed, or it came back with a backup. By then a sound node may have the name.
func (b *base) WrongStates() map[proto.NodeID]WrongState {
	raw, err := b.kv.List(TableDiverged)
	if err != nil || len(raw) == 0 {
		return nil
	}
	conf := b.raft.Members()
	out := make(map[proto.NodeID]WrongState, len(raw))
	for _, s := range conf.Servers {
		v, reported := raw[string(s.ID)]
		if !reported {
			continue
		}
		var e evidence
		if json.Unmarshal(v, &e) == nil && e.Name != "" {
			out[s.ID] = WrongState{Name: e.Name, Found: e.String()}
		} else {
			out[s.ID] = WrongState{Name: string(s.ID), Found: "its state differs"}
		}
	}
	return out
}

// lostEntries says, by id, which members have come back without entries that they had acknowledged, as far as
// nodes know that say of themselves how they are.
func lostEntries(statuses ...*proto.NodeStatus) map[proto.NodeID]string {
	out := map[proto.NodeID]string{}
	for _, st := range statuses {
		for _, l := range st.Lost {
			out[proto.NodeID(l.NodeId)] = fmt.Sprintf(
				"it had acknowledged entries up to %d, as node %s knows, and came back with a log that ends at %d", max(l.Acknowledged, l.Committed), l.ToNodeId, l.LastLogIndex)
		}
	}
	return out
}

// judge says whether this node's state is wrong: more than half of all voters, whether
// they answered or not, agree on another hash at an index that this node has noted.
// That takes two others at least, each of which was asked itself, so that no node can
// stop another by a lie alone. Less than that would not do: of five nodes of which two
// are wrong, the three that are right also differ from two that agree.
//
// Members without a vote are judged and judge nobody: there may be more of them than
// voters, they are added without anybody's consent, and what is committed is what a
// majority of the voters has.
func judge(self proto.NodeID, conf Configuration, answers map[proto.NodeID]statusAnswer) (evidence, bool) {
	own := hashesOf(answers[self])
	voters := slices.DeleteFunc(slices.Clone(conf.Servers), func(s Server) bool { return !s.Voter })
	for _, index := range slices.Backward(slices.Sorted(maps.Keys(own))) {
		votes := map[uint64][]evidenceMember{}
		for _, s := range voters {
			if hash, ok := hashesOf(answers[s.ID])[index]; ok && s.ID != self && hash != own[index] {
				name := answers[s.ID].status.Name
				if name == "" {
					name = string(s.ID)
				}
				votes[hash] = append(votes[hash], evidenceMember{s.ID, name})
			}
		}
		for hash, others := range votes { // at most one has a majority
			if len(others) >= 2 && 2*len(others) > len(voters) {
				slices.SortFunc(others, func(a, b evidenceMember) int { return strings.Compare(a.Name, b.Name) })
				return evidence{
					Index: index, Hash: fmt.Sprintf("%016x", own[index]), Theirs: fmt.Sprintf("%016x", hash), Others: others,
				}, true
			}
		}
	}
	return evidence{}, false
}

// hashesOf are the hashes that a node has noted, by index. A node has one word for each.
func hashesOf(a statusAnswer) map[uint64]uint64 {
	if a.err != nil || a.status == nil {
		return nil
	}
	out := make(map[uint64]uint64, len(a.status.Hashes))
	for _, h := range a.status.Hashes {
		out[h.Applied] = h.Hash
	}
	return out
}

// diverged returns a sentence for each index at which two members' hashes differ,
// at most one per pair of members.
func diverged(answers map[proto.NodeID]statusAnswer) []string {
	type note struct {
		node *proto.NodeStatus
		hash uint64
	}
	first := map[uint64]note{} // by index
	pairs := map[[2]string]bool{}
	var out []string
	for _, id := range slices.Sorted(maps.Keys(answers)) {
		a := answers[id]
		if a.err != nil {
			continue
		}
		for _, h := range a.status.Hashes {
			other, ok := first[h.Applied]
			if !ok {
				first[h.Applied] = note{a.status, h.Hash}
				continue
			}
			if pair := [2]string{other.node.NodeId, a.status.NodeId}; other.hash != h.Hash && !pairs[pair] {
				pairs[pair] = true
				out = append(out, fmt.Sprintf("at index %d %s has %016x and %s has %016x", h.Applied, other.node.Name, other.hash, a.status.Name, h.Hash))
			}
		}
	}
	return out
}
