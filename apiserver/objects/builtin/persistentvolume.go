package builtin

import (
	"github.com/quorate/quorate/apiserver/objects"
	"github.com/quorate/quorate/apiserver/types/tree"
)

var volumeStrategy = objects.Strategy{ForUser: timeOfPhase}

const phaseTime = "lastPhaseTransitionTime"

// timeOfPhase says since when a volume is in its phase, unless the write that changes the
// phase says that too.
func timeOfPhase(o *objects.Op, obj, old tree.Object) error {
	now, was := tree.Clone(obj["status"]), tree.As(old["status"])
	samePhase := tree.Text(now, "phase") == tree.Text(was, "phase")
	switch {
	case old == nil, !samePhase && (now[phaseTime] == nil || tree.Equal(now[phaseTime], was[phaseTime])):
		now[phaseTime] = tree.Timestamp(o.Store.Now())
	case samePhase && now[phaseTime] == nil && was[phaseTime] != nil:
		now[phaseTime] = was[phaseTime]
	default:
		return nil
	}
	obj["status"] = now
	return nil
}
