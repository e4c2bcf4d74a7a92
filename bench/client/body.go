package client

import (
	"bytes"
	"errors"
	"math/rand/v2"
)

// Refused reports whether an error is a server's refusal with a code.
func Refused(err error, code int) bool {
	var refusal *Refusal
	return errors.As(err, &refusal) && refusal.Code == code
}

// letters make values that need no escapes and do not compress to nothing.
const letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_"

// Text is a value of some length, the same in every run for the same seed and number.
func Text(seed, number uint64, length int) string {
	r := rand.New(rand.NewPCG(seed, number))
	b := make([]byte, length)
	for i := range b {
		b[i] = letters[r.IntN(len(letters))]
	}
	return string(b)
}

// ErrNoVersion is the error of an answer in which no resourceVersion is found.
var ErrNoVersion = errors.New("an answer has no resourceVersion")

// VersionOf finds the first resourceVersion in an encoded object or list: that is the object's or the list's own.
func VersionOf(raw []byte) ([]byte, error) {
	v, ok := Between(raw, `"resourceVersion":"`, '"')
	if !ok || len(v) == 0 {
		return nil, ErrNoVersion
	}
	return v, nil
}

// Between is what stands in a text behind a key and before an end.
func Between(raw []byte, key string, end byte) ([]byte, bool) {
	_, rest, ok := bytes.Cut(raw, []byte(key))
	v, _, ended := bytes.Cut(rest, []byte{end})
	return v, ok && ended
}
