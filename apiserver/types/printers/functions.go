package printers

import (
	"sort"
	"strconv"
	"strings"
	"time"

	"github.com/quorate/quorate/apiserver/types/tree"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
)

const (
	none    = "<none>"
	unset   = "<unset>"
	unknown = "<unknown>"
)

// functions are what column expressions can call with one argument, which is
// nil if its path is absent. They know the shapes that the API publishes, and
// nothing about resources, and not what time it is: see Ageing.
var functions = map[string]func(v any) any{
	"age":       age,
	"ageOrNone": func(v any) any { return orNone(v, func() any { return age(v) }) },
	"boolText":  boolText,
	"commaList": func(v any) any { return strings.Join(texts(v), ",") },
	"count":     count,
	"kernel":    kernel,
	"createdAt": func(v any) any { return tree.Scalar(v) },
	"labels":    formatLabels,
	"phase":     phase,
	"selector":  formatSelector,
	"trim":      func(v any) any { return strings.TrimSpace(tree.Scalar(v)) },

	"containerImages": func(v any) any { return joinField(v, "image") },
	"containerNames":  func(v any) any { return joinField(v, "name") },
	"podIP":           podIP,
	"podReady":        func(v any) any { return summarize(v).ready },
	"podRestarts":     func(v any) any { return summarize(v).restarts },
	"podStatus":       func(v any) any { return summarize(v).status },
	"readinessGates":  readinessGates,

	"availability":   availability,
	"serviceOrLocal": serviceOrLocal,

	"balancerAddresses": func(v any) any { return balancerAddresses(v) },
	"endpointAddresses": endpointAddresses,
	"ingressClass":      ingressClass,
	"ingressHosts":      ingressHosts,
	"ingressParameters": ingressParameters,
	"parentOf":          parentOf,
	"serviceExternalIP": serviceExternalIP,
	"servicePorts":      servicePorts,
	"sliceAddresses":    sliceAddresses,
	"slicePorts":        slicePorts,

	"claimState":     claimState,
	"controllerOf":   controllerOf,
	"jobCompletions": jobCompletions,
	"jobDuration":    jobDuration,
	"jobStatus":      jobStatus,
	"metricTargets":  metricTargets,
	"quotaLimits":    func(v any) any { return quota(v, true) },
	"quotaRequests":  func(v any) any { return quota(v, false) },
	"scaleTarget":    kindAndName,

	"eventCount":     eventCount,
	"eventFirstSeen": eventFirstSeen,
	"eventLastSeen":  eventLastSeen,
	"eventObject":    eventObject,
	"eventSource":    eventSource,
	"firstText":      firstText,
	"joinedTexts":    joinedTexts,
	"selectorText":   selectorText,
	"textOrNone":     textOrNone,
	"textOrUnknown":  textOrUnknown,
	"nodeRoles":      nodeRoles,
	"nodeStatus":     nodeStatus,

	"accessModes":          accessModes,
	"certificateCondition": certificateCondition,
	"claimOf":              claimOf,
	"classNameAndDefault":  classNameAndDefault,
	"paramKind":            paramKind,
	"paramRef":             paramRef,
	"requestedDuration":    requestedDuration,
	"roleOf":               kindAndName,
	"tokenAudiences":       tokenAudiences,
	"volumeClass":          volumeClass,
}

// functions2 take two arguments.
var functions2 = map[string]func(a, b any) any{
	"conditionStatus": conditionStatus,
	"nodeAddress":     nodeAddress,
	"ratio":           func(a, b any) any { return strconv.FormatInt(integer(a), 10) + "/" + strconv.FormatInt(integer(b), 10) },
	"subjects":        subjects,
	"textOr": func(a, b any) any {
		if a == nil {
			return b
		}
		return tree.Scalar(a)
	},
}

func orNone(v any, f func() any) any {
	if v == nil {
		return none
	}
	return f()
}

