package report

import "slices"

// Verdict is one promise or goal, and what was measured of it.
type Verdict struct {
	Name     string `json:"name"`
	OK       bool   `json:"ok"`
	Promise  bool   `json:"promise"` // if it is not OK, the run has failed
	Measured string `json:"measured"`
}

// Word is the verdict in a word.
func (v Verdict) Word() string {
	switch {
	case v.OK:
		return "ok"
	case v.Promise:
		return "BROKEN"
	default:
		return "missed"
	}
}

// AnyBroken reports whether a promise was broken.
func AnyBroken(verdicts []Verdict) bool {
	return slices.ContainsFunc(verdicts, func(v Verdict) bool { return v.Promise && !v.OK })
}
