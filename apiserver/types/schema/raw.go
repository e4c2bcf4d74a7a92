package schema

import (
	"bytes"
	"embed"
	"encoding/json"
	"fmt"
	"sort"
	"strings"
	"sync"
)

// data/models holds one file per Go package of the Kubernetes API; a file has
// one model per line, so that it can be cut into models without being parsed.
// data/own has files of the same form, of packages that are not Kubernetes'.
//
//go:generate ./generate.sh
//go:embed data/models/*.json data/models/VERSION data/models/written.txt data/own
var modelFiles embed.FS

// modelDirs are where models are.
var modelDirs = [...]string{"data/models", "data/own"}

// modelFile is a file that has been cut into models.
type modelFile struct {
	dir    string
	once   sync.Once
	models map[string]json.RawMessage
}

var fileSet = sync.OnceValue(func() map[string]*modelFile {
	set := map[string]*modelFile{}
	for _, dir := range modelDirs {
		entries, err := modelFiles.ReadDir(dir)
		if err != nil {
			panic(fmt.Sprintf("schema: embedded models: %v", err))
		}
		for _, e := range entries {
			if pkg, ok := strings.CutSuffix(e.Name(), ".json"); ok {
				set[pkg] = &modelFile{dir: dir}
			}
		}
	}
	return set
})

// Raw returns the OpenAPI schema of a model as JSON. References are written
// "#/components/schemas/NAME" and may have siblings (description, default):
// a v3 document wraps those in allOf, a v2 document has its own prefix. The
// bytes are shared; they must not be changed.
func Raw(name string) (json.RawMessage, bool) {
	pkg, ok := packageOf(name)
	if !ok {
		return nil, false
	}
	f := fileSet()[pkg]
	if f == nil {
		return nil, false
	}
	f.load(pkg)
	raw, ok := f.models[name]
	return raw, ok
}

// Names returns the names of all models, sorted.
func Names() []string {
	var names []string
	for pkg, f := range fileSet() {
		f.load(pkg)
		for name := range f.models {
			names = append(names, name)
		}
	}
	sort.Strings(names)
	return names
}

// packageOf is the file that a model lives in.
func packageOf(name string) (string, bool) {
	i := strings.LastIndexByte(name, '.')
	if i < 0 {
		return "", false
	}
	return name[:i], true
}

func (f *modelFile) load(pkg string) {
	f.once.Do(func() {
		b, err := modelFiles.ReadFile(f.dir + "/" + pkg + ".json")
		if err != nil {
			panic(fmt.Sprintf("schema: embedded models: %v", err))
		}
		f.models = cut(b)
	})
}

// cut takes a file apart into its models: `"name":{...},` on each line.
func cut(b []byte) map[string]json.RawMessage {
	models := map[string]json.RawMessage{}
	for _, line := range bytes.Split(b, []byte("\n")) {
		line = bytes.TrimSuffix(line, []byte(","))
		if len(line) < 2 || line[0] != '"' {
			continue // the braces around the whole
		}
		end := bytes.IndexByte(line[1:], '"') + 1
		models[string(line[1:end])] = json.RawMessage(line[end+2:])
	}
	return models
}
