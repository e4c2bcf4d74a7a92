package quota

import (
	"maps"

	"github.com/quorate/quorate/apiserver/types/tree"
	"github.com/quorate/quorate/raftstore/mvcc"
)

// Status is the status of a quota of which so much is used, bound by bound; nil if the one that
// it has says the same, perhaps in another spelling. Without bounds it says what is hard only.
func Status(obj tree.Object, used []mvcc.BoundUse) tree.Object {
	hard, status := tree.As(tree.Field(obj, "spec", "hard")), tree.As(obj["status"])
	uses := tree.Object{}
	if names := Names(hard); len(names) == len(used) {
		for i, name := range names {
			r, _ := ResourceOf(name)
			like, _ := quantityOf(hard[name])
			q := Quantity(r.Amount, used[i].Used, like.Format)
			uses[name] = q.String()
		}
	}
	if sameQuantities(tree.As(status["hard"]), hard) && sameQuantities(tree.As(status["used"]), uses) {
		return nil
	}
	made := maps.Clone(status)
	if made == nil {
		made = tree.Object{}
	}
	delete(made, "hard")
	delete(made, "used")
	if len(hard) > 0 {
		made["hard"] = hard
	}
	if len(uses) > 0 {
		made["used"] = uses
	}
	return made
}

func sameQuantities(a, b tree.Object) bool {
	if len(a) != len(b) {
		return false
	}
	for name, v := range a {
		q, _ := quantityOf(v)
		other, ok := quantityOf(b[name])
		if !ok || q.Cmp(other) != 0 {
			return false
		}
	}
	return true
}
