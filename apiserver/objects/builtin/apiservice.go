package builtin

import (
	"time"

	"github.com/quorate/quorate/apiserver/objects"
	"github.com/quorate/quorate/apiserver/types/tree"
)

var apiServiceStrategy = objects.Strategy{ForUser: localIsAvailable}

// localIsAvailable says of a new APIService without a Service that it is available, and of
// another one nothing yet. Nobody owns that: the status is the server's.
func localIsAvailable(o *objects.Op, obj, old tree.Object) error {
	if old != nil {
		return nil
	}
	obj["status"] = tree.Object{}
	if tree.Field(obj, "spec", "service") == nil {
		obj["status"] = tree.Object{"conditions": []any{tree.Object{
			"type": "Available", "status": "True", "lastTransitionTime": o.Store.Now().UTC().Format(time.RFC3339),
			"reason": "Local", "message": "Local APIServices are always available",
		}}}
	}
	return nil
}
