package service

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/quorate/quorate/internal/must"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// TestSpecs runs testdata/specs.txt: what a write makes of a Service's spec. A case is
//
//	== title
//	have IPv4 IPv6  the families of the cluster; without it, IPv4
//	old {...}       the stored spec; without it, a create
//	new {...}       the spec that is written
//	! text          one error of Validate, or if there is none, of Allocate
//	= {...}         the spec after Allocate, if there is no error
//	held ...        the addresses and ports that it holds then
func TestSpecs(t *testing.T) {
	raw, err := os.ReadFile("testdata/specs.txt")
	must.OK(t, err)
	for _, block := range strings.Split("\n"+string(raw), "\n== ")[1:] {
		title, body, _ := strings.Cut(block, "\n")
		t.Run(title, func(t *testing.T) { runSpec(t, body) })
	}
}

// sequence is a pool that gives away its addresses and ports in their order. It has IPv4
// addresses from 10.0.0.1 to 10.0.0.3, IPv6 addresses from fd00::1 to fd00::3, and the ports
// 30000 to 30003.
type sequence struct {
	families []corev1.IPFamily
	given    map[string]bool
}

func (p *sequence) Families() []corev1.IPFamily { return p.families }

func (p *sequence) Address(family corev1.IPFamily, want string) (string, error) {
	from := "10.0.0."
	if family == corev1.IPv6Protocol {
		from = "fd00::"
	}
	return p.give(want, from, 1)
}

func (p *sequence) Port(want int32) (int32, error) {
	text := ""
	if want != 0 {
		text = fmt.Sprint(want)
	}
	got, err := p.give(text, "3000", 0)
	var n int32
	if err == nil {
		_, err = fmt.Sscan(got, &n)
	}
	return n, err
}

func (p *sequence) give(want, from string, first int) (string, error) {
	for i := first; i <= 3; i++ {
		if s := fmt.Sprint(from, i); (want == "" || want == s) && !p.given[s] {
			p.given[s] = true
			return s, nil
		}
	}
	if want != "" {
		return "", errors.New("not to be had")
	}
	return "", ErrFull
}

func runSpec(t *testing.T, body string) {
	pool := &sequence{families: []corev1.IPFamily{corev1.IPv4Protocol}, given: map[string]bool{}}
	var old, s *corev1.ServiceSpec
	var want, held string
	var refused []string
	for _, line := range strings.Split(body, "\n") {
		word, rest, _ := strings.Cut(line, " ")
		switch word {
		case "have":
			pool.families = nil
			for _, f := range strings.Fields(rest) {
				pool.families = append(pool.families, corev1.IPFamily(f))
			}
		case "old":
			old = specOf(t, rest)
		case "new":
			s = specOf(t, rest)
		case "!":
			refused = append(refused, rest)
		case "=":
			want = rest
		case "held":
			held = rest
		case "", "#":
		default:
			t.Fatalf("what is %q?", line)
		}
	}
	Normalize(s, old)
	errs, err := Allocate(s, old, pool)
	var got []string
	for _, e := range errs {
		got = append(got, e.Error())
	}
	if err != nil {
		got = append(got, err.Error())
	}
	if !slices.Equal(got, refused) {
		t.Errorf("got  ! %s\nwant ! %s", strings.Join(got, "\n     ! "), strings.Join(refused, "\n     ! "))
	}
	if len(got) > 0 {
		return
	}
	if out := textOf(t, s); out != want {
		t.Errorf("got  = %s\nwant = %s", out, want)
	}
	addresses, ports := Held(s)
	if got := strings.Trim(fmt.Sprint(addresses)+fmt.Sprint(ports), "[]"); held != "" && strings.ReplaceAll(got, "][", " ") != held {
		t.Errorf("holds %s, want %s", got, held)
	}
}

func specOf(t *testing.T, text string) *corev1.ServiceSpec {
	t.Helper()
	out := new(corev1.ServiceSpec)
	if err := json.Unmarshal([]byte(text), out); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	return out
}

// textOf is a spec as JSON with its fields in the order of the alphabet.
func textOf(t *testing.T, s *corev1.ServiceSpec) string {
	t.Helper()
	fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(s)
	must.OK(t, err)
	out, err := json.Marshal(fields)
	must.OK(t, err)
	return string(out)
}
