package kubeapiserver

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/quorate/quorate/internal/must"
	"github.com/quorate/quorate/node"
)

var update = flag.Bool("update", false, "write docs/clients.md and testdata/lines.txt as they should be")

// TestTable: flags.txt, the functions and docs/clients.md agree.
func TestTable(t *testing.T) {
	all, err := parseFlags(flagsText)
	must.OK(t, err)
	names := map[string]bool{}
	for i, f := range all {
		names[f.name] = true
		if i > 0 && f.name <= all[i-1].name {
			t.Errorf("flags.txt: %s must be before %s", f.name, all[i-1].name)
		}
		if f.fate != mapped && f.fate != ignored && f.fate != refused {
			t.Errorf("%s is %q", f.name, f.fate)
		}
		if _, ok := mappers[f.name]; ok != (f.fate == mapped) && f.name != "help" {
			t.Errorf("flags.txt says that %s is %s, and mapped.go has a function for it: %v", f.name, f.fate, ok)
		}
		if f.text == "" || f.fate != refused && len(f.harmless) > 0 {
			t.Errorf("%s: %q, harmless %q", f.name, f.text, f.harmless)
		}
	}
	for name := range mappers {
		if !names[name] {
			t.Errorf("%s has a function in mapped.go, and no line in flags.txt", name)
		}
	}
	const begin, end = "<!-- flags of kube-apiserver: go test ./internal/kubeapiserver -update -->\n", "<!-- end of flags -->\n"
	var b strings.Builder
	b.WriteString("\n| Flag | Type | What becomes of it | |\n|---|---|---|---|\n")
	for _, f := range all {
		fate := f.fate
		if len(f.harmless) > 0 {
			fate += ", but for `" + strings.Join(f.harmless, "`, `") + "`"
		}
		fmt.Fprintf(&b, "| `--%s` | %s | %s | %s |\n", f.name, f.kind, fate, strings.ReplaceAll(f.text, "|", "\\|"))
	}
	b.WriteString("\n")
	path := "../../docs/clients.md"
	text, err := os.ReadFile(path)
	must.OK(t, err)
	before, rest, ok1 := strings.Cut(string(text), begin)
	is, after, ok2 := strings.Cut(rest, end)
	if !ok1 || !ok2 {
		t.Fatalf("%s has no place for the table", path)
	}
	if is == b.String() {
		return
	}
	if !*update {
		t.Fatalf("the table in %s is another one: go test ./internal/kubeapiserver -update", path)
	}
	must.OK(t, os.WriteFile(path, []byte(before+begin+b.String()+end+after), 0o644))
}

// sample is a value of each type, as upstream writes it; a bool also stands alone.
var sample = map[string][]string{
	"string": {"=x", "="}, "bool": {"", "=false"}, "int": {"=3"}, "int64": {"=3"}, "uint": {"=3"}, "float32": {"=0.5"}, "float64": {"=0.5"},
	"duration": {"=1m30s"}, "ip": {"=10.0.0.1", "=::1"}, "stringSlice": {"=a,b", "="}, "stringArray": {"=a,b"}, "int32Slice": {"=1,2"},
	"stringToString": {"=a=b,c=d"}, "mapStringString": {"=a=b,c=d"}, "colonSeparatedMultimapStringString": {"=A=true,kube:B=false", "="},
	"Level": {"=4"}, "version": {"", "=v1.36.3-x"}, "portRange": {"=30000-32767"}, "quantity": {"=64Ki"}, "pattern=N,...": {"=a=1,b=2"},
	"namedCertKey": {"=a.crt,a.key:x"},
}

// TestTypes: each flag takes values of its type, and no others.
func TestTypes(t *testing.T) {
	all, err := parseFlags(flagsText)
	must.OK(t, err)
	for _, f := range all {
		if f.name == "help" {
			continue
		}
		for _, v := range sample[f.kind] {
			if f.name == "runtime-config" && v == "=a=b,c=d" {
				v = "=api/all=true,api/v1"
			}
			o := New()
			if err := o.Flags().Parse([]string{"--" + f.name + v}); err != nil || !o.Flags().Changed(f.name) {
				t.Errorf("--%s%s: %v", f.name, v, err)
			}
		}
		if len(sample[f.kind]) == 0 {
			t.Errorf("--%s: no value of type %s here", f.name, f.kind)
		}
		switch f.kind {
		case "bool", "int", "int64", "uint", "float32", "float64", "duration", "ip", "int32Slice", "Level":
			if New().Flags().Parse([]string{"--" + f.name + "=x"}) == nil {
				t.Errorf("--%s=x is taken", f.name)
			}
		}
		if f.kind != "bool" && f.kind != "version" && New().Flags().Parse([]string{"--" + f.name}) == nil {
			t.Errorf("--%s is taken without a value", f.name)
		}
	}
}

