package builtin

import (
	"encoding/base64"
	"maps"
	"slices"
	"strings"

	"github.com/quorate/quorate/apiserver/objects"
	"github.com/quorate/quorate/apiserver/tree"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

var configMapStrategy = objects.Strategy{Validate: validateConfigMap}

// maxData is what a ConfigMap or a Secret may hold, in bytes without base64.
const maxData = 1 << 20

// plainDataKey accepts the keys that nearly all have, without the library's regular
// expression.
func plainDataKey(s string) bool {
	if s == "" || len(s) > 253 || s[0] == '.' {
		return false
	}
	for i := range len(s) {
		c := s[i]
		if (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && c != '-' && c != '_' && c != '.' {
			return false
		}
	}
	return true
}

// validateDataKeys checks the keys of a field of a ConfigMap or a Secret.
func validateDataKeys(name string, data tree.Object) (errs field.ErrorList) {
	for key := range data {
		if plainDataKey(key) {
			continue
		}
		for _, msg := range validation.IsConfigMapKey(key) {
			errs = append(errs, field.Invalid(field.NewPath(name).Key(key), key, msg))
		}
	}
	slices.SortFunc(errs, func(a, b *field.Error) int { return strings.Compare(a.Field, b.Field) })
	return errs
}

// decodedLen is the length of what base64 text stands for.
func decodedLen(s string) int {
	n := base64.StdEncoding.DecodedLen(len(s))
	for i := len(s) - 1; i >= 0 && s[i] == '='; i-- {
		n--
	}
	return n
}

func validateConfigMap(obj, _ tree.Object) field.ErrorList {
	data, binary := tree.As(obj["data"]), tree.As(obj["binaryData"])
	errs := validateDataKeys("data", data)
	size := 0
	for _, v := range data {
		s, _ := v.(string)
		size += len(s)
	}
	for _, key := range slices.Sorted(maps.Keys(binary)) {
		if _, twice := data[key]; twice {
			errs = append(errs, field.Invalid(field.NewPath("data").Key(key), key, "duplicate of key present in binaryData"))
		}
		s, _ := binary[key].(string)
		size += decodedLen(s)
	}
	errs = append(errs, validateDataKeys("binaryData", binary)...)
	if size > maxData {
		errs = append(errs, field.TooLong(field.NewPath(""), "", maxData))
	}
	return errs
}
