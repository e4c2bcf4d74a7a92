package objects

import (
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/quorate/quorate/apiserver/types/kinds"
	"github.com/quorate/quorate/internal/loglimit"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

type panicked string

func (p panicked) Where() string { return string(p) }
func (p panicked) Stack() string { return "goroutine 7" }

// TestPanicsAreLogged: a validation that ended with a panic is logged with its resource and its
// stack, which the client is not told; once for each place and resource in a minute.
func TestPanicsAreLogged(t *testing.T) {
	var said strings.Builder
	s := &Store{Config: Config{Log: slog.New(slog.NewTextHandler(&said, nil))}, panics: loglimit.New(time.Hour)}
	for range 10 {
		for _, plural := range []string{"pods", "nodes"} {
			for _, where := range []string{"f:1", "g:2"} {
				o := &Request{Store: s, Resource: &kinds.Resource{Plural: plural, Kind: "A"}}
				err := o.Invalid("a", field.ErrorList{
					field.Required(field.NewPath("spec"), ""),
					{Type: field.ErrorTypeInternal, Field: "<nil>", BadValue: panicked(where), Detail: "it ended"},
				})
				if err == nil || !strings.Contains(err.Error(), "it ended") || strings.Contains(err.Error(), where) || strings.Contains(err.Error(), "goroutine") {
					t.Fatalf("the client is told %v", err)
				}
			}
		}
	}
	lines := strings.Split(strings.TrimSpace(said.String()), "\n")
	if len(lines) != 4 {
		t.Fatalf("%d lines:\n%s", len(lines), &said)
	}
	if want := `resource=pods err="it ended" at=f:1 stack="goroutine 7" alike_since_last=0`; !strings.Contains(lines[0], "level=ERROR") || !strings.HasSuffix(lines[0], want) {
		t.Errorf("%s, want %s", lines[0], want)
	}
}