// TestComplete holds flags.txt against the real program, if it is there (make peers): it knows each flag, with the type
// that its help shows, and shows no other.
func TestComplete(t *testing.T) {
	program, err := filepath.Abs("../../bin/kube-apiserver")
	must.OK(t, err)
	if _, err := os.Stat(program); err != nil {
		t.Skipf("%v: make peers", err)
	}
	help, err := exec.Command(program, "--help").CombinedOutput()
	must.OK(t, err)
	all, err := parseFlags(flagsText)
	must.OK(t, err)
	shown := map[string]string{}
	for _, m := range regexp.MustCompile(`(?m)^ +(?:-\w, )?--([a-z0-9-]+)(?: (\S+))?  `).FindAllStringSubmatch(string(help), -1) {
		shown[m[1]] = m[2]
	}
	if len(shown) < 100 {
		t.Fatalf("its help shows %d flags", len(shown))
	}
	var hidden []string
	for _, f := range all {
		as, ok := shown[f.name]
		delete(shown, f.name)
		if !ok {
			hidden = append(hidden, "--"+f.name+sample[f.kind][0])
			continue
		}
		want := map[string]string{"bool": "", "stringSlice": "strings", "int64": "int", "float64": "float", "version": "version[=true]"}
		if w, ok := want[f.kind]; !ok && as != f.kind || ok && as != w {
			t.Errorf("--%s is %q, here %s", f.name, as, f.kind)
		}
	}
	for name := range shown {
		t.Errorf("--%s is missing", name)
	}
	// Flags that its help does not show are taken all the same.
	if out, err := exec.Command(program, append(hidden, "--version")...).CombinedOutput(); err != nil {
		t.Errorf("%s: %v\n%s", hidden, err, out)
	}
}

// TestLines: what command lines of tools, and single flags, come to. testdata/lines.txt has each, and
// below it the settings that they change, the lines in the log (-) and what is refused (!).
func TestLines(t *testing.T) {
	const path = "testdata/lines.txt"
	text, err := os.ReadFile(path)
	must.OK(t, err)
	var got strings.Builder
	for line := range strings.Lines(string(text)) {
		if strings.HasPrefix(line, "#") || line == "\n" {
			got.WriteString(line)
		}
		if args, ok := strings.CutPrefix(line, "$"); ok {
			got.WriteString(line)
			got.WriteString(outcome(strings.Fields(args)))
		}
	}
	if got.String() == string(text) {
		return
	}
	if !*update {
		t.Fatalf("%s says something else; if that is meant: go test ./internal/kubeapiserver -update\n%s", path, cmp.Diff(string(text), got.String()))
	}
	must.OK(t, os.WriteFile(path, []byte(got.String()), 0o644))
}

func outcome(args []string) string {
	o := New()
	if err := o.Flags().Parse(args); err != nil {
		return "! " + err.Error() + "\n"
	}
	notes, err := o.complete()
	var b strings.Builder
	was := New()
	if _, err := was.complete(); err != nil {
		return "! " + err.Error() + "\n"
	}
	for _, line := range changed(was.config, o.config) {
		b.WriteString("  " + line + "\n")
	}
	for _, note := range notes {
		b.WriteString("- " + note + "\n")
	}
	if err != nil {
		for line := range strings.Lines(err.Error()) {
			b.WriteString("! " + strings.TrimSuffix(line, "\n") + "\n")
		}
	}
	return b.String()
}

// changed are the settings that are others than before.
func changed(was, is node.Config) (out []string) {
	a, b := reflect.ValueOf(was), reflect.ValueOf(is)
	for i := range a.NumField() {
		name := a.Type().Field(i).Name
		switch a.Field(i).Kind() {
		case reflect.Func, reflect.Pointer, reflect.Interface:
			continue
		}
		if name == "APIAdvertise" && strings.HasPrefix(is.APIListen, "0.0.0.0:") && !slices.Contains([]string{"192.0.2.1:6443"}, is.APIAdvertise) {
			continue // of this host
		}
		if x, y := fmt.Sprint(a.Field(i)), fmt.Sprint(b.Field(i)); x != y {
			out = append(out, name+": "+y)
		}
	}
	return out
}
