package request

import (
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/quorate/quorate/apiserver/wire/status"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Options are the parameters of a request that verbs understand, as sent.
// Pointers tell absent from empty where that matters. Parameters that nobody
// knows are ignored, as upstream does; pretty and includeObject belong to codec.
type Options struct {
	ResourceVersion      string
	ResourceVersionMatch string
	Limit                int64
	Continue             string
	LabelSelector        string
	FieldSelector        string
	SendInitialEvents    *bool
	AllowWatchBookmarks  bool
	TimeoutSeconds       *int64
	MaxStaleness         string
	Timeout              time.Duration

	DryRun          []string
	FieldManager    string
	FieldValidation string
	Force           *bool

	GracePeriodSeconds *int64
	OrphanDependents   *bool
	PropagationPolicy  *string
	UID                string

	seen  uint32                  // bits of the parameters that were given
	first [len(queryNames)]uint32 // where in the raw query each was given first
}

// Bits of Options.seen, in the order of the names below.
var queryNames = [...]string{
	"resourceVersion", "resourceVersionMatch", "limit", "continue", "labelSelector", "fieldSelector",
	"sendInitialEvents", "allowWatchBookmarks", "timeoutSeconds", "maxStaleness", "timeout",
	"dryRun", "fieldManager", "fieldValidation", "force",
	"gracePeriodSeconds", "orphanDependents", "propagationPolicy", "uid", "export",
}

// What the verbs understand, as upstream's types of options do. A parameter that
// belongs to another verb is ignored, whatever its value.
var (
	getParameters    = parameters("resourceVersion", "maxStaleness", "timeout", "export")
	watchParameters  = parameters("resourceVersion", "resourceVersionMatch", "limit", "continue", "labelSelector", "fieldSelector", "sendInitialEvents", "allowWatchBookmarks", "timeoutSeconds", "maxStaleness")
	listParameters   = watchParameters | parameters("timeout")
	modifyParameters = parameters("dryRun", "fieldManager", "fieldValidation", "timeout")
	patchParameters  = modifyParameters | parameters("force")
	// Without a body, uid and resourceVersion are the preconditions of a delete.
	deleteParameters = parameters("dryRun", "gracePeriodSeconds", "orphanDependents", "propagationPolicy", "uid", "resourceVersion", "timeout")
)

func parameters(names ...string) (bits uint32) {
	for _, name := range names {
		bits |= 1 << queryIndex(name)
	}
	return bits
}

const seenDryRun = 11

// Parse reads the parameters that a verb understands from a raw query. Errors are 400.
func (q *Options) Parse(raw, verb string) error { return q.parse(raw, verbOf(verb).parameters) }

// parse reads a raw query in one pass and without a map. Parameters whose bits
// are not in understood are passed over. A parameter that is given twice with
// different values is refused: which one was meant would be a guess. Errors are
// 400.
//
// It fills empty Options in place: copies of it on the stack of each request
// make that grow.
func (q *Options) parse(all string, understood uint32) error {
	for raw := all; raw != ""; {
		at := len(all) - len(raw)
		var pair string
		pair, raw, _ = strings.Cut(raw, "&")
		rawName, rawValue, _ := strings.Cut(pair, "=")
		name, err := unescape(rawName)
		if err != nil {
			return apierrors.NewBadRequest(fmt.Sprintf("invalid query: %v", err))
		}
		i := queryIndex(name)
		if i < 0 || understood&(1<<i) == 0 {
			continue
		}
		value, err := unescape(rawValue)
		if err != nil {
			return apierrors.NewBadRequest(fmt.Sprintf("invalid query parameter %q: %v", name, err))
		}
		if q.seen&(1<<i) != 0 && i != seenDryRun {
			if valueAt(all[q.first[i]:]) != value {
				return apierrors.NewBadRequest(fmt.Sprintf("query parameter %q is given more than once with different values", name))
			}
			continue
		}
		q.seen |= 1 << i
		q.first[i] = uint32(at) // the server bounds a request line
		if err := q.set(name, value); err != nil {
			if apierrors.IsBadRequest(err) {
				return err
			}
			return apierrors.NewBadRequest(err.Error())
		}
	}
	return nil
}

// valueAt is the value of the first pair of a raw query, which has been
// unescaped before without an error.
func valueAt(raw string) string {
	pair, _, _ := strings.Cut(raw, "&")
	_, rawValue, _ := strings.Cut(pair, "=")
	value, _ := unescape(rawValue)
	return value
}

func queryIndex(name string) int {
	for i := range queryNames {
		if queryNames[i] == name {
			return i
		}
	}
	return -1
}

func unescape(s string) (string, error) {
	if strings.IndexByte(s, '%') < 0 && strings.IndexByte(s, '+') < 0 {
		return s, nil
	}
	return url.QueryUnescape(s)
}

func (q *Options) set(name, value string) (err error) {
	switch name {
	case "resourceVersion":
		q.ResourceVersion = value
	case "resourceVersionMatch":
		q.ResourceVersionMatch = value
	case "limit":
		q.Limit, err = strconv.ParseInt(value, 10, 64)
	case "continue":
		q.Continue = value
	case "labelSelector":
		q.LabelSelector = value
	case "fieldSelector":
		q.FieldSelector = value
	case "sendInitialEvents":
		q.SendInitialEvents = Truth(value)
	case "allowWatchBookmarks":
		q.AllowWatchBookmarks = *Truth(value)
	case "timeoutSeconds":
		q.TimeoutSeconds, err = Int(value)
	case "maxStaleness":
		q.MaxStaleness = value
	case "timeout":
		q.Timeout, err = ParseTimeout(value)
	case "dryRun":
		q.DryRun = append(q.DryRun, value)
	case "fieldManager":
		q.FieldManager = value
	case "fieldValidation":
		q.FieldValidation = value
	case "force":
		q.Force = Truth(value)
	case "gracePeriodSeconds":
		q.GracePeriodSeconds, err = Int(value)
	case "orphanDependents":
		q.OrphanDependents = Truth(value)
	case "propagationPolicy":
		q.PropagationPolicy = &value
	case "uid":
		q.UID = value
	case "export":
		if *Truth(value) {
			return status.BadRequest("the export parameter, deprecated since v1.14, is no longer supported")
		}
	}
	return err
}

// Truth is upstream's reading of a boolean parameter: only "false" and "0" are
// false, the empty string is true.
func Truth(value string) *bool {
	b := !strings.EqualFold(value, "false") && value != "0"
	return &b
}

// Int reads a whole number.
func Int(value string) (*int64, error) {
	n, err := strconv.ParseInt(value, 10, 64)
	if err != nil {
		return nil, err
	}
	return &n, nil
}

// ParseTimeout reads timeout=, which bounds requests that are not long-running.
// Zero means the server's default.
func ParseTimeout(value string) (time.Duration, error) {
	if value == "" {
		return 0, nil
	}
	d, err := time.ParseDuration(value)
	if err != nil {
		return 0, status.BadRequest("invalid timeout specified in the request URL - %v", err)
	}
	return max(d, 0), nil // one that makes no sense says nothing, as upstream
}

// IsDryRun reports whether a modifying request must change nothing. The value
// has been validated.
func (q *Options) IsDryRun() bool { return len(q.DryRun) > 0 }

// CheckModify validates the options of create, update and patch, as the kind
// that upstream names in the error.
func (q *Options) CheckModify(optionsKind string) error {
	var errs field.ErrorList
	if optionsKind == "PatchOptions" && q.Force != nil {
		errs = append(errs, field.Forbidden(field.NewPath("force"), "may not be specified for non-apply patch"))
	}
	if q.FieldManager != "" {
		errs = append(errs, metav1validation.ValidateFieldManager(q.FieldManager, field.NewPath("fieldManager"))...)
	}
	if len(q.DryRun) > 0 {
		errs = append(errs, metav1validation.ValidateDryRun(field.NewPath("dryRun"), q.DryRun)...)
	}
	if q.FieldValidation != "" {
		errs = append(errs, metav1validation.ValidateFieldValidation(field.NewPath("fieldValidation"), q.FieldValidation)...)
	}
	if len(errs) == 0 {
		return nil
	}
	return status.InvalidOptions(optionsKind, errs)
}

// CheckApply validates the options of a server-side apply.
func (q *Options) CheckApply() error {
	errs := metav1validation.ValidatePatchOptions(&metav1.PatchOptions{
		DryRun: q.DryRun, Force: q.Force, FieldManager: q.FieldManager, FieldValidation: q.FieldValidation,
	}, types.ApplyYAMLPatchType)
	if len(errs) == 0 {
		return nil
	}
	return status.InvalidOptions("PatchOptions", errs)
}

// Forced reports whether an apply takes fields from other managers.
func (q *Options) Forced() bool { return q.Force != nil && *q.Force }

// Strictness of unknown and duplicate fields in a body.
type Strictness int

// What fieldValidation may ask for.
const (
	WarnFields Strictness = iota // the default
	IgnoreFields
	StrictFields
)

// Strictness is what the request asks for.
func (q *Options) Strictness() Strictness {
	switch q.FieldValidation {
	case metav1.FieldValidationIgnore:
		return IgnoreFields
	case metav1.FieldValidationStrict:
		return StrictFields
	}
	return WarnFields
}

// Parameter is the first value of a parameter in a raw query, as url.ParseQuery reads it: pairs that cannot be decoded, and
// those with a semicolon, do not count.
func Parameter(query, name string) (value string, ok bool) {
	for query != "" {
		var pair string
		pair, query, _ = strings.Cut(query, "&")
		rawKey, rawValue, _ := strings.Cut(pair, "=")
		if key, err := unescape(rawKey); err != nil || key != name || pair == "" || strings.IndexByte(pair, ';') >= 0 {
			continue
		}
		if value, err := unescape(rawValue); err == nil {
			return value, true
		}
	}
	return "", false
}

// CheckForwarded refuses a query that another server could read as something else than was authorized here: one that
// cannot be decoded as a whole, or that has a parameter of ours twice with different values. Errors are 400.
func CheckForwarded(query string) error {
	values, err := url.ParseQuery(query)
	if err != nil {
		return status.BadRequest("invalid query: %v", err)
	}
	for name, all := range values {
		if name != "watch" && (queryIndex(name) < 0 || name == queryNames[seenDryRun]) {
			continue
		}
		for _, value := range all[1:] {
			if value != all[0] {
				return status.BadRequest("query parameter %q is given more than once with different values", name)
			}
		}
	}
	return nil
}
