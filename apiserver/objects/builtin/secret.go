package builtin

import (
	"encoding/base64"
	"maps"

	"github.com/quorate/quorate/apiserver/objects"
	"github.com/quorate/quorate/apiserver/types/tree"
)

var secretStrategy = objects.Strategy{Complete: mergeStringData}

// mergeStringData moves a Secret's stringData, which is there for writing only,
// into data, before anybody owns its fields: a manager that writes stringData owns data. A
// key that is in both gets the value of stringData.
func mergeStringData(_ *objects.Op, obj, _ tree.Object) error {
	plain, _ := obj["stringData"].(tree.Object)
	delete(obj, "stringData")
	if len(plain) == 0 {
		return nil
	}
	data := tree.Object{}
	if was, ok := obj["data"].(tree.Object); ok {
		maps.Copy(data, was)
	}
	for key, value := range plain {
		if s, ok := value.(string); ok {
			data[key] = base64.StdEncoding.EncodeToString([]byte(s))
		}
	}
	obj["data"] = data
	return nil
}
