package tree

import (
	"errors"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"
)

// What a quantity may be at most. Upstream's parser takes any exponent of 32 bits, and the first
// comparison of such a number makes it out in full: ten million digits take seconds and hundreds
// of megabytes, on each node and at each write, and nothing can end it.
const (
	maxQuantityText     = 1000
	maxQuantityExponent = 1000
)

// errQuantityTooLong refuses a quantity whose digits are too many to be compared.
var errQuantityTooLong = errors.New("a quantity may have at most 1000 characters, and an exponent of at most 1000")

// ParseQuantity is resource.ParseQuantity for text that a client has sent. Errors: those of
// resource.ParseQuantity, and one that names the bounds.
func ParseQuantity(text string) (resource.Quantity, error) {
	if len(text) > maxQuantityText || exponentOf(text) > maxQuantityExponent {
		return resource.Quantity{}, errQuantityTooLong
	}
	return resource.ParseQuantity(text)
}

// QuantityText is the canonical text of a quantity. Upstream's String loses what has no suffix: of 1e21 it makes "1"
// (kubernetes#141249). Such a quantity has an exponent here.
func QuantityText(q resource.Quantity) string {
	text := q.String()
	if again, err := resource.ParseQuantity(text); err == nil && again.Cmp(q) == 0 {
		return text
	}
	other := resource.NewDecimalQuantity(*q.AsDec(), resource.DecimalExponent)
	return other.String()
}

// exponentOf is the size of the decimal exponent of a quantity, without its sign; a great number
// instead of a greater one. 0 if it has none: E alone is a suffix.
func exponentOf(text string) (size int) {
	at := strings.IndexAny(text, "eE")
	if at < 0 {
		return 0
	}
	digits := text[at+1:]
	if digits != "" && (digits[0] == '+' || digits[0] == '-') {
		digits = digits[1:]
	}
	for _, c := range []byte(digits) {
		if c < '0' || c > '9' {
			return 0 // no quantity: upstream's parser says so
		}
		size = min(size*10+int(c-'0'), 1<<20)
	}
	return size
}
