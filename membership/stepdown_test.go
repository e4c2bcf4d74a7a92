package membership

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/quorate/quorate/internal/must"
)

// TestStepDown stops leaders in clusters of several kinds: leadership goes to a
// voter that answers, whatever the others do, and a leader without another voter
// has nobody to hand over to, which is no error.
func TestStepDown(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, script string
		stopped      string // of the followers
		to           string // who leads afterwards; empty: as before
	}{
		{name: "alone", script: "start a expect=1 / formed a"},
		{name: "with a non-voter", script: "start a expect=1 / formed a / start b join=a nonvoter / formed b / members a -b"},
		{name: "one of three is dead", script: "start a expect=3 join=a,b,c / start b expect=3 join=a,b,c / start c expect=3 join=a,b,c / formed a b c", stopped: "1", to: "2"},
		{name: "the other one of three is dead", script: "start a expect=3 join=a,b,c / start b expect=3 join=a,b,c / start c expect=3 join=a,b,c / formed a b c", stopped: "2", to: "1"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			for line := range strings.SplitSeq(c.script, " / ") {
				w.run(strings.Fields(line))
			}
			var leader *machine
			var followers []*machine
			w.await("a leader", func() bool {
				leader, followers = nil, nil
				for _, name := range []string{"a", "b", "c"} {
					if mc := w.machines[name]; mc == nil {
						continue
					} else if mc.node.raft.IsLeader() {
						leader = mc
					} else {
						followers = append(followers, mc)
					}
				}
				return leader != nil
			})
			follower := func(number string) *machine { return followers[number[0]-'1'] }
			if c.stopped != "" {
				w.stop(follower(c.stopped))
			}
			// The live follower has a third of it to answer in.
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			must.OK(t, leader.node.StepDown(ctx))
			next := leader
			if c.to != "" {
				next = follower(c.to)
			}
			if !next.node.raft.IsLeader() {
				t.Errorf("%s does not lead", next.name)
			}
		})
	}
	w, all := three(t)
	w.stop(all[1])
	lead := all[0].node
	f := lead.survey(t.Context())
	dead := f.health[all[2].id]
	dead.alive = false
	f.health[all[2].id] = dead
	switch err := lead.transferLocked(t.Context(), f, "", ""); {
	case !errors.Is(err, ErrRefused):
		t.Errorf("nobody is alive to take over: %v", err)
	case strings.Count(err.Error(), "transfer leadership to") != 2:
		t.Errorf("%v, want why neither can", err)
	}
}
