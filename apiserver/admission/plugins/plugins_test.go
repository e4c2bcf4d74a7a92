package plugins

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/quorate/quorate/apiserver/access/auth"
	"github.com/quorate/quorate/apiserver/admission/suspension"
	"github.com/quorate/quorate/apiserver/types/kinds"
	"github.com/quorate/quorate/internal/must"
	"github.com/quorate/quorate/raftstore/memstore"
)

// TestTable: the names, their order and the defaults are kube-apiserver's.
func TestTable(t *testing.T) {
	want := upstreamPlugins(t)
	for i, p := range want {
		if p.name == "NodeRestriction" {
			want[i].on = true // table.go says why
		}
	}
	for i, p := range want {
		if i >= len(table) || table[i].name != p.name || table[i].on != p.on {
			t.Fatalf("row %d of table in table.go must begin with {name: %q, on: %t", i, p.name, p.on)
		}
	}
	for _, p := range table[len(want):] {
		t.Errorf("%s in table.go: kube-apiserver has no such plugin", p.name)
	}
	for _, p := range table {
		if (p.make != nil) == (p.reason != "") {
			t.Errorf("%s in table.go: want make, or a reason why the plugin is not there, and not both", p.name)
		}
	}
}

// TestDocs: the operator's table has the same names and defaults, in the same order.
func TestDocs(t *testing.T) {
	raw, err := os.ReadFile("../../../docs/operations.md")
	must.OK(t, err)
	_, section, ok := strings.Cut(string(raw), "\n### Admission\n")
	if !ok {
		t.Fatal("there is no section Admission")
	}
	section, _, _ = strings.Cut(section, "\n### ")
	var rows []string
	for line := range strings.Lines(section) {
		if strings.HasPrefix(line, "| `") {
			rows = append(rows, strings.TrimSpace(line))
		}
	}
	for i, p := range table {
		on := "off"
		if p.on {
			on = "on"
		}
		want := fmt.Sprintf("| `%s` | %s | ", p.name, on)
		if p.reason != "" {
			want += "nothing here: " + p.reason + " |"
		}
		if i >= len(rows) || !strings.HasPrefix(rows[i], want) {
			t.Fatalf("docs/operations.md, Admission: row %d must begin with %q: the rows of table.go in their order", i, want)
		}
		if strings.Contains(rows[i], "nothing here") != (p.reason != "") {
			t.Errorf("docs/operations.md, Admission: only rows of plugins with a reason in table.go say \"nothing here\": %s", rows[i])
		}
	}
	if len(rows) != len(table) {
		t.Errorf("docs/operations.md, Admission: %d rows, and table.go has %d", len(rows), len(table))
	}
}

// withoutStory are plugins that no story can tell of, and why.
var withoutStory = map[string]string{
	"AlwaysDeny": "kube-apiserver does not start with it: its own priority classes are refused",
}

// TestStories: of each plugin that does something a story tells how kube-apiserver answers
// (package test/system/golden).
func TestStories(t *testing.T) {
	files, err := filepath.Glob("../../../test/system/golden/testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("there are no stories: %v", err)
	}
	told := map[string]string{}
	for _, file := range files {
		text, err := os.ReadFile(file)
		must.OK(t, err)
		for line := range strings.Lines(string(text)) {
			names, ok := strings.CutPrefix(line, "@plugins ")
			if !ok {
				continue
			}
			for _, name := range strings.Fields(names) {
				told[name] = file
				if !slices.ContainsFunc(table, func(p plugin) bool { return p.name == name && p.make != nil }) {
					t.Errorf("%s: no plugin %s does anything", file, name)
				}
			}
		}
	}
	for _, p := range table {
		if p.make != nil && (told[p.name] == "") == (withoutStory[p.name] == "") {
			t.Errorf("%s: want a story in test/system/golden/testdata with the line @plugins %s, or a reason in withoutStory why there is none, and not both", p.name, p.name)
		}
	}
}

func TestCheck(t *testing.T) {
	for _, c := range []struct {
		name            string
		enable, disable []string
		unknown         bool
		want            string
	}{
		{"nothing", nil, nil, false, ""},
		{"known names", []string{"EventRateLimit", "AlwaysDeny"}, []string{"LimitRanger"}, false, ""},
		{"the default ones", []string{"LimitRanger"}, nil, false, ""},
		{"an unknown name", []string{"LimitRange"}, nil, true, `enable-admission-plugins: no such admission plugin: "LimitRange"; there are AlwaysAdmit, `},
		{"an unknown name that is off", nil, []string{"limitranger"}, true, `disable-admission-plugins: no such admission plugin: "limitranger"; there are AlwaysAdmit, `},
		{"a name that is on and off", []string{"LimitRanger"}, []string{"LimitRanger"}, false, `enable-admission-plugins and disable-admission-plugins both name "LimitRanger"`},
	} {
		err := Check(c.enable, c.disable)
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.HasPrefix(err.Error(), c.want)) || errors.Is(err, ErrUnknown) != c.unknown {
			t.Errorf("%s: %v", c.name, err)
		}
	}
	if err := Check([]string{"A"}, []string{"B"}); strings.Count(err.Error(), "no such admission plugin") != 2 {
		t.Errorf("not all mistakes are told: %v", err)
	}
}

