package webhook

import (
	"encoding/base64"

	admissionv1 "k8s.io/api/admission/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	webhookrequest "k8s.io/apiserver/pkg/admission/plugin/webhook/request"
)

// allowed reads an answer that allows the request, perhaps with a patch, and says nothing else that
// counts. It is false for any other one, also for one that upstream reads the same: it takes
// nothing that upstream refuses.
func allowed(raw []byte, version schema.GroupVersion, uid string, mutating bool) (*webhookrequest.AdmissionResponse, bool) {
	s := scanner{rest: raw}
	var kind, apiVersion, answered, patch, patchType string
	var allows bool
	ok := s.object(func(name string) bool {
		switch name {
		case "kind":
			return s.once(0) && s.text(&kind)
		case "apiVersion":
			return s.once(1) && s.text(&apiVersion)
		case "response":
			return s.once(2) && s.object(func(name string) bool {
				switch name {
				case "uid":
					return s.once(3) && s.text(&answered)
				case "allowed":
					allows = true
					return s.once(4) && s.word("true")
				case "patch":
					return s.once(5) && s.text(&patch)
				case "patchType":
					return s.once(6) && s.text(&patchType)
				case "status": // it counts for those that are refused
					return s.once(7) && s.status()
				}
				return false
			})
		}
		return false
	})
	if s.space(); !ok || len(s.rest) != 0 || !allows || answered != uid || kind != "AdmissionReview" || apiVersion != version.String() {
		return nil, false
	}
	out := &webhookrequest.AdmissionResponse{Allowed: true}
	if patch == "" && patchType == "" {
		return out, !s.seen(5) && !s.seen(6)
	}
	if !mutating || patchType != string(admissionv1.PatchTypeJSONPatch) || version != v1 {
		return nil, false
	}
	var err error
	out.Patch, err = base64.StdEncoding.DecodeString(patch)
	out.PatchType = admissionv1.PatchTypeJSONPatch
	return out, err == nil && len(out.Patch) > 0
}

// scanner reads JSON that needs no care: strings of printable ASCII without escapes, each name
// once. Its methods are false for all else.
type scanner struct {
	rest  []byte
	names uint
}

// once notes a name, and is false for one that was there before.
func (s *scanner) once(name uint) bool {
	if s.seen(name) {
		return false
	}
	s.names |= 1 << name
	return true
}

func (s *scanner) seen(name uint) bool { return s.names&(1<<name) != 0 }

func (s *scanner) space() {
	for len(s.rest) > 0 && (s.rest[0] == ' ' || s.rest[0] == '\n' || s.rest[0] == '\r' || s.rest[0] == '\t') {
		s.rest = s.rest[1:]
	}
}

// word reads a text after spaces.
func (s *scanner) word(w string) bool {
	s.space()
	if len(s.rest) < len(w) || string(s.rest[:len(w)]) != w {
		return false
	}
	s.rest = s.rest[len(w):]
	return true
}

// text reads a string.
func (s *scanner) text(into *string) bool {
	if !s.word(`"`) {
		return false
	}
	for i, c := range s.rest {
		switch {
		case c == '"':
			*into = string(s.rest[:i])
			s.rest = s.rest[i+1:]
			return true
		case c < ' ' || c > '~' || c == '\\':
			return false
		}
	}
	return false
}

// object reads an object, its values by a function of their names.
func (s *scanner) object(value func(name string) bool) bool {
	if !s.word("{") {
		return false
	}
	if s.word("}") {
		return true
	}
	for {
		var name string
		if !s.text(&name) || !s.word(":") || !value(name) {
			return false
		}
		if s.word("}") {
			return true
		}
		if !s.word(",") {
			return false
		}
	}
}

// status reads a Status without lists.
func (s *scanner) status() bool {
	return s.object(func(name string) bool {
		var ignored string
		switch name {
		case "metadata":
			return s.once(8) && s.word("{") && s.word("}")
		case "code":
			return s.once(9) && s.code()
		case "status":
			return s.once(10) && s.text(&ignored)
		case "message":
			return s.once(11) && s.text(&ignored)
		case "reason":
			return s.once(12) && s.text(&ignored)
		}
		return false
	})
}

// code reads a whole number of at most nine digits.
func (s *scanner) code() bool {
	s.space()
	n := 0
	for n < len(s.rest) && s.rest[n] >= '0' && s.rest[n] <= '9' {
		n++
	}
	if n == 0 || n > 9 || n > 1 && s.rest[0] == '0' {
		return false
	}
	s.rest = s.rest[n:]
	return true
}
