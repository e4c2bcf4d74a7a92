package apiserver

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/quorate/quorate/apiserver/codec"
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
	{"NamespaceFinalizersRemaining", "ContentRemoved", "All content successfully removed"},
}

// failure is the reason and the message of a condition that holds, or "". What
// clients would find out by discovery and parsing, we know.
func (left *content) failure(kind string) (reason, message string) {
	switch {
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
		return "SomeFinalizerRemain", "Some finalizers are remaining: " + counted(left.finalizers, "%s in %d resource instances")
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
func (s *Server) noteContent(ctx context.Context, namespace, uid string, left *content) error {
	res, err := s.namespaces()
	if err != nil {
		return err
	}
	c := s.internal(ctx, res, "", namespace, "update")
	_, err = c.mutate(c.key(), func(cur *mvcc.Version) (change, error) {
		if cur == nil || cur.UID != uid {
			return change{}, c.notFound()
		}
		old, err := codec.DecodeStored(res, cur)
		if err != nil {
			return change{}, err
		}
		obj, _, err := shallow(old)
		if err != nil {
			return change{}, err
		}
		state := maps.Clone(asTree(obj["status"]))
		if state == nil {
			state = tree{}
		}
		before, _ := state["conditions"].([]any)
		state["conditions"] = left.conditions(before, timestamp(s.cfg.Now()))
		obj["status"] = state
		return c.putUnlessSame(obj, cur)
	})
	return err
}

// conditions returns the conditions of a namespace in place of those that it has.
// The time of one changes with its status only.
func (left *content) conditions(before []any, now string) []any {
	out := slices.Clone(before)
	for _, k := range nsConditions {
		next := tree{"type": k.kind, "status": "False", "reason": k.reason, "message": k.message, "lastTransitionTime": now}
		if reason, message := left.failure(k.kind); reason != "" {
			next["status"], next["reason"], next["message"] = "True", reason, message
		}
		i := slices.IndexFunc(out, func(v any) bool { return text(asTree(v), "type") == k.kind })
		if i < 0 {
			out = append(out, next)
			continue
		}
		if was := asTree(out[i]); text(was, "status") == text(next, "status") {
			next["lastTransitionTime"] = was["lastTransitionTime"]
		}
		out[i] = next
	}
	return out
}
