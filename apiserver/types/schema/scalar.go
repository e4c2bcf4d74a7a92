package schema

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/quorate/quorate/apiserver/types/tree"
	"k8s.io/apimachinery/pkg/api/resource"
)

// errMismatch says that a value has another type than its field; the walk turns
// it into text that names the field.
var errMismatch = errors.New("type mismatch")

// fitScalar checks a value against the shapes that have their own form in JSON
// and returns it in upstream's form.
func fitScalar(s shape, v any) (fitted any, changed bool, err error) {
	switch s {
	case shapeInt32:
		return fitInt(v, math.MinInt32, math.MaxInt32)
	case shapeInt64:
		return fitInt(v, math.MinInt64, math.MaxInt64)
	case shapeFloat:
		switch x := v.(type) {
		case int64, float64:
			return v, false, nil
		case json.Number:
			if f, err := x.Float64(); err == nil {
				return f, true, nil
			}
		}
	case shapeIntOrString:
		if _, ok := v.(string); ok {
			return v, false, nil
		}
		return fitInt(v, math.MinInt32, math.MaxInt32)
	case shapeQuantity:
		return fitQuantity(v)
	case shapeBytes:
		if text, ok := v.(string); ok {
			return fitBytes(v, text)
		}
		if list, ok := v.([]any); ok && len(list) == 0 { // no bytes, as Go's decoder has it
			return "", true, nil
		}
	case shapeTime:
		if text, ok := v.(string); ok {
			return fitTime(v, text, time.RFC3339)
		}
	case shapeMicroTime:
		if text, ok := v.(string); ok {
			return fitTime(v, text, "2006-01-02T15:04:05.000000Z07:00")
		}
	}
	return nil, false, errMismatch
}

func fitInt(v any, lowest, highest int64) (any, bool, error) {
	switch x := v.(type) {
	case int64:
		if x >= lowest && x <= highest {
			return v, false, nil
		}
	case float64:
		// Beyond 2^53 a float is not exactly the number that was sent.
		if i := int64(x); float64(i) == x && math.Abs(x) <= 1<<53 && i >= lowest && i <= highest {
			return i, true, nil
		}
	}
	return nil, false, errMismatch
}

func fitQuantity(v any) (any, bool, error) {
	var text string
	switch x := v.(type) {
	case string:
		if canonicalQuantity(x) {
			return v, false, nil
		}
		text = strings.TrimFunc(x, printedSpace)
	case int64:
		text = strconv.FormatInt(x, 10)
	case float64:
		text = strconv.FormatFloat(x, 'f', -1, 64)
	case json.Number:
		text = x.String()
	default:
		// Upstream hands the bytes to the quantity's parser as they are.
		return nil, false, resource.ErrFormatWrong
	}
	q, err := tree.ParseQuantity(text)
	if err != nil {
		return nil, false, err
	}
	return tree.QuantityText(q), true, nil
}

// printedSpace is what upstream leaves out around a quantity. It does so in the bytes of JSON, in which
// other spaces are escaped, and are not left out.
func printedSpace(r rune) bool { return r >= ' ' && unicode.IsSpace(r) }

// canonicalQuantity recognizes the common quantities that print as they are:
// up to three digits without a leading zero, and a suffix.
func canonicalQuantity(s string) bool {
	if s == "0" {
		return true
	}
	i := 0
	for i < len(s) && s[i] >= '0' && s[i] <= '9' {
		i++
	}
	if i == 0 || i > 3 || s[0] == '0' {
		return false
	}
	switch s[i:] {
	case "", "m", "k", "M", "G", "T", "Ki", "Mi", "Gi", "Ti":
		return true
	}
	return false
}

// fitBytes checks base64. Line breaks are legal in it and not kept.
func fitBytes(v any, text string) (any, bool, error) {
	if plainBase64(text) {
		return v, false, nil
	}
	b, err := base64.StdEncoding.DecodeString(text)
	if err != nil {
		return nil, false, err
	}
	return base64.StdEncoding.EncodeToString(b), true, nil
}

// plainBase64 recognizes padded base64 without line breaks and without stray
// bits behind the end.
func plainBase64(s string) bool {
	if len(s)%4 != 0 {
		return false
	}
	body := s
	for i := 0; i < 2 && len(body) > 0 && body[len(body)-1] == '='; i++ {
		body = body[:len(body)-1]
	}
	if len(body) != len(s) {
		// The bits that the padding cuts off must be zero to print the same.
		last := base64Value[body[len(body)-1]]
		if last&(1<<(2*(len(s)-len(body)))-1) != 0 {
			return false
		}
	}
	for i := 0; i < len(body); i++ {
		if base64Value[body[i]] < 0 {
			return false
		}
	}
	return true
}

var base64Value = func() (table [256]int8) {
	for i := range table {
		table[i] = -1
	}
	const alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
	for i := 0; i < len(alphabet); i++ {
		table[alphabet[i]] = int8(i)
	}
	return table
}()

// fitTime checks a time in the layout and brings it to UTC.
func fitTime(v any, text, layout string) (any, bool, error) {
	t, err := time.Parse(layout, text)
	if err != nil {
		return nil, false, err
	}
	// The first and last hours of time are in other years in UTC, that nobody can read.
	if year := t.UTC().Year(); year < 0 || year > 9999 {
		return nil, false, fmt.Errorf("parsing time %q: year outside of range [0,9999]", text)
	}
	var buf [40]byte
	canonical := t.UTC().AppendFormat(buf[:0], layout)
	if string(canonical) == text {
		return v, false, nil
	}
	return string(canonical), true, nil
}
