// Schemagen prints the OpenAPI definitions of the Kubernetes API types as JSON
// files, one per Go package, into the directory named by its argument.
//
// The definitions come from kube-openapi's own generator (see generate.sh in
// apiserver/types/schema); what is added here is what a kube-apiserver adds when it
// publishes them: the v3 form of the types that have two, references in v3
// form, and x-kubernetes-group-version-kind on what a scheme knows.
package main

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"runtime/debug"
	"sort"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	"k8s.io/kube-openapi/pkg/common"
	"k8s.io/kube-openapi/pkg/validation/spec"

	"github.com/quorate/quorate/tools/schemagen/definitions"
)

const (
	refPrefix = "#/components/schemas/"
	gvkKey    = "x-kubernetes-group-version-kind"
)

type gvk struct {
	Group   string `json:"group"`
	Kind    string `json:"kind"`
	Version string `json:"version"`
}

func main() {
	out := flag.String("out", "", "directory to write to")
	flag.Parse()
	if *out == "" {
		log.Fatal("schemagen: -out is required")
	}
	if err := run(*out); err != nil {
		log.Fatalf("schemagen: %v", err)
	}
}

func run(out string) error {
	for _, add := range []func(*runtime.Scheme) error{apiextensionsv1.AddToScheme, apiregistrationv1.AddToScheme} {
		if err := add(scheme.Scheme); err != nil {
			return err
		}
	}
	kinds, err := knownKinds(scheme.Scheme)
	if err != nil {
		return err
	}
	files := map[string]map[string]spec.Schema{}
	defs := definitions.GetOpenAPIDefinitions(func(name string) spec.Ref {
		return spec.MustCreateRef(refPrefix + name)
	})
	for name, def := range defs {
		s := def.Schema
		// A type with two forms is the v3 one and carries its v2 form along.
		delete(s.Extensions, common.ExtensionV2Schema)
		if gvks := kinds[name]; gvks != nil {
			s.AddExtension(gvkKey, gvks)
		}
		file := name[:strings.LastIndex(name, ".")]
		if files[file] == nil {
			files[file] = map[string]spec.Schema{}
		}
		files[file][name] = s
	}
	named := map[string]bool{}
	for name := range defs {
		named[name] = true
	}
	if err := writtenFields(out, scheme.Scheme, named); err != nil {
		return err
	}
	for file, models := range files {
		if err := write(filepath.Join(out, file+".json"), models); err != nil {
			return err
		}
	}
	return writeVersion(out)
}

// knownKinds maps model names to the kinds that they serve, as a server's
// definition namer does.
func knownKinds(s *runtime.Scheme) (map[string][]gvk, error) {
	kinds := map[string][]gvk{}
	for k := range s.AllKnownTypes() {
		if k.Version == runtime.APIVersionInternal {
			continue
		}
		name, err := s.ToOpenAPIDefinitionName(k)
		if err != nil {
			return nil, fmt.Errorf("name of %v: %w", k, err)
		}
		kinds[name] = append(kinds[name], gvk{k.Group, k.Kind, k.Version})
	}
	for _, l := range kinds {
		sort.Slice(l, func(i, j int) bool {
			a, b := l[i], l[j]
			if a.Group != b.Group {
				return a.Group < b.Group
			}
			if a.Version != b.Version {
				return a.Version < b.Version
			}
			return a.Kind < b.Kind
		})
	}
	return kinds, nil
}

// write prints a file with one model per line: small, diffable, and cheap to
// split.
func write(path string, models map[string]spec.Schema) error {
	names := make([]string, 0, len(models))
	for name := range models {
		names = append(names, name)
	}
	sort.Strings(names)
	var b bytes.Buffer
	b.WriteString("{\n")
	for i, name := range names {
		raw, err := json.Marshal(models[name])
		if err != nil {
			return fmt.Errorf("marshal %s: %w", name, err)
		}
		var c bytes.Buffer
		if err := json.Compact(&c, raw); err != nil {
			return fmt.Errorf("compact %s: %w", name, err)
		}
		fmt.Fprintf(&b, "%q:%s", name, c.Bytes())
		if i < len(names)-1 {
			b.WriteByte(',')
		}
		b.WriteByte('\n')
	}
	b.WriteString("}\n")
	return os.WriteFile(path, b.Bytes(), 0o644)
}

// writeVersion stamps the data with the modules it was made from.
func writeVersion(out string) error {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return fmt.Errorf("no build information")
	}
	var b strings.Builder
	for _, d := range info.Deps {
		switch d.Path {
		case "k8s.io/api", "k8s.io/apimachinery":
			fmt.Fprintf(&b, "%s %s\n", d.Path, d.Version)
		}
	}
	return os.WriteFile(filepath.Join(out, "VERSION"), []byte(b.String()), 0o644)
}
