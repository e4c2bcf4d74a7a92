package sim

import (
	"encoding/json"
	"strconv"
	"strings"

	"github.com/quorate/quorate/test/judges/history"
	"github.com/quorate/quorate/test/judges/wire"
)

func itemOf(o *wire.Object) history.Item {
	return history.Item{
		Key:      o.Metadata.Namespace + "/" + o.Metadata.Name,
		Value:    o.Metadata.Annotations["sim"],
		Revision: o.Revision(),
	}
}

// encode makes the body of a create or an update.
func encode(key, value string, revision uint64) []byte {
	_, name, _ := strings.Cut(key, "/")
	metadata := map[string]any{
		"name":        name,
		"annotations": map[string]string{"sim": value},
		"labels":      map[string]string{"color": wire.Color(value)},
	}
	if revision > 0 {
		metadata["resourceVersion"] = strconv.FormatUint(revision, 10)
	}
	b, err := json.Marshal(map[string]any{"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata})
	if err != nil {
		panic(err) // strings always marshal
	}
	return b
}
