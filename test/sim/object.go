package sim

import (
	"encoding/json"
	"strconv"
	"strings"
	"time"

	"github.com/quorate/quorate/apiserver"
	"github.com/quorate/quorate/test/history"
)

// object is what the clients read of an object, a Status, a list or an event's
// object.
type object struct {
	Kind     string `json:"kind"`
	Code     int    `json:"code"`
	Reason   string `json:"reason"`
	Message  string `json:"message"`
	Metadata struct {
		Name            string            `json:"name"`
		Namespace       string            `json:"namespace"`
		ResourceVersion string            `json:"resourceVersion"`
		Continue        string            `json:"continue"`
		Annotations     map[string]string `json:"annotations"`
	} `json:"metadata"`
	Items []object `json:"items"`
}

func (o *object) revision() uint64 {
	n, _ := strconv.ParseUint(o.Metadata.ResourceVersion, 10, 64)
	return n
}

func (o *object) item() history.Item {
	return history.Item{
		Key:      o.Metadata.Namespace + "/" + o.Metadata.Name,
		Value:    o.Metadata.Annotations["sim"],
		Revision: o.revision(),
	}
}

// encode makes the body of a create or an update.
func encode(key, value string, revision uint64) []byte {
	_, name, _ := strings.Cut(key, "/")
	metadata := map[string]any{
		"name":        name,
		"annotations": map[string]string{"sim": value},
		"labels":      map[string]string{"color": colorOf(value)},
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

// colorOf is the part of a value that selectors select: values end in it.
func colorOf(value string) string { return value[strings.LastIndexByte(value, '-')+1:] }

var colors = []string{"red", "green", "blue"}

// staleness reads what an answer claims.
func staleness(a answer) *time.Duration {
	ms, err := strconv.ParseInt(a.header.Get(apiserver.HeaderStaleness), 10, 64)
	if err != nil {
		return nil
	}
	// The claim is cut to whole milliseconds.
	d := time.Duration(ms+1) * time.Millisecond
	return &d
}
