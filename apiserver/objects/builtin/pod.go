package builtin

import (
	"github.com/quorate/quorate/apiserver/objects"
	"github.com/quorate/quorate/apiserver/types/quota"
	"github.com/quorate/quorate/apiserver/types/tree"
	"github.com/quorate/quorate/apiserver/types/validation"
)

var podStrategy = objects.Strategy{
	Complete:   completePod,
	Prepare:    preparePod,
	ForUser:    copyAppArmor,
	Validation: boundedPod{validation.Of("pods")},
	Usage:      usageOf(quota.Pods),
	Parts:      map[string]objects.Part{"ephemeralcontainers": takeEphemeralContainers, "resize": takeResources},
	Posts: map[string]*objects.Creater{
		"binding":  createBinding,
		"eviction": objects.Completed(objects.CreaterOf(evictionKind, evictPod, "policy/v1beta1"), checkEviction),
	},
}

// completePod makes a second of a negative grace period, as all versions have read it, and the addresses agree.
func completePod(_ *objects.Op, obj, _ tree.Object) error {
	agreeOnPodIPs(obj)
	if n, _ := tree.Int(tree.Field(obj, "spec", "terminationGracePeriodSeconds")); n < 0 {
		spec := tree.Clone(obj["spec"])
		spec["terminationGracePeriodSeconds"] = int64(1)
		obj["spec"] = spec
	}
	return nil
}