func timestamp(v any) (time.Time, bool) {
	s, _ := v.(string)
	if s == "" {
		return time.Time{}, false
	}
	t, err := time.Parse(time.RFC3339, s)
	return t, err == nil && !t.IsZero()
}

func boolText(v any) any {
	switch v {
	case true:
		return "True"
	case false:
		return "False"
	}
	return unset
}

func count(v any) any {
	switch x := v.(type) {
	case map[string]any:
		return int64(len(x))
	case []any:
		return int64(len(x))
	}
	return int64(0)
}

func formatLabels(v any) any {
	m, _ := v.(map[string]any)
	set := make(labels.Set, len(m))
	for k, x := range m {
		set[k] = tree.Scalar(x)
	}
	if s := set.String(); s != "" {
		return s
	}
	return none
}

func formatSelector(v any) any {
	s, err := labelSelector(v)
	switch {
	case err != nil:
		return "<error>"
	case s == nil:
		return none
	}
	return metav1.FormatLabelSelector(s)
}

// selectorText is as formatSelector, but nothing for a selector that selects all or nothing.
func selectorText(v any) any {
	s, err := labelSelector(v)
	if err != nil {
		return "<invalid>"
	}
	selector, err := metav1.LabelSelectorAsSelector(s)
	if err != nil {
		return "<invalid>"
	}
	return selector.String()
}

// labelSelector is a selector as its type; nil: there is none.
func labelSelector(v any) (*metav1.LabelSelector, error) {
	m, ok := v.(map[string]any)
	if !ok {
		return nil, nil
	}
	s := &metav1.LabelSelector{}
	return s, runtime.DefaultUnstructuredConverter.FromUnstructured(m, s)
}

// textOrNone is a text, or says that it is empty.
func textOrNone(v any) any { return textElse(v, none) }

func textOrUnknown(v any) any { return textElse(v, unknown) }

func textElse(v any, empty string) any {
	if s := tree.Scalar(v); s != "" {
		return s
	}
	return empty
}

// firstText is the first of a list.
func firstText(v any) any {
	if list := texts(v); len(list) > 0 {
		return list[0]
	}
	return none
}

// joinedTexts are all of a list.
func joinedTexts(v any) any { return textElse(strings.Join(texts(v), ","), none) }

// phase of something that has one, until it is being deleted.
func phase(v any) any {
	if get(v, "metadata", "deletionTimestamp") != nil {
		return "Terminating"
	}
	return tree.Scalar(get(v, "status", "phase"))
}

func kindAndName(v any) any { return tree.Scalar(get(v, "kind")) + "/" + tree.Scalar(get(v, "name")) }

// get walks down fields; what is absent is nil.
func get(v any, path ...string) any { return tree.Field(v, path...) }

func items(v any, path ...string) []any {
	list, _ := tree.Field(v, path...).([]any)
	return list
}

func integer(v any) int64 {
	switch x := v.(type) {
	case int64:
		return x
	case float64:
		return int64(x)
	}
	return 0
}

func texts(v any) []string {
	var out []string
	for _, x := range items(v) {
		out = append(out, tree.Scalar(x))
	}
	return out
}

func joinField(v any, name string) any {
	var out []string
	for _, x := range items(v) {
		out = append(out, tree.Scalar(get(x, name)))
	}
	return strings.Join(out, ",")
}

// condition returns the condition of a type, or nil.
func condition(list []any, kind string) any {
	for _, c := range list {
		if get(c, "type") == kind {
			return c
		}
	}
	return nil
}

func conditionTrue(list []any, kind string) bool {
	return get(condition(list, kind), "status") == "True"
}

func sortedKeys(m map[string]any) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	sort.Strings(keys)
	return keys
}

// shorten joins at most most texts and says how many more there are.
func shorten(list []string, most int) string {
	if len(list) <= most {
		return strings.Join(list, ",")
	}
	return strings.Join(list[:most], ",") + " + " + strconv.Itoa(len(list)-most) + " more..."
}
