package commands

import (
	"errors"
	"fmt"
	"io"
	"os"
	"sort"
	"strconv"
	"strings"

	"github.com/quorate/quorate/internal/cli"
	"github.com/spf13/pflag"
	"sigs.k8s.io/yaml"
)

const envPrefix = "QUORATE_"

// origin says where a setting came from.
type origin string

const (
	fromDefault origin = "default"
	fromFile    origin = "file"
	fromEnv     origin = "environment"
	fromFlag    origin = "flag"
)

// resolve fills in, for each flag that was not given, what the environment or
// the file says, and returns the origin of every setting. Unknown keys in the
// file and unknown variables with our prefix are errors: a misspelt setting must
// not pass for a default.
func resolve(f *pflag.FlagSet, file string, stdin io.Reader, env []string) (map[string]origin, error) {
	origins := map[string]origin{}
	f.VisitAll(func(flag *pflag.Flag) {
		origins[flag.Name] = fromDefault
		if flag.Changed {
			origins[flag.Name] = fromFlag
		}
	})
	set := func(name, value string, from origin, where string) error {
		if origins[name] == fromFlag || origins[name] == fromEnv {
			return nil
		}
		if err := f.Set(name, value); err != nil {
			return fmt.Errorf("%s: %s: %s: %s", where, name, value, cli.InvalidValue(f.Lookup(name), err))
		}
		origins[name] = from
		return nil
	}
	var errs []error
	for _, e := range env {
		key, value, _ := strings.Cut(e, "=")
		if !strings.HasPrefix(key, envPrefix) {
			continue
		}
		name := strings.ReplaceAll(strings.ToLower(strings.TrimPrefix(key, envPrefix)), "_", "-")
		if name == "config" {
			continue
		}
		if f.Lookup(name) == nil {
			errs = append(errs, fmt.Errorf("environment: %s: there is no setting %q%s", key, name, nearSetting(f, name, environmentName)))
			continue
		}
		if value != "" {
			errs = append(errs, set(name, value, fromEnv, "environment"))
		}
	}
	values, err := readConfigFile(file, stdin)
	if err != nil {
		return nil, err
	}
	for _, name := range sortedKeys(values) {
		if f.Lookup(name) == nil {
			errs = append(errs, fmt.Errorf("%s: there is no setting %q%s", file, name, nearSetting(f, name, func(s string) string { return s })))
			continue
		}
		errs = append(errs, set(name, values[name], fromFile, file))
	}
	return origins, errors.Join(errs...)
}

// nearSetting is the end of an error about an unknown setting: the nearest one, if one is
// near, as it is written there.
func nearSetting(f *pflag.FlagSet, name string, written func(string) string) string {
	var names []string
	f.VisitAll(func(flag *pflag.Flag) { names = append(names, flag.Name) })
	if name = cli.Nearest(name, names); name == "" {
		return ""
	}
	return "; did you mean " + written(name) + "?"
}

func environmentName(setting string) string {
	return envPrefix + strings.ToUpper(strings.ReplaceAll(setting, "-", "_"))
}

// maxConfigBytes bounds the configuration file.
const maxConfigBytes = 1 << 20

// readConfigFile returns the file's settings as flags would be given; "-" reads
// standard input, "" is no file.
func readConfigFile(file string, stdin io.Reader) (map[string]string, error) {
	if file == "" {
		return nil, nil
	}
	in := stdin
	if file != "-" {
		f, err := os.Open(file)
		if err != nil {
			return nil, fmt.Errorf("configuration: %w", err)
		}
		defer f.Close()
		in = f
	}
	b, err := io.ReadAll(io.LimitReader(in, maxConfigBytes+1))
	if err != nil {
		return nil, fmt.Errorf("configuration %s: %w", file, err)
	}
	if len(b) > maxConfigBytes {
		return nil, fmt.Errorf("configuration %s: larger than %d bytes", file, maxConfigBytes)
	}
	return parseConfig(b, file)
}

// parseConfig reads a configuration file's content; file is its name in errors.
func parseConfig(b []byte, file string) (map[string]string, error) {
	var raw map[string]any
	if err := yaml.UnmarshalStrict(b, &raw); err != nil {
		return nil, fmt.Errorf("configuration %s: %w", file, err)
	}
	out := map[string]string{}
	for _, name := range sortedKeys(raw) {
		var ok bool
		switch v := raw[name].(type) {
		case []any:
			parts := make([]string, len(v))
			for i, p := range v {
				if parts[i], ok = scalar(p); !ok {
					return nil, fmt.Errorf("configuration %s: %s: item %d: a value is needed", file, name, i+1)
				}
			}
			out[name] = strings.Join(parts, ",")
		default:
			if out[name], ok = scalar(v); !ok {
				return nil, fmt.Errorf("configuration %s: %s: a value or a list is needed", file, name)
			}
		}
	}
	return out, nil
}

// scalar is a value as it would be given to a flag. YAML's numbers arrive as
// float64.
func scalar(v any) (string, bool) {
	switch v := v.(type) {
	case string:
		return v, true
	case bool:
		return strconv.FormatBool(v), true
	case float64:
		return strconv.FormatFloat(v, 'f', -1, 64), true
	}
	return "", false
}

func sortedKeys[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	sort.Strings(keys)
	return keys
}
