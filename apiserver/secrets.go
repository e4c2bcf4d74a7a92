package apiserver

import (
	"encoding/base64"
	"maps"
)

var secretHooks = objectHooks{complete: mergeStringData}

// mergeStringData moves a Secret's stringData, which is there for writing only,
// into data, before anybody owns its fields: whoever writes stringData owns data. A
// key that is in both gets the value of stringData.
func mergeStringData(_ *call, obj, _ tree) error {
	plain, _ := obj["stringData"].(tree)
	delete(obj, "stringData")
	if len(plain) == 0 {
		return nil
	}
	data := tree{}
	if was, ok := obj["data"].(tree); ok {
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
