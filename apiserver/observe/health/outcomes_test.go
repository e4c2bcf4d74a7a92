package health

import (
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// TestOutcomes: what the log says of a check that is asked again and again.
func TestOutcomes(t *testing.T) {
	var failed = errors.New("why")
	for _, x := range []struct {
		name  string
		steps []step
		want  string
	}{
		{"it passes", []step{{nil, time.Hour, time.Second}}, ""},
		{"at the start", []step{{failed, 5 * time.Second, time.Millisecond}, {nil, 20 * time.Second, time.Second}, {nil, time.Hour, time.Second}},
			"INFO health check has not passed yet, INFO health check passes"},
		{"for long", []step{{nil, time.Second, time.Second}, {failed, 150 * time.Second, time.Millisecond}},
			"WARN health check failed, WARN health check failed, WARN health check failed"},
		{"and back", []step{{nil, time.Second, time.Second}, {failed, 30 * time.Second, time.Second}, {nil, time.Minute, time.Second}},
			"WARN health check failed, INFO health check passes again"},
		{"it flaps", append([]step{{nil, time.Second, time.Second}}, flapping(failed)...),
			"WARN health check failed, INFO health check passes again, WARN health check failed"},
	} {
		t.Run(x.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var said strings.Builder
				log := slog.New(slog.NewTextHandler(&said, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
					if a.Key != slog.LevelKey && a.Key != slog.MessageKey {
						return slog.Attr{}
					}
					return a
				}}))
				o := outcomes{of: map[[2]string]*outcome{}}
				for _, s := range x.steps {
					for began := time.Now(); time.Since(began) < s.takes; time.Sleep(s.every) {
						o.note(log, "readyz", "a", s.err)
					}
				}
				got := strings.NewReplacer("level=", "", "msg=", "", `"`, "", "\n", ", ").Replace(said.String())
				if got = strings.TrimSuffix(got, ", "); got != x.want {
					t.Errorf("%s\nwant %s", got, x.want)
				}
			})
		})
	}
}

type step struct {
	err          error
	takes, every time.Duration
}

// flapping is a check whose outcome changes at each of 25 s.
func flapping(failed error) (steps []step) {
	for range 12 {
		steps = append(steps, step{failed, time.Second, time.Second}, step{nil, time.Second, time.Second})
	}
	return append(steps, step{failed, time.Second, time.Second})
}
