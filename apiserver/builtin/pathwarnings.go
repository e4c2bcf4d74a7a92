package builtin

import (
	"fmt"
	"slices"
	"strings"

	"github.com/quorate/quorate/apiserver/tree"
)

// pathOf is a file in a volume, and what it comes from, if that has to be said.
type pathOf struct{ path, source, name string }

func (p pathOf) String() string {
	switch p.source {
	case "":
		return fmt.Sprintf("%q", p.path)
	case fromConfigMap, fromSecret, fromTrustBundle:
		return fmt.Sprintf("%q (%s %q)", p.path, p.source, p.name)
	}
	return fmt.Sprintf("%q (%s)", p.path, p.source)
}

// What has names among the sources of files.
const (
	fromConfigMap   = "ConfigMap"
	fromSecret      = "Secret"
	fromTrustBundle = "ClusterTrustBundle"
)

// maxPathsTold bounds what is said of one Pod: files may be in each other's way in pairs, of
// which there may be more than anybody reads. maxPathsCompared bounds how many files of a Pod
// are compared with those of their volume.
const (
	maxPathsTold     = 100
	maxPathsCompared = 2000
)

// pathBounds is what has been told and compared of a Pod.
type pathBounds struct{ told, compared int }

// pathSet is the files of a volume that came before.
type pathSet struct {
	all []pathOf
	of  *pathBounds
}

// add notes a file, and returns those before it that are the same file, or its directory, or in it.
func (s *pathSet) add(p pathOf) (clashes []pathOf) {
	p.path = strings.TrimRight(p.path, "/")
	if s.of.compared++; s.of.compared > maxPathsCompared {
		return nil
	}
	for i := range s.all {
		if s.of.told >= maxPathsTold || p.path == "" {
			break
		}
		if other := &s.all[i]; within(p.path, other.path) || within(other.path, p.path) {
			clashes, s.of.told = append(clashes, *other), s.of.told+1
		}
	}
	s.all = append(s.all, p)
	return clashes
}

// within reports whether a file is the same as another, or is in it, if that is a directory. An
// empty path is no file.
func within(file, other string) bool {
	switch {
	case other == "" || len(file) < len(other):
		return false
	case len(file) > len(other) && file[len(other)] != '/':
		return false
	}
	return file[:len(other)] == other
}

// warningsForPaths finds files of one volume that are in each other's way, where the order of
// what is mounted decides which of them is there.
func warningsForPaths(volumes []any) (out []string) {
	var bounds pathBounds
	for _, v := range volumes {
		v := tree.As(v)
		name := tree.Text(v, "name")
		say := func(format string, args ...any) {
			out = append(out, fmt.Sprintf("volume %q (", name)+fmt.Sprintf(format, args...))
		}
		for _, kind := range [...]struct{ field, name, named string }{
			{"configMap", "ConfigMap", "name"}, {"secret", "Secret", "secretName"}, {"downwardAPI", "DownwardAPI", ""},
		} {
			source := tree.As(v[kind.field])
			if source == nil {
				continue
			}
			paths := pathsOf(tree.List(source["items"]), "", "")
			if len(paths) < 2 {
				continue
			}
			described := kind.name
			if kind.named != "" {
				described = fmt.Sprintf("%s %q", kind.name, tree.Text(source, kind.named))
			}
			before := pathSet{of: &bounds}
			for _, p := range paths {
				for _, other := range before.add(p) {
					say("%s): overlapping paths: %s with %s", described, pathOf{path: strings.TrimRight(p.path, "/")}, other)
				}
			}
		}
		before := pathSet{of: &bounds}
		for _, source := range tree.List(tree.Field(v, "projected", "sources")) {
			if len(tree.As(source)) == 0 {
				say("Projected) has no sources provided")
				continue
			}
			for _, p := range projectedPaths(tree.As(source)) {
				for _, other := range before.add(p) {
					say("Projected): overlapping paths: %s with %s", pathOf{strings.TrimRight(p.path, "/"), p.source, p.name}, other)
				}
			}
		}
	}
	return out
}

func pathsOf(items []any, source, name string) (out []pathOf) {
	for _, item := range items {
		out = append(out, pathOf{tree.Text(tree.As(item), "path"), source, name})
	}
	return out
}

// projectedPaths are the files of one source of a projected volume.
func projectedPaths(source tree.Object) []pathOf {
	part := func(name string) tree.Object { return tree.As(source[name]) }
	switch {
	case part("configMap") != nil && part("configMap")["items"] != nil:
		return pathsOf(tree.List(part("configMap")["items"]), fromConfigMap, tree.Text(part("configMap"), "name"))
	case part("secret") != nil && part("secret")["items"] != nil:
		return pathsOf(tree.List(part("secret")["items"]), fromSecret, tree.Text(part("secret"), "name"))
	case part("downwardAPI") != nil && part("downwardAPI")["items"] != nil:
		return pathsOf(tree.List(part("downwardAPI")["items"]), "DownwardAPI", "")
	case part("serviceAccountToken") != nil:
		return []pathOf{{tree.Text(part("serviceAccountToken"), "path"), "ServiceAccountToken", ""}}
	case part("clusterTrustBundle") != nil:
		bundle := part("clusterTrustBundle")
		name, named := bundle["name"]
		if !named {
			name = bundle["signerName"]
		}
		return []pathOf{{tree.Text(bundle, "path"), fromTrustBundle, tree.Scalar(name)}}
	case part("podCertificate") != nil:
		all := []pathOf{
			{tree.Text(part("podCertificate"), "certificateChainPath"), "PodCertificate chain", ""},
			{tree.Text(part("podCertificate"), "keyPath"), "PodCertificate key", ""},
			{tree.Text(part("podCertificate"), "credentialBundlePath"), "PodCertificate credential bundle", ""},
		}
		return slices.DeleteFunc(all, func(p pathOf) bool { return p.path == "" })
	}
	return nil
}
