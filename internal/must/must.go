// Package must ends a test at an error that it does not expect.
package must

import "testing"

// OK fails a test, and ends it, if there is an error.
func OK(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
