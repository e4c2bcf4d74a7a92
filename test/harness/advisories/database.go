package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"
)

// vulndb is the module whose directory data/osv has the advisories, a file in the OSV format each.
const vulndb = "golang.org/x/vulndb"

// entry is what indexes need of an advisory.
type entry struct {
	ID       string    `json:"id"`
	Modified time.Time `json:"modified"`
	Aliases  []string  `json:"aliases,omitempty"`
	Affected []struct {
		Package struct {
			Name string `json:"name"`
		} `json:"package"`
	} `json:"affected,omitempty"`
}

// The files of an index, as https://go.dev/security/vuln/database has them. Without the versions that mend an
// advisory, of which the index may tell, govulncheck reads them in the advisory.
type (
	dbIndex struct {
		Modified time.Time `json:"modified"`
	}
	moduleIndex struct {
		Path  string   `json:"path"`
		Vulns []vulnOf `json:"vulns"`
	}
	vulnOf struct {
		ID       string    `json:"id"`
		Modified time.Time `json:"modified"`
	}
	vulnIndex struct {
		ID       string    `json:"id"`
		Modified time.Time `json:"modified"`
		Aliases  []string  `json:"aliases,omitempty"`
	}
)

// buildDatabase makes a database for govulncheck in a directory, of the advisories in another one.
func buildDatabase(advisories, dir string) error {
	files, err := filepath.Glob(filepath.Join(advisories, "*.json"))
	if err != nil {
		return err
	}
	if len(files) == 0 {
		return fmt.Errorf("%s has no advisories", advisories)
	}
	for _, d := range []string{"ID", "index"} {
		if err := os.MkdirAll(filepath.Join(dir, d), 0o755); err != nil {
			return err
		}
	}
	var db dbIndex
	modules := map[string]*moduleIndex{}
	vulns := make([]vulnIndex, 0, len(files))
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		var e entry
		if err := json.Unmarshal(text, &e); err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
		if e.ID+".json" != filepath.Base(file) {
			return fmt.Errorf("%s has the advisory %q", file, e.ID)
		}
		if err := os.WriteFile(filepath.Join(dir, "ID", e.ID+".json"), text, 0o644); err != nil {
			return err
		}
		if e.Modified.After(db.Modified) {
			db.Modified = e.Modified
		}
		vulns = append(vulns, vulnIndex{e.ID, e.Modified, e.Aliases})
		named := map[string]bool{}
		for _, a := range e.Affected {
			m := a.Package.Name
			if named[m] {
				continue
			}
			named[m] = true
			if modules[m] == nil {
				modules[m] = &moduleIndex{Path: m}
			}
			modules[m].Vulns = append(modules[m].Vulns, vulnOf{e.ID, e.Modified})
		}
	}
	paths := slices.Sorted(maps.Keys(modules))
	index := make([]*moduleIndex, len(paths))
	for i, path := range paths {
		index[i] = modules[path]
		slices.SortFunc(index[i].Vulns, func(a, b vulnOf) int { return cmp.Compare(a.ID, b.ID) })
	}
	slices.SortFunc(vulns, func(a, b vulnIndex) int { return cmp.Compare(a.ID, b.ID) })
	for name, v := range map[string]any{"db": db, "modules": index, "vulns": vulns} {
		text, err := json.Marshal(v)
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(dir, "index", name+".json"), text, 0o644); err != nil {
			return err
		}
	}
	return nil
}
