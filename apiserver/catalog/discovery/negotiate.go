package discovery

import (
	"sort"
	"strings"

	"github.com/munnerz/goautoneg"
	v2 "k8s.io/api/apidiscovery/v2"
)

// aggregatedParameters are repeated in the Content-Type; clients tell by them
// which of the forms they were sent.
const aggregatedParameters = ";g=" + v2.GroupName + ";v=v2;as=APIGroupDiscoveryList"

// negotiate picks the first clause of Accept, by q, that can be met. aggregated is
// whether the one-document form was asked for and the path has it; a clause that
// asks for a form which is not served (v2beta1) is passed over. ok is false if no
// clause can be met.
func negotiate(accept string, hasAggregated bool) (f format, aggregated, ok bool) {
	if strings.TrimSpace(accept) == "" {
		return formatJSON, false, true
	}
	clauses := goautoneg.ParseAccept(accept)
	sort.SliceStable(clauses, func(i, j int) bool { return clauses[i].Q > clauses[j].Q })
	for _, c := range clauses {
		f, ok := formatOf(c.Type, c.SubType)
		if !ok || c.Q == 0 {
			continue
		}
		switch as := c.Params["as"]; {
		case as == "":
			return f, false, true
		case hasAggregated && as == "APIGroupDiscoveryList" && c.Params["g"] == v2.GroupName && c.Params["v"] == "v2":
			return f, true, true
		}
	}
	return 0, false, false
}

func formatOf(mainType, subType string) (format, bool) {
	if mainType == "*" && subType == "*" || mainType == "application" && subType == "*" {
		return formatJSON, true
	}
	for f, m := range mediaTypes {
		if mainType+"/"+subType == m {
			return format(f), true
		}
	}
	return 0, false
}
