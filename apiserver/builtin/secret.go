package builtin

import (
	"encoding/base64"
	"encoding/json"
	"maps"

	"github.com/quorate/quorate/apiserver/objects"
	"github.com/quorate/quorate/apiserver/tree"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

var secretStrategy = objects.Strategy{Complete: mergeStringData, Validate: validateSecret, Warnings: warningsOf(warningsForSecret)}

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

// requiredSecretKeys are the keys that a Secret of a type must have.
var requiredSecretKeys = map[string][]string{
	"kubernetes.io/dockercfg":        {".dockercfg"},
	"kubernetes.io/dockerconfigjson": {".dockerconfigjson"},
	"kubernetes.io/tls":              {"tls.crt", "tls.key"},
}

func validateSecret(obj, _ tree.Object) field.ErrorList {
	data, path := tree.As(obj["data"]), field.NewPath("data")
	var errs field.ErrorList
	kind := tree.Text(obj, "type")
	errs = append(errs, validateDataKeys("data", data)...)
	size := 0
	for _, v := range data {
		s, _ := v.(string)
		size += decodedLen(s)
	}
	if size > maxData {
		errs = append(errs, field.TooLong(path, "", maxData))
	}
	for _, key := range requiredSecretKeys[kind] {
		if _, ok := data[key]; !ok {
			errs = append(errs, field.Required(path.Key(key), ""))
		} else if kind != "kubernetes.io/tls" {
			errs = append(errs, validateRegistryCredentials(path.Key(key), data[key])...)
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

// validateRegistryCredentials checks the content of a registry's credentials.
func validateRegistryCredentials(path *field.Path, v any) field.ErrorList {
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
