package upstream

import (
	"bytes"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/quorate/quorate/internal/facts"
	"github.com/quorate/quorate/internal/must"
	"sigs.k8s.io/yaml"
)

var update = flag.Bool("update", false, "write what upstream says now")

// classesFile has the stability classes of upstream's families.
const classesFile = "../../../apiserver/observe/metrics/classes.txt"

// TestMetricClasses: classes and deprecations of families are those that upstream documents.
func TestMetricClasses(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(facts.Sources(t, "k8s.io/kubernetes"), "test", "instrumentation", "documentation", "documentation-list.yaml"))
	must.OK(t, err)
	var documented []struct {
		Name, Subsystem, Namespace string
		StabilityLevel             string
		DeprecatedVersion          string
		ComponentEndpoints         []struct{ Component string }
	}
	must.OK(t, yaml.Unmarshal(text, &documented))
	lines := map[string]string{}
	for _, m := range documented {
		ours := len(m.ComponentEndpoints) == 0 // of libraries
		for _, e := range m.ComponentEndpoints {
			ours = ours || e.Component == "kube-apiserver"
		}
		if !ours {
			continue
		}
		name := strings.Join(slices.DeleteFunc([]string{m.Namespace, m.Subsystem, m.Name}, func(s string) bool { return s == "" }), "_")
		lines[name] = strings.TrimSpace(fmt.Sprintf("%s %s %s", name, m.StabilityLevel, m.DeprecatedVersion))
	}
	var want bytes.Buffer
	fmt.Fprintln(&want, "# Stability classes of the families of kube-apiserver, and since when they are deprecated; `go test ./test/judges/upstream -run MetricClasses -update` writes it.")
	for _, name := range slices.Sorted(maps.Keys(lines)) {
		fmt.Fprintln(&want, lines[name])
	}
	if *update {
		must.OK(t, os.WriteFile(classesFile, want.Bytes(), 0o644))
	}
	got, err := os.ReadFile(classesFile)
	must.OK(t, err)
	if !bytes.Equal(got, want.Bytes()) {
		t.Errorf("%s is not what upstream documents; -update writes it:\n%s", classesFile, onlyInOne(string(got), want.String()))
	}
}

// onlyInOne is the lines that only one of two texts has.
func onlyInOne(got, want string) string {
	var out strings.Builder
	a, b := strings.Split(got, "\n"), strings.Split(want, "\n")
	for _, l := range a {
		if !slices.Contains(b, l) {
			fmt.Fprintln(&out, "-", l)
		}
	}
	for _, l := range b {
		if !slices.Contains(a, l) {
			fmt.Fprintln(&out, "+", l)
		}
	}
	return out.String()
}
