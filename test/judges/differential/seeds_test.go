package differential

import (
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/quorate/quorate/test/harness/cluster"
)

// sample is an object that somebody else wrote.
type sample struct {
	origin   string
	resource *resource
	obj      map[string]any
	fuzzed   bool // has every field, with values that mean nothing
	target   bool // is there for writes of its subresources only
}

// moduleDir is where the module cache has a module that another one of ours requires.
func moduleDir(from, module string) (string, error) {
	root, err := cluster.Repository()
	if err != nil {
		return "", err
	}
	list := exec.Command("go", "list", "-mod=mod", "-m", "-f", "{{.Dir}}", module)
	list.Dir = filepath.Join(root, from)
	out, err := list.Output()
	if err != nil {
		return "", fmt.Errorf("find %s: %w", module, err)
	}
	return strings.TrimSpace(string(out)), nil
}

// readSamples reads all objects of resources that both serve, in an order that only depends on
// the versions of the modules.
func readSamples(resources map[string]*resource) ([]*sample, error) {
	api, err := moduleDir(".", "k8s.io/api")
	if err != nil {
		return nil, err
	}
	kubernetes, err := moduleDir("tools/peers", "k8s.io/kubernetes")
	if err != nil {
		return nil, err
	}
	var all []*sample
	for _, from := range []struct {
		module, dir string
		ext         []string
		fuzzed      bool
	}{
		{api, "testdata/HEAD", []string{".json"}, true},
		{kubernetes, "test", []string{".yaml", ".yml", ".json"}, false},
		{kubernetes, "cluster", []string{".yaml", ".yml", ".json"}, false},
		{kubernetes, "hack/testdata", []string{".yaml", ".yml", ".json"}, false},
	} {
		err := filepath.WalkDir(filepath.Join(from.module, from.dir), func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || !slices.Contains(from.ext, filepath.Ext(path)) {
				return err
			}
			raw, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			origin, err := filepath.Rel(from.module, path)
			for _, obj := range objectsIn(raw) {
				r := resources[text(obj["apiVersion"])+"/"+text(obj["kind"])]
				if r == nil {
					continue
				}
				delete(child(obj, "metadata"), "namespace")
				all = append(all, &sample{origin: origin, resource: r, obj: obj, fuzzed: from.fuzzed})
			}
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	return all, nil
}

// objectsIn are the objects of a file of YAML or JSON documents. What is none, such as a
// template, is left out.
func objectsIn(raw []byte) (all []map[string]any) {
	for doc := range strings.SplitSeq("\n"+string(raw), "\n---") {
		j, err := yaml.YAMLToJSON([]byte(doc))
		if err != nil {
			continue
		}
		obj, err := decode(j)
		if err != nil {
			continue
		}
		items, ok := obj["items"].([]any)
		if !ok {
			items = []any{obj}
		}
		for _, item := range items {
			if obj, ok := item.(map[string]any); ok {
				all = append(all, obj)
			}
		}
	}
	return all
}
