package codec

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// InOrder sorts strict-decoding findings by where in a JSON document they are, as
// a decoder would meet them. Bodies in other media are not in any order that a
// client could know; their findings stay as they are.
func (b Body) InOrder(findings []string) []string {
	if !b.ordered {
		return findings
	}
	wanted := map[string]int{}
	for _, f := range findings {
		wanted[f] = len(wanted) - len(findings) // those that are not found stay in front
	}
	s := scanner{d: json.NewDecoder(bytes.NewReader(b.JSON)), wanted: wanted}
	s.d.UseNumber()
	s.value("")
	sorted := slices.Clone(findings)
	slices.SortStableFunc(sorted, func(x, y string) int { return wanted[x] - wanted[y] })
	return sorted
}

// scanner walks a document that has been parsed before.
type scanner struct {
	d      *json.Decoder
	wanted map[string]int // finding -> its place
	places int
}

func (s *scanner) found(finding string) {
	if at, ok := s.wanted[finding]; ok && at < 0 {
		s.places++
		s.wanted[finding] = s.places
	}
}

// value reads one value at a path; false at the end.
func (s *scanner) value(path string) bool {
	t, err := s.d.Token()
	if err != nil {
		return false
	}
	switch t {
	case json.Delim('{'):
		return s.fields(path)
	case json.Delim('['):
		for i := 0; s.d.More(); i++ {
			if !s.value(path + "[" + strconv.Itoa(i) + "]") {
				return false
			}
		}
		_, err = s.d.Token()
	}
	return err == nil
}

func (s *scanner) fields(path string) bool {
	seen := map[string]bool{}
	for s.d.More() {
		t, err := s.d.Token()
		name, ok := t.(string)
		if err != nil || !ok {
			return false
		}
		at := strings.TrimPrefix(path+"."+name, ".")
		if seen[name] {
			s.found(fmt.Sprintf("duplicate field %q", at))
		}
		seen[name] = true
		s.found(fmt.Sprintf("unknown field %q", at))
		if !s.value(at) {
			return false
		}
	}
	_, err := s.d.Token()
	return err == nil
}
