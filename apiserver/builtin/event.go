package builtin

import (
	"fmt"

	"github.com/quorate/quorate/apiserver/objects"
	"github.com/quorate/quorate/apiserver/tree"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Events of the core group are as they were before there was events.k8s.io, which asks for more.
var (
	eventStrategy   = objects.Strategy{Validate: validateEvent}
	eventV1Strategy = objects.Strategy{Validate: validateEventV1}
)

// eventNames are the fields of an Event in one of its two forms. Messages name the
// core group's, as upstream's do, but for the one in controllerPath.
type eventNames struct {
	about, message, controller, source, first, last, count string
	controllerPath                                         string
}

var (
	coreEvent = eventNames{
		about: "involvedObject", message: "message", controller: "reportingComponent",
		source: "source", first: "firstTimestamp", last: "lastTimestamp", count: "count",
		controllerPath: "reportingComponent",
	}
	newEvent = eventNames{
		about: "regarding", message: "note", controller: "reportingController",
		source: "deprecatedSource", first: "deprecatedFirstTimestamp", last: "deprecatedLastTimestamp", count: "deprecatedCount",
		controllerPath: "reportingController",
	}
)

// Longest texts of new events, in bytes.
const (
	maxEventWord = 128
	maxEventNote = 1024
)

// validateEvent is what holds for events of both forms.
func validateEvent(obj, _ tree.Object) field.ErrorList { return coreEvent.validateLegacy(obj) }

// validateEventV1 is what events.k8s.io/v1 asks for on top of it.
func validateEventV1(obj, old tree.Object) field.ErrorList {
	errs := newEvent.validateLegacy(obj)
	if old == nil {
		return append(errs, newEvent.validateStrict(obj)...)
	}
	return append(errs, newEvent.validateUnchanged(obj, old)...)
}

// validateLegacy checks what is said about whom. Events that have no eventTime are of the
// old kind.
func (n *eventNames) validateLegacy(obj tree.Object) (errs field.ErrorList) {
	namespace, _ := tree.Field(obj, "metadata", "namespace").(string)
	about, _ := tree.Field(obj, n.about, "namespace").(string)
	mismatch := field.Invalid(field.NewPath("involvedObject", "namespace"), about, "does not match event.namespace")
	if unsetTime(obj["eventTime"]) {
		if about == "" && namespace != "" && namespace != "default" || about != "" && about != namespace {
			errs = append(errs, mismatch)
		}
		return errs
	}
	if about == "" && namespace != "default" && namespace != "kube-system" {
		errs = append(errs, mismatch)
	}
	controller, path := tree.Text(obj, n.controller), field.NewPath(n.controllerPath)
	if controller == "" {
		errs = append(errs, field.Required(path, ""))
	}
	for _, msg := range validation.IsQualifiedName(controller) {
		errs = append(errs, field.Invalid(path, controller, msg))
	}
	for _, name := range [...]string{"reportingInstance", "action", "reason"} {
		errs = append(errs, validateEventText(tree.Text(obj, name), field.NewPath(name), maxEventWord, true)...)
	}
	return append(errs, validateEventText(tree.Text(obj, n.message), field.NewPath("message"), maxEventNote, false)...)
}

func validateEventText(s string, path *field.Path, most int, required bool) field.ErrorList {
	switch {
	case s == "" && required:
		return field.ErrorList{field.Required(path, "")}
	case len(s) > most:
		return field.ErrorList{field.Invalid(path, "", fmt.Sprintf("can have at most %d characters", most))}
	}
	return nil
}

// validateStrict is what a new event of the new form must and must not have.
func (n *eventNames) validateStrict(obj tree.Object) field.ErrorList {
	errs := validateSeries(obj)
	if unsetTime(obj["eventTime"]) {
		errs = append(errs, field.Required(field.NewPath("eventTime"), ""))
	}
	if kind := tree.Text(obj, "type"); kind != "Normal" && kind != "Warning" {
		errs = append(errs, field.Invalid(field.NewPath("type"), "", "has invalid value: "+kind))
	}
	count, _ := tree.Int(obj[n.count])
	for _, old := range [...]struct {
		path string
		set  bool
	}{
		{"firstTimestamp", !unsetTime(obj[n.first])},
		{"lastTimestamp", !unsetTime(obj[n.last])},
		{"count", count != 0},
		{"source", tree.Text(tree.As(obj[n.source]), "component") != "" || tree.Text(tree.As(obj[n.source]), "host") != ""},
	} {
		if old.set {
			errs = append(errs, field.Invalid(field.NewPath(old.path), "", "needs to be unset"))
		}
	}
	return errs
}

func validateSeries(obj tree.Object) (errs field.ErrorList) {
	series, ok := obj["series"].(tree.Object)
	if !ok {
		return nil
	}
	if n, _ := tree.Int(series["count"]); n < 2 {
		errs = append(errs, field.Invalid(field.NewPath("series.count"), "", "should be at least 2"))
	}
	if unsetTime(series["lastObservedTime"]) {
		errs = append(errs, field.Required(field.NewPath("series.lastObservedTime"), ""))
	}
	return errs
}

// validateUnchanged lets nothing change but the series and metadata.
func (n *eventNames) validateUnchanged(obj, old tree.Object) (errs field.ErrorList) {
	if !semanticEqual(obj["series"], old["series"]) {
		errs = append(errs, validateSeries(obj)...)
	}
	for _, f := range [...]struct{ name, path string }{
		{n.about, "involvedObject"}, {"reason", "reason"}, {n.message, "message"}, {n.source, "source"},
		{n.first, "firstTimestamp"}, {n.last, "lastTimestamp"}, {n.count, "count"}, {"type", "type"},
		{"eventTime", "eventTime"}, {"action", "action"}, {"related", "related"},
		{n.controller, "reportingController"}, {"reportingInstance", "reportingInstance"},
	} {
		if !semanticEqual(obj[f.name], old[f.name]) {
			errs = append(errs, field.Invalid(field.NewPath(f.path), obj[f.name], "field is immutable"))
		}
	}
	return errs
}

// unsetTime reports whether a time was left out; a tree has times in canonical form.
func unsetTime(v any) bool { return v == nil || v == "" }
