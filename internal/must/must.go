// Package must ends a test at an error that it does not expect, or when what it waits for does not come.
package must

import (
	"encoding/json"
	"io"
	"testing"
	"time"
)

// OK fails a test, and ends it, if there is an error.
func OK(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// Close closes what a test has opened, and says what is wrong with that.
func Close(t testing.TB, c io.Closer) {
	t.Helper()
	if err := c.Close(); err != nil {
		t.Error(err)
	}
}

// Await polls a condition until it says nothing more, and ends a test that it does not hold in time.
func Await(t testing.TB, within time.Duration, what string, wrong func() string) {
	t.Helper()
	for deadline := time.Now().Add(within); ; time.Sleep(5 * time.Millisecond) {
		reason := wrong()
		if reason == "" {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s: not within %s: %s", what, within, reason)
		}
	}
}

// Decode reads what a test has as JSON.
func Decode[T any](t testing.TB, text string) (v T) {
	t.Helper()
	if err := json.Unmarshal([]byte(text), &v); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	return v
}

// Encode writes a value as JSON.
func Encode(t testing.TB, v any) string {
	t.Helper()
	text, err := json.Marshal(v)
	OK(t, err)
	return string(text)
}
