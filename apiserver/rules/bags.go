package rules

import (
	"encoding/base64"
	"encoding/json"
	"maps"
	"slices"

	"github.com/quorate/quorate/apiserver/tree"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// maxData is what a ConfigMap or a Secret may hold, in bytes without base64.
const maxData = 1 << 20

// plainKey accepts the keys that nearly all have, without the library's regular
// expression.
func plainKey(s string) bool {
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

func keys(name string, data tree.Object) (errs field.ErrorList) {
	for key := range data {
		if plainKey(key) {
			continue
		}
		for _, msg := range validation.IsConfigMapKey(key) {
			errs = append(errs, field.Invalid(field.NewPath(name).Key(key), key, msg))
		}
	}
	slices.SortFunc(errs, func(a, b *field.Error) int { return compare(a.Field, b.Field) })
	return errs
}

func compare(a, b string) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return 0
}

// decodedLen is the length of what base64 text stands for.
func decodedLen(s string) int {
	n := base64.StdEncoding.DecodedLen(len(s))
	for i := len(s) - 1; i >= 0 && s[i] == '='; i-- {
		n--
	}
	return n
}

func configMap(obj, _ tree.Object) field.ErrorList {
	data, binary := tree.As(obj["data"]), tree.As(obj["binaryData"])
	errs := keys("data", data)
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
	errs = append(errs, keys("binaryData", binary)...)
	if size > maxData {
		errs = append(errs, field.TooLong(field.NewPath(""), "", maxData))
	}
	return errs
}

// wanted are the keys that a Secret of a type must have.
var wanted = map[string][]string{
	"kubernetes.io/dockercfg":        {".dockercfg"},
	"kubernetes.io/dockerconfigjson": {".dockerconfigjson"},
	"kubernetes.io/tls":              {"tls.crt", "tls.key"},
}

func secret(obj, _ tree.Object) field.ErrorList {
	data, path := tree.As(obj["data"]), field.NewPath("data")
	var errs field.ErrorList
	kind := tree.Text(obj, "type")
	errs = append(errs, keys("data", data)...)
	size := 0
	for _, v := range data {
		s, _ := v.(string)
		size += decodedLen(s)
	}
	if size > maxData {
		errs = append(errs, field.TooLong(path, "", maxData))
	}
	for _, key := range wanted[kind] {
		if _, ok := data[key]; !ok {
			errs = append(errs, field.Required(path.Key(key), ""))
		} else if kind != "kubernetes.io/tls" {
			errs = append(errs, jsonObject(path.Key(key), data[key])...)
		}
	}
	switch kind {
	case "kubernetes.io/service-account-token":
		const name = "kubernetes.io/service-account.name"
		if s, _ := tree.Field(obj, "metadata", "annotations", name).(string); s == "" {
			errs = append(errs, field.Required(field.NewPath("metadata", "annotations").Key(name), ""))
		}
	case "kubernetes.io/basic-auth":
		_, user := data["username"]
		_, password := data["password"]
		if !user && !password {
			errs = append(errs, field.Required(path.Key("username"), ""), field.Required(path.Key("password"), ""))
		}
	case "kubernetes.io/ssh-auth":
		if s, _ := data["ssh-privatekey"].(string); s == "" {
			errs = append(errs, field.Required(path.Key("ssh-privatekey"), ""))
		}
	}
	return errs
}

// jsonObject checks the content of a registry's credentials.
func jsonObject(path *field.Path, v any) field.ErrorList {
	s, _ := v.(string)
	raw, err := base64.StdEncoding.DecodeString(s)
	if err == nil {
		err = json.Unmarshal(raw, &map[string]any{})
	}
	if err != nil {
		return field.ErrorList{field.Invalid(path, "<secret contents redacted>", err.Error())}
	}
	return nil
}
