package apiserver

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// TestTimeLimit: a request's context is one of context.WithDeadline, whoever asks it what first.
func TestTimeLimit(t *testing.T) {
	type key struct{}
	for _, x := range []struct {
		name string
		end  func(d *timeLimit, stream context.CancelFunc)
		err  error
	}{
		{"goes on", func(*timeLimit, context.CancelFunc) {}, nil},
		{"has no time left", func(*timeLimit, context.CancelFunc) { time.Sleep(time.Minute) }, context.DeadlineExceeded},
		{"its stream ends", func(_ *timeLimit, stream context.CancelFunc) { stream() }, context.Canceled},
		{"has ended", func(d *timeLimit, _ context.CancelFunc) { d.end() }, context.Canceled},
		{"has ended, and then its time", func(d *timeLimit, _ context.CancelFunc) { d.end(); time.Sleep(time.Minute) }, context.Canceled},
	} {
		for _, waits := range []bool{false, true} {
			synctest.Test(t, func(t *testing.T) {
				stream, cancel := context.WithCancel(context.WithValue(t.Context(), key{}, "v"))
				defer cancel()
				d := &timeLimit{stream: stream, at: time.Now().Add(time.Minute)}
				defer d.end()
				var child context.Context = d
				if waits {
					var stop context.CancelFunc
					child, stop = context.WithCancel(d)
					defer stop()
				}
				if at, ok := child.Deadline(); !ok || time.Until(at) != time.Minute || child.Err() != nil || child.Value(key{}) != "v" {
					t.Errorf("%s: at the beginning: %v %v, %v, %v", x.name, at, ok, child.Err(), child.Value(key{}))
				}
				x.end(d, cancel)
				synctest.Wait()
				if err := child.Err(); !errors.Is(err, x.err) || !errors.Is(context.Cause(child), x.err) {
					t.Errorf("%s, waits %v: %v because of %v, want %v", x.name, waits, err, context.Cause(child), x.err)
				}
				select {
				case <-child.Done():
					if x.err == nil {
						t.Errorf("%s, waits %v: it is done", x.name, waits)
					}
				default:
					if x.err != nil {
						t.Errorf("%s, waits %v: it is not done", x.name, waits)
					}
				}
				if err := child.Err(); !errors.Is(err, x.err) {
					t.Errorf("%s, waits %v: %v behind Done, want %v", x.name, waits, err, x.err)
				}
			})
		}
	}
}

// TestTimeLimitOfTheStream: the earlier one counts.
func TestTimeLimitOfTheStream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stream, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		d := &timeLimit{stream: stream, at: time.Now().Add(time.Minute)}
		defer d.end()
		if at, ok := d.Deadline(); !ok || time.Until(at) != time.Second {
			t.Errorf("%v %v", at, ok)
		}
		time.Sleep(time.Second)
		synctest.Wait()
		if err := d.Err(); !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
		<-d.Done()
	})
}

// BenchmarkTimeLimit is what the context of a request costs that waits for nobody.
func BenchmarkTimeLimit(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		d := timeLimit{stream: b.Context(), at: time.Now().Add(time.Minute)}
		if d.Err() != nil {
			b.Fatal()
		}
		d.end()
	}
}
