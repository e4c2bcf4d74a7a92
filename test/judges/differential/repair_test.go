package differential

import (
	"context"
	"net/http"
	"regexp"
	"strings"
)

// repairRounds bounds how often an object is sent until it is accepted.
const repairRounds = 80

var quoted = regexp.MustCompile(`"([^"]*)"`)

// repair changes an object until kube-apiserver accepts it, by the causes that it gives, so that
// there are objects with nearly every field that can be stored. It returns nil if that fails.
func (s *server) repair(ctx context.Context, r *resource, namespace string, obj map[string]any) (map[string]any, error) {
	obj = cloneObject(obj)
	attempts := map[string]int{}
	for range repairRounds {
		a, err := s.send(ctx, http.MethodPost, r.collection(namespace)+"?dryRun=All", "application/json", encode(obj))
		if err != nil {
			return nil, err
		}
		if a.code < 300 {
			return obj, nil
		}
		refusal, err := decode(a.body)
		if err != nil {
			return nil, nil
		}
		causes, _ := field(refusal, "details", "causes").([]any)
		if len(causes) == 0 {
			return nil, nil
		}
		for _, c := range causes {
			f := text(field(c, "field"))
			repairField(obj, parseField(f), text(field(c, "reason")), text(field(c, "message")), attempts[f])
			attempts[f]++
		}
	}
	return nil, nil
}

// guesses are values that are right at many places.
var guesses = []any{"a", "example.com/a", "/a", "1", "10.0.0.1", "10.0.0.0/24", "a=b"}

// repairField tries something else at each attempt, at last to do without the field or what it is in.
func repairField(obj map[string]any, p path, reason, message string, attempt int) {
	v, there := lookup(obj, p)
	for len(p) > 1 && !there && reason != "FieldValueRequired" {
		p = p[:len(p)-1]
		_, there = lookup(obj, p)
		v, attempt = nil, len(guesses)
	}
	if len(p) == 0 || len(p) == 1 && p[0] == "metadata" {
		return
	}
	_, isText := v.(string)
	switch reason {
	case "FieldValueNotSupported":
		_, supported, _ := strings.Cut(message, "supported values:")
		if all := quoted.FindAllStringSubmatch(supported, -1); attempt < len(all) {
			set(obj, p, all[attempt][1])
			return
		}
	case "FieldValueRequired":
		if attempt < 2 {
			set(obj, p, guesses[attempt])
			return
		}
	case "FieldValueInvalid":
		if isText && attempt < len(guesses) {
			set(obj, p, guesses[attempt])
			return
		}
		if isNumber(v) && attempt < 2 {
			set(obj, p, []any{1, 0}[attempt])
			return
		}
	}
	if !there && len(p) > 1 {
		p = p[:len(p)-1]
	}
	remove(obj, p)
}
