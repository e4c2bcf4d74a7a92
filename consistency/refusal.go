package consistency

import (
	"encoding/json"
	"fmt"
	"strings"
)

// RefusalKind says which Status a Refusal becomes.
type RefusalKind int

const (
	// BadRequest becomes 400 with reason BadRequest and the message alone.
	BadRequest RefusalKind = iota + 1
	// Invalid becomes 422 with reason Invalid, details for ListOptions in group
	// meta.k8s.io, and one cause for each field.
	Invalid
)

func (k RefusalKind) String() string {
	switch k {
	case BadRequest:
		return "BadRequest"
	case Invalid:
		return "Invalid"
	default:
		return fmt.Sprintf("RefusalKind(%d)", int(k))
	}
}

// Values of FieldError.Type, as they appear in a Status cause's reason.
const (
	TypeForbidden    = "FieldValueForbidden"
	TypeInvalid      = "FieldValueInvalid"
	TypeNotSupported = "FieldValueNotSupported"
)

// FieldError is one cause of an Invalid refusal.
type FieldError struct {
	Field   string // the query parameter
	Type    string // the cause's reason
	Message string // the cause's message, without the field
}

func (f FieldError) text() string { return f.Field + ": " + f.Message }

// Refusal is returned for parameters that no state could satisfy. Nothing was
// read.
type Refusal struct {
	Kind RefusalKind
	// Message is the Status's message, whole.
	Message string
	// Fields is set for Invalid.
	Fields []FieldError
}

func (r *Refusal) Error() string { return r.Message }

func badRequest(message string) *Refusal { return &Refusal{Kind: BadRequest, Message: message} }

// invalid returns nil if there are no causes.
func invalid(fields []FieldError) error {
	if len(fields) == 0 {
		return nil
	}
	// Equal errors are listed once, several in brackets, as upstream does.
	var texts []string
	seen := map[string]bool{}
	for _, f := range fields {
		if t := f.text(); !seen[t] {
			seen[t] = true
			texts = append(texts, t)
		}
	}
	text := texts[0]
	if len(texts) > 1 {
		text = "[" + strings.Join(texts, ", ") + "]"
	}
	return &Refusal{Kind: Invalid, Message: `ListOptions.meta.k8s.io "" is invalid: ` + text, Fields: fields}
}

const matchField = "resourceVersionMatch"

func forbidden(field, text string) FieldError {
	return FieldError{Field: field, Type: TypeForbidden, Message: "Forbidden: " + text}
}

func notSupported(match, supported string) FieldError {
	quoted, err := json.Marshal(match)
	if err != nil {
		quoted = fmt.Appendf(nil, "%q", match)
	}
	return FieldError{Field: matchField, Type: TypeNotSupported,
		Message: fmt.Sprintf("Unsupported value: %s: supported values: %s", quoted, supported)}
}

// checkListMatch refuses what a list's parameters must not combine.
func checkListMatch(p Params) error {
	var errs []FieldError
	if p.Match != "" {
		if p.ResourceVersion == "" {
			errs = append(errs, forbidden(matchField, "resourceVersionMatch is forbidden unless resourceVersion is provided"))
		}
		if p.Continue != "" {
			errs = append(errs, forbidden(matchField, "resourceVersionMatch is forbidden when continue is provided"))
		}
		if p.Match != MatchExact && p.Match != MatchNotOlderThan {
			errs = append(errs, notSupported(p.Match, `"Exact", "NotOlderThan", ""`))
		}
		if p.Match == MatchExact && isZero(p.ResourceVersion) {
			errs = append(errs, forbidden(matchField, `resourceVersionMatch "exact" is forbidden for resourceVersion "0"`))
		}
	}
	if p.SendInitialEvents != nil {
		errs = append(errs, forbidden("sendInitialEvents", "sendInitialEvents is forbidden for list"))
	}
	return invalid(errs)
}

// checkWatchMatch refuses what a watch's parameters must not combine.
func checkWatchMatch(p Params) error {
	match, initial := p.Match, p.SendInitialEvents != nil
	if match == "" && !initial && (p.ResourceVersion == "" || isZero(p.ResourceVersion)) {
		// Such a watch stands for sendInitialEvents=true with NotOlderThan.
		match, initial = MatchNotOlderThan, true
	}
	var errs []FieldError
	if initial && match != MatchNotOlderThan {
		errs = append(errs, forbidden(matchField, "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan"))
	}
	if match != "" {
		if !initial {
			errs = append(errs, forbidden(matchField, "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided"))
		}
		if match != MatchNotOlderThan {
			errs = append(errs, notSupported(match, `"NotOlderThan"`))
		}
		if p.Continue != "" {
			errs = append(errs, forbidden(matchField, "resourceVersionMatch is forbidden when continue is provided"))
		}
	}
	return invalid(errs)
}
