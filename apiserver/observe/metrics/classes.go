package metrics

import (
	_ "embed"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
)

// classesText has a line for each family of upstream's server: its name, its stability class, and since when it is
// deprecated, if it is.
//
//go:embed classes.txt
var classesText string

// classes is what the help of a family begins with, by its name: upstream's words for how stable it is, and that it
// is on its way out (KEP-1209).
var classes = func() map[string]string {
	all := map[string]string{}
	for line := range strings.Lines(classesText) {
		fields := strings.Fields(line)
		if len(fields) < 2 || fields[0] == "#" {
			continue
		}
		text := "[" + fields[1] + "] "
		if len(fields) > 2 {
			text += "(Deprecated since " + fields[2] + ") "
		}
		all[fields[0]] = text
	}
	return all
}()

// classified has families say in their help how stable they are. Upstream's libraries say so by themselves, those of
// other projects (go_, process_, etcd_) do not know classes; this server's own may change with any release.
func classified(of prometheus.Gatherer) prometheus.Gatherer {
	return prometheus.GathererFunc(func() ([]*dto.MetricFamily, error) {
		families, err := of.Gather()
		for _, f := range families {
			class := classes[f.GetName()]
			if class == "" && strings.HasPrefix(f.GetName(), "quorate_") {
				class = "[ALPHA] "
			}
			if help := f.GetHelp(); class != "" && !strings.HasPrefix(help, "[") {
				help = class + help
				f.Help = &help
			}
		}
		return families, err
	})
}
