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

// maxPathsTold bounds what is said of one volume: files may be in each other's way in pairs, of
// which there may be more than anybody reads.
const maxPathsTold = 100

// pathSet is the files of a volume that came before.
type pathSet struct {
	all  []pathOf
	told int
}

// add notes a file, and returns those before it that are the same file, or its directory, or in it.
func (s *pathSet) add(p pathOf) (clashes []pathOf) {
	p.path = strings.TrimRight(p.path, "/")
	if len(s.all) >= maxPathsCompared {
		return nil
	}
	for _, other := range s.all {
		if s.told >= maxPathsTold || p.path == "" {
			break
		}
		if other.path != "" && (strings.HasPrefix(other.path+"/", p.path+"/") || strings.HasPrefix(p.path+"/", other.path+"/")) {
			clashes, s.told = append(clashes, other), s.told+1
		}
	}
	s.all = append(s.all, p)
	return clashes
}

// maxPathsCompared bounds how many files of one volume are compared with each other.
const maxPathsCompared = 2000

// warningsForPaths finds files of one volume that are in each other's way, where the order of
// what is mounted decides which of them is there.
func warningsForPaths(volumes []any) (out []string) {
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
			var before pathSet
			for _, p := range paths {
				for _, other := range before.add(p) {
					say("%s): overlapping paths: %s with %s", described, pathOf{path: strings.TrimRight(p.path, "/")}, other)
				}
			}
		}
		var before pathSet
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
