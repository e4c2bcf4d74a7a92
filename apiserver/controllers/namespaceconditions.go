package controllers

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/quorate/quorate/apiserver/objects"
	"github.com/quorate/quorate/apiserver/types/tree"
	"github.com/quorate/quorate/raftstore/mvcc"
)

// nsCondition is what upstream says of a terminating namespace when all is well.
type nsCondition struct{ kind, reason, message string }

// In the order in which upstream writes them.
var nsConditions = [...]nsCondition{
	{"NamespaceDeletionDiscoveryFailure", "ResourcesDiscovered", "All resources successfully discovered"},
	{"NamespaceDeletionGroupVersionParsingFailure", "ParsedGroupVersions", "All legacy kube types successfully parsed"},
	{"NamespaceDeletionContentFailure", "ContentDeleted", "All content successfully deleted, may be waiting on finalization"},
	{"NamespaceContentRemaining", "ContentRemoved", "All content successfully removed"},
	{"NamespaceFinalizersRemaining", "ContentHasNoFinalizers", "All content-preserving finalizers finished"},
}

// maxMessage bounds the message of a condition: what other servers say is in it.
const maxMessage = 32 << 10

// failure is the reason and the message of a condition that holds, or "". What
// clients would find out by parsing, we know, and by discovery, but for aggregated API servers.
func (left *content) failure(kind string) (reason, message string) {
	switch {
	case kind == "NamespaceDeletionDiscoveryFailure" && len(left.unknown) > 0:
		msgs := make([]string, len(left.unknown))
		for i, gv := range left.unknown {
			msgs[i] = gv + ": stale GroupVersion discovery: " + gv
		}
		return "DiscoveryFailed", fmt.Sprintf("Discovery failed for some groups, %d failing: unable to retrieve the complete list of server APIs: %s", len(msgs), strings.Join(msgs, ", "))
	case kind == "NamespaceDeletionContentFailure" && len(left.errs) > 0:
		msgs := make([]string, len(left.errs))
		for i, err := range left.errs {
			msgs[i] = err.Error()
		}
		slices.Sort(msgs)
		return "ContentDeletionFailed", fmt.Sprintf("Failed to delete all resource types, %d remaining: %s", len(msgs), strings.Join(msgs, ", "))
	case kind == "NamespaceContentRemaining" && len(left.resources) > 0:
		return "SomeResourcesRemain", "Some resources are remaining: " + counted(left.resources, "%s has %d resource instances")
	case kind == "NamespaceFinalizersRemaining" && len(left.finalizers) > 0:
		return "SomeFinalizersRemain", "Some content in the namespace has finalizers remaining: " + counted(left.finalizers, "%s in %d resource instances")
	}
	return "", ""
}

func counted(counts map[string]int, format string) string {
	var out []string
	for name, n := range counts {
		out = append(out, fmt.Sprintf(format, name, n))
	}
	slices.Sort(out)
	return strings.Join(out, ", ")
}

// noteContent says in the status of a namespace what is left in it.
func (e *emptier) noteContent(ctx context.Context, namespace, uid string, left *content) error {
	res, err := namespacesOf(e.objects)
	if err != nil {
		return err
	}
	o := e.objects.System(ctx, res, "", namespace, "update")
	_, err = o.GuaranteedUpdate(o.Key(), func(cur *mvcc.Version) (objects.Change, error) {
		if cur == nil || cur.UID != uid {
			return objects.Change{}, o.NotFound()
		}
		_, obj, _, err := o.Editable(cur)
		if err != nil {
			return objects.Change{}, err
		}
		state := tree.Clone(obj["status"])
		state["conditions"] = left.conditions(state["conditions"], e.objects.Now())
		obj["status"] = state
		return o.PutUnlessSame(obj, cur)
	})
	return err
}

// conditions returns the conditions of a namespace in place of those that it has.
func (left *content) conditions(has any, now time.Time) []any {
	for _, k := range nsConditions {
		next := tree.Object{"type": k.kind, "status": "False", "reason": k.reason, "message": k.message}
		if reason, message := left.failure(k.kind); reason != "" {
			next["status"], next["reason"], next["message"] = "True", reason, strings.ToValidUTF8(fmt.Sprintf("%.*s", maxMessage, message), "")
		}
		has = tree.SetCondition(has, next, now)
	}
	return tree.List(has)
}