const (
	fileHead = "apiVersion: apiserver.config.k8s.io/v1\nkind: AdmissionConfiguration\nplugins:\n"
	rates    = "apiVersion: eventratelimit.admission.k8s.io/v1alpha1\nkind: Configuration\nlimits: [{type: Server, qps: 1, burst: 1}]\n"
)

// write makes files in a directory of the test, and returns the path of config.yaml.
func write(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		must.OK(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	return filepath.Join(dir, "config.yaml")
}

func TestReadFile(t *testing.T) {
	for _, c := range []struct {
		name  string
		files map[string]string
		got   string // of EventRateLimit
		want  string // error
	}{
		{"within", map[string]string{"config.yaml": fileHead + "- {name: EventRateLimit, configuration: {a: b}}"}, `{"a":"b"}`, ""},
		{"beside, relative to the file", map[string]string{"config.yaml": fileHead + "- {name: EventRateLimit, path: rates.yaml}", "rates.yaml": rates}, rates, ""},
		{"within wins over beside", map[string]string{"config.yaml": fileHead + "- {name: EventRateLimit, path: missing.yaml, configuration: {a: b}}"}, `{"a":"b"}`, ""},
		{"alpha", map[string]string{"config.yaml": strings.Replace(fileHead, "apiserver.config.k8s.io/v1", "apiserver.k8s.io/v1alpha1", 1) + "- {name: EventRateLimit, configuration: {a: b}}"}, `{"a":"b"}`, ""},
		{"nothing to say", map[string]string{"config.yaml": fileHead + "- {name: EventRateLimit}"}, "", ""},
		{"no plugins", map[string]string{"config.yaml": "apiVersion: apiserver.config.k8s.io/v1\nkind: AdmissionConfiguration"}, "", ""},
		{"missing", nil, "", "config.yaml: no such file or directory"},
		{"broken", map[string]string{"config.yaml": "a: [b"}, "", "config.yaml: "},
		{"empty", map[string]string{"config.yaml": ""}, "", "Object 'Kind' is missing"},
		{"another kind", map[string]string{"config.yaml": rates}, "", `it is of another kind, want an AdmissionConfiguration of apiserver.config.k8s.io/v1`},
		{"another kind of the same group", map[string]string{"config.yaml": "apiVersion: apiserver.config.k8s.io/v1\nkind: EncryptionConfiguration"}, "", "want an AdmissionConfiguration of apiserver.config.k8s.io/v1"},
		{"an unknown field", map[string]string{"config.yaml": fileHead + "- {name: EventRateLimit, Path: x}"}, "", `unknown field "plugins[0].Path"`},
		{"an unknown plugin", map[string]string{"config.yaml": fileHead + "- {name: RateLimit}"}, "", `no such admission plugin: "RateLimit"`},
		{"a plugin twice", map[string]string{"config.yaml": fileHead + "- {name: EventRateLimit}\n- {name: EventRateLimit}"}, "", `plugin "EventRateLimit" is there twice`},
		{"a path to nothing", map[string]string{"config.yaml": fileHead + "- {name: EventRateLimit, path: missing.yaml}"}, "", "missing.yaml: no such file or directory"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := readFile(write(t, c.files))
			if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
				t.Fatalf("%v, want %q", err, c.want)
			}
			if string(got["EventRateLimit"]) != c.got {
				t.Errorf("%q, want %q", got["EventRateLimit"], c.got)
			}
		})
	}
	if got, err := readFile(""); got != nil || err != nil {
		t.Errorf("without a file: %v, %v", got, err)
	}
}

// TestAbsolute: an absolute path is taken as it is.
func TestAbsolute(t *testing.T) {
	beside := write(t, map[string]string{"config.yaml": rates})
	got, err := readFile(write(t, map[string]string{"config.yaml": fileHead + "- {name: EventRateLimit, path: " + beside + "}"}))
	if err != nil || string(got["EventRateLimit"]) != rates {
		t.Errorf("%q %v", got, err)
	}
}

// loaded is what a configuration makes, as Config.Loaded is told.
func loaded(t *testing.T, c Config) (Loaded, string, error) {
	t.Helper()
	var logged bytes.Buffer
	var out Loaded
	mem := memstore.New()
	t.Cleanup(func() { mem.Close() })
	c.Store, c.Log, c.Loaded = mem, slog.New(slog.NewTextHandler(&logged, nil)), func(l Loaded) { out = l }
	c.Kinds = func() *kinds.Registry { return nil }
	c.Suspensions = suspension.NewView(mem, time.Now, c.Log)
	c.Authorizer = auth.AuthorizerFunc(nil)
	_, err := New(c)
	return out, logged.String(), err
}

