package loglimit

import (
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// TestWarn: one line of a kind per interval; the next says how many were left out.
func TestWarn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var said strings.Builder
		log, l := slog.New(slog.NewTextHandler(&said, nil)), New(time.Second)
		for range 1000 {
			l.Warn(log, "one")
		}
		l.Warn(log, "two", "from", "x")
		time.Sleep(time.Second)
		l.Warn(log, "one")
		var got []string
		for line := range strings.Lines(said.String()) {
			_, text, _ := strings.Cut(strings.TrimSpace(line), "level=WARN ")
			got = append(got, text)
		}
		want := "msg=one alike_since_last=0; msg=two from=x alike_since_last=0; msg=one alike_since_last=999"
		if strings.Join(got, "; ") != want {
			t.Errorf("%s, want %s", strings.Join(got, "; "), want)
		}
	})
}

// TestAbout: errors and some warnings are told apart by what they are about.
func TestAbout(t *testing.T) {
	var said strings.Builder
	log, l := slog.New(slog.NewTextHandler(&said, nil)), New(time.Hour)
	for range 10 {
		l.Error(log, "this", "failed", "of", "this")
		l.Error(log, "that", "failed", "of", "that")
		l.WarnAbout(log, "these", "failed", "of", "these")
		l.WarnAbout(log, "those", "failed", "of", "those")
	}
	for of, level := range map[string]string{"this": "ERROR", "that": "ERROR", "these": "WARN", "those": "WARN"} {
		if n := strings.Count(said.String(), "level="+level+" msg=failed of="+of+" "); n != 1 {
			t.Errorf("%d lines about %s:\n%s", n, of, &said)
		}
	}
}

// TestOver: the end of what was said is said once, and what comes and goes all the time is one line and its end per interval.
func TestOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var said strings.Builder
		log, l := slog.New(slog.NewTextHandler(&said, nil)), New(time.Minute)
		l.Over(log, "it", "is over")
		for range 120 {
			l.WarnAbout(log, "it", "fails")
			l.WarnAbout(log, "it", "fails")
			l.Over(log, "it", "is over")
			time.Sleep(time.Second)
		}
		var got []string
		for line := range strings.Lines(said.String()) {
			_, text, _ := strings.Cut(strings.TrimSpace(line), "level=")
			got = append(got, text)
		}
		want := `WARN msg=fails alike_since_last=0; INFO msg="is over" alike_since_last=1; WARN msg=fails alike_since_last=118; INFO msg="is over" alike_since_last=1`
		if strings.Join(got, "; ") != want {
			t.Errorf("%s, want %s", strings.Join(got, "; "), want)
		}
	})
}

// TestGrowing: what comes all the time is said at intervals that double, and at short ones again when it has not come for the longest.
func TestGrowing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var said strings.Builder
		log, l := slog.New(slog.NewTextHandler(&said, nil)), Growing(time.Second, 5*time.Second)
		var at []int
		for second := range 40 {
			said.Reset()
			if second < 20 || second >= 25 {
				l.Warn(log, "fails")
			}
			if said.Len() > 0 {
				at = append(at, second)
			}
			time.Sleep(time.Second)
		}
		if got, want := fmt.Sprint(at), "[0 1 3 7 12 17 25 26 28 32 37]"; got != want {
			t.Errorf("lines at %s, want %s", got, want)
		}
	})
}
