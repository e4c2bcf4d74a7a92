package must

import (
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"
)

// failing is a test that fails: what it says, and whether it ends.
type failing struct {
	testing.TB
	said string
}

func (f *failing) Helper()           {}
func (f *failing) Error(args ...any) { f.said += fmt.Sprint(args...) }
func (f *failing) Fatal(args ...any) { f.Error(args...); f.said += ", ended"; runtime.Goexit() }
func (f *failing) Fatalf(format string, args ...any) {
	f.Fatal(fmt.Sprintf(format, args...))
}

type door struct{ err error }

func (d door) Close() error { return d.err }

func TestFailures(t *testing.T) {
	calls := 0
	for _, c := range []struct {
		name string
		f    func(t testing.TB)
		want string
	}{
		{"no error", func(t testing.TB) { OK(t, nil) }, ""},
		{"an error", func(t testing.TB) { OK(t, errors.New("no")) }, "no, ended"},
		{"closed", func(t testing.TB) { Close(t, door{}) }, ""},
		{"not closed", func(t testing.TB) { Close(t, door{errors.New("stuck")}) }, "stuck"},
		{"JSON", func(t testing.TB) { OK(t, errors.New(Encode(t, Decode[[]int](t, "[1, 2]")))) }, "[1,2], ended"},
		{"not JSON", func(t testing.TB) { Decode[int](t, "{}") }, "json: cannot unmarshal object into Go value of type int: {}, ended"},
		{"nothing that JSON has", func(t testing.TB) { Encode(t, make(chan int)) }, "json: unsupported type: chan int, ended"},
		{"what comes", func(t testing.TB) {
			Await(t, time.Minute, "the third", func() string { calls++; return strings.Repeat("x", 3-calls) })
		}, ""},
		{"what does not come", func(t testing.TB) {
			Await(t, time.Millisecond, "the end", func() string { return "it goes on" })
		}, "the end: not within 1ms: it goes on, ended"},
	} {
		f := &failing{TB: t}
		done := make(chan struct{})
		go func() { defer close(done); c.f(f) }()
		<-done
		if f.said != c.want {
			t.Errorf("%s: %q, want %q", c.name, f.said, c.want)
		}
	}
}
