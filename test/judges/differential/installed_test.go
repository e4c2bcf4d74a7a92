package differential

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/quorate/quorate/test/harness/cluster"
)

// mostOfSample bounds an object that is changed: some definitions have more than a megabyte, and
// a request of one takes longer than a thousand others.
const mostOfSample = 100 << 10

// readInstalled reads what testdata/installed.txt names, with the definitions stored in both.
func readInstalled(ctx context.Context, b both, w *world) ([]*sample, error) {
	root, err := cluster.Repository()
	if err != nil {
		return nil, err
	}
	modules, err := table(filepath.Join(root, "test/modules/ecosystem/testdata/modules.txt"))
	if err != nil {
		return nil, err
	}
	sources, err := table("testdata/installed.txt")
	if err != nil {
		return nil, err
	}
	type found struct {
		origin string
		obj    map[string]any
	}
	var all []found
	for _, s := range sources {
		if len(s) < 3 {
			return nil, fmt.Errorf("installed.txt: %q: want WHAT MODULE PATH", s)
		}
		dir := root
		if s[1] != "-" {
			if dir, err = download(ctx, modules, s[1]); err != nil {
				return nil, err
			}
		}
		objects, err := objectsOf(ctx, root, s[0], filepath.Join(dir, s[2]), s[3:])
		if err != nil {
			return nil, fmt.Errorf("%s: %w", strings.Join(s, " "), err)
		}
		for _, obj := range objects {
			if s[0] == "definitions" {
				if text(obj["kind"]) == "CustomResourceDefinition" {
					w.definitions = append(w.definitions, withoutDescriptions(obj).(map[string]any))
				}
				continue
			}
			all = append(all, found{s[1] + " " + s[2], obj})
		}
	}
	if err := b.define(ctx, w.definitions); err != nil {
		return nil, err
	}
	if w.resources, err = b.common(ctx); err != nil {
		return nil, err
	}
	if w.bodies, err = readBodies(); err != nil {
		return nil, err
	}
	var samples []*sample
	for _, f := range all {
		r := w.resources[text(f.obj["apiVersion"])+"/"+text(f.obj["kind"])]
		if r == nil || len(encode(f.obj)) > mostOfSample {
			continue
		}
		delete(child(f.obj, "metadata"), "namespace")
		samples = append(samples, &sample{origin: f.origin, resource: r, obj: f.obj})
	}
	raw, err := os.ReadFile("testdata/targets.yaml")
	if err != nil {
		return nil, err
	}
	for _, obj := range objectsIn(raw) {
		r := w.resources[text(obj["apiVersion"])+"/"+text(obj["kind"])]
		if r == nil {
			return nil, fmt.Errorf("targets.yaml: there is no %s %s", obj["apiVersion"], obj["kind"])
		}
		samples = append(samples, &sample{origin: "targets.yaml", resource: r, obj: obj, target: true})
	}
	return samples, nil
}

// table reads lines of words; # begins a comment.
func table(file string) (lines [][]string, err error) {
	raw, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	for l := range strings.Lines(string(raw)) {
		if words := strings.Fields(l); len(words) > 0 && words[0] != "#" {
			lines = append(lines, words)
		}
	}
	return lines, nil
}

// download is where a module lies, of which test/modules/ecosystem says version and hash.
func download(ctx context.Context, modules [][]string, name string) (string, error) {
	i := slices.IndexFunc(modules, func(m []string) bool { return m[0] == name })
	if i < 0 {
		return "", fmt.Errorf("test/modules/ecosystem has no module %s", name)
	}
	m := modules[i]
	cmd := exec.CommandContext(ctx, "go", "mod", "download", "-json", m[1]+"@"+m[2])
	cmd.Dir = os.TempDir() // what else it requires is none of ours
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("download %s: %w", m[1], err)
	}
	var got struct{ Dir, Sum string }
	if err := json.Unmarshal(out, &got); err != nil {
		return "", fmt.Errorf("download %s: %w", m[1], err)
	}
	if got.Sum != m[3] {
		return "", fmt.Errorf("%s %s has the hash %s, want %s", m[1], m[2], got.Sum, m[3])
	}
	return got.Dir, nil
}

// objectsOf reads the objects of a chart, or of all files below a path.
func objectsOf(ctx context.Context, root, what, path string, args []string) ([]map[string]any, error) {
	if what == "chart" {
		helm := os.Getenv("HELM")
		if helm == "" {
			helm = filepath.Join(root, "bin/helm")
		}
		out, err := exec.CommandContext(ctx, helm, append([]string{"template", "release", path, "--kube-version", "1.36.3"}, args...)...).Output()
		if failed := (*exec.ExitError)(nil); errors.As(err, &failed) {
			return nil, fmt.Errorf("%w: %s", err, failed.Stderr)
		}
		if err != nil {
			return nil, fmt.Errorf("run 'make helms' or set HELM: %w", err)
		}
		return objectsIn(out), nil
	}
	var all []map[string]any
	err := filepath.WalkDir(path, func(file string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || filepath.Ext(file) != ".yaml" {
			return err
		}
		raw, err := os.ReadFile(file)
		all = append(all, objectsIn(raw)...)
		return err
	})
	return all, err
}

// withoutDescriptions is a definition without them: no answer depends on them, and they are most
// of it.
func withoutDescriptions(v any) any {
	switch v := v.(type) {
	case map[string]any:
		out := map[string]any{}
		for name, in := range v {
			if _, ok := in.(string); ok && name == "description" {
				continue
			}
			out[name] = withoutDescriptions(in)
		}
		return out
	case []any:
		out := make([]any, len(v))
		for i, in := range v {
			out[i] = withoutDescriptions(in)
		}
		return out
	}
	return v
}

// define stores definitions in both, and awaits that they are served.
func (b both) define(ctx context.Context, definitions []map[string]any) error {
	const path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
	for _, d := range definitions {
		if err := b.make(ctx, path, d); err != nil {
			return err
		}
	}
	for _, d := range definitions {
		if err := b.established(ctx, path+"/"+text(field(d, "metadata", "name"))); err != nil {
			return err
		}
	}
	for _, d := range definitions {
		if err := b.served(ctx, d); err != nil {
			return err
		}
	}
	return nil
}
