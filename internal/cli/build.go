package cli

import "runtime/debug"

// Build says which build of a program this is.
type Build struct {
	Version string // "unknown" if nobody said
	Commit  string // "" if nobody said
}

// BuildOf returns the build of this program. The linker's word comes first, which `make build` gives. What it
// leaves empty is what the go command writes into each program: the version of the module that
// `go install` was asked for, or the commit of the checkout that `go build` ran in.
func BuildOf(version, commit string) Build {
	info, _ := debug.ReadBuildInfo()
	return buildOf(version, commit, info)
}

func buildOf(version, commit string, info *debug.BuildInfo) Build {
	b := Build{version, commit}
	if info != nil {
		if b.Version == "" && info.Main.Version != "(devel)" {
			b.Version = info.Main.Version
		}
		for _, s := range info.Settings {
			if b.Commit == "" && s.Key == "vcs.revision" {
				b.Commit = s.Value
			}
		}
	}
	if b.Version == "" {
		b.Version = "unknown"
	}
	return b
}