func TestNew(t *testing.T) {
	rated := write(t, map[string]string{"config.yaml": fileHead + "- {name: EventRateLimit, path: rates.yaml}", "rates.yaml": rates})
	bad := write(t, map[string]string{"config.yaml": fileHead + "- {name: EventRateLimit, configuration: {kind: Configuration, apiVersion: eventratelimit.admission.k8s.io/v1alpha1}}"})
	for _, c := range []struct {
		name     string
		cfg      Config
		has, not string
		want     string
	}{
		{"by default", Config{}, "DefaultStorageClass StorageObjectInUseProtection", "EventRateLimit DenyServiceExternalIPs", ""},
		{"enabled", Config{Enable: []string{"DenyServiceExternalIPs"}}, "DenyServiceExternalIPs DefaultStorageClass", "EventRateLimit", ""},
		{"disabled", Config{Disable: []string{"DefaultStorageClass"}}, "DefaultIngressClass", "DefaultStorageClass", ""},
		{"enabled, with its configuration", Config{Enable: []string{"EventRateLimit"}, File: rated}, "EventRateLimit", "", ""},
		{"off, with a configuration", Config{File: bad}, "DefaultStorageClass", "EventRateLimit", ""},
		{"enabled without its configuration", Config{Enable: []string{"EventRateLimit"}}, "", "", "admission plugin EventRateLimit: couldn't init admission plugin \"EventRateLimit\": limits: Invalid value: null: must not be empty"},
		{"enabled with a bad configuration", Config{Enable: []string{"EventRateLimit"}, File: bad}, "", "", "admission plugin EventRateLimit: couldn't init admission plugin \"EventRateLimit\": limits"},
		{"an unknown name", Config{Enable: []string{"A"}}, "", "", "enable-admission-plugins: no such admission plugin"},
		{"a file that is missing", Config{File: "missing.yaml"}, "", "", "admission configuration: open missing.yaml"},
	} {
		t.Run(c.name, func(t *testing.T) {
			l, _, err := loaded(t, c.cfg)
			if c.want != "" {
				if err == nil || !strings.HasPrefix(err.Error(), c.want) {
					t.Errorf("%v, want %q", err, c.want)
				}
				return
			}
			must.OK(t, err)
			for _, name := range strings.Fields(c.has) {
				if !slices.Contains(l.Plugins, name) {
					t.Errorf("%s is not in %q", name, l.Plugins)
				}
			}
			for _, name := range strings.Fields(c.not) {
				if slices.Contains(l.Plugins, name) {
					t.Errorf("%s is in %q", name, l.Plugins)
				}
			}
		})
	}
}

// TestLoaded: settings that decide otherwise have another hash, and the log names the plugins in
// their order.
func TestLoaded(t *testing.T) {
	file := func(limit string) string {
		return write(t, map[string]string{"config.yaml": fileHead + "- {name: EventRateLimit, path: rates.yaml}", "rates.yaml": strings.Replace(rates, "burst: 1", limit, 1)})
	}
	enabled := []string{"EventRateLimit"}
	hashes := map[string]string{}
	for name, c := range map[string]Config{
		"default": {}, "enabled": {Enable: enabled, File: file("burst: 1")}, "other limit": {Enable: enabled, File: file("burst: 2")},
		"disabled": {Disable: []string{"DefaultStorageClass"}},
	} {
		l, logged, err := loaded(t, c)
		must.OK(t, err)
		if other, same := hashes[l.Hash]; same || l.Hash == "" {
			t.Errorf("%s and %s have the hash %q", name, other, l.Hash)
		}
		hashes[l.Hash] = name
		if name == "default" && !strings.Contains(logged, "DefaultStorageClass,StorageObjectInUseProtection,") {
			t.Errorf("the log has %s", logged)
		}
	}
	// What is enabled by default, and a file for what is off, make no difference.
	for name, c := range map[string]Config{"named": {Enable: []string{"DefaultStorageClass"}}, "unused": {File: file("burst: 1")}} {
		l, logged, err := loaded(t, c)
		if err != nil || hashes[l.Hash] != "default" {
			t.Errorf("%s: %v, the hash is of %q", name, err, hashes[l.Hash])
		}
		if strings.Contains(logged, "is off: what the file says to it has no effect") != (name == "unused") {
			t.Errorf("%s: the log has %s", name, logged)
		}
	}
}

func FuzzFile(f *testing.F) {
	f.Add([]byte(fileHead + "- {name: EventRateLimit, path: rates.yaml}"))
	f.Add([]byte(fileHead + "- {name: PodSecurity, configuration: {a: b}}"))
	f.Add([]byte(`{"kind":"AdmissionConfiguration","apiVersion":"apiserver.config.k8s.io/v1","plugins":[{"name":"PodSecurity"}]}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		got, err := parseFile(raw)
		if err != nil {
			return
		}
		for i, p := range got {
			if !slices.ContainsFunc(table, func(x plugin) bool { return x.name == p.Name }) {
				t.Fatalf("plugin %q", p.Name)
			}
			for _, q := range got[:i] {
				if p.Name == q.Name {
					t.Fatalf("%q twice", p.Name)
				}
			}
		}
	})
}
