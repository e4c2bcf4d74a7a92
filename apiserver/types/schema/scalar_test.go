package schema

import (
	"encoding/base64"
	"encoding/json"
	"math"
	"strings"
	"testing"

	"github.com/quorate/quorate/internal/must"
	"k8s.io/apimachinery/pkg/api/resource"
)

// TestFitScalarBounds: what is too much for its type is of another type, and a float is an integer
// where it is exactly the number that was sent.
func TestFitScalarBounds(t *testing.T) {
	const exact = 1 << 53
	for _, c := range []struct {
		shape shape
		v     any
		want  any // nil: a mismatch
	}{
		{shapeInt32, int64(math.MaxInt32), int64(math.MaxInt32)},
		{shapeInt32, int64(math.MinInt32), int64(math.MinInt32)},
		{shapeInt32, int64(math.MaxInt32 + 1), nil},
		{shapeInt32, int64(math.MinInt32 - 1), nil},
		{shapeInt32, float64(math.MaxInt32), int64(math.MaxInt32)},
		{shapeInt32, float64(math.MinInt32), int64(math.MinInt32)},
		{shapeInt32, float64(math.MaxInt32 + 1), nil},
		{shapeInt32, float64(math.MinInt32 - 1), nil},
		{shapeInt32, 1.0, int64(1)},
		{shapeInt32, 1.5, nil},
		{shapeInt32, "1", nil},
		{shapeInt64, int64(math.MaxInt64), int64(math.MaxInt64)},
		{shapeInt64, int64(math.MinInt64), int64(math.MinInt64)},
		{shapeInt64, float64(exact), int64(exact)},
		{shapeInt64, float64(-exact), int64(-exact)},
		{shapeInt64, float64(exact + 2), nil},
		{shapeInt64, float64(-exact - 2), nil},
		{shapeInt64, 0.5, nil},
		{shapeInt64, 1e300, nil},
		{shapeIntOrString, "", ""},
		{shapeIntOrString, int64(math.MaxInt32 + 1), nil},
		{shapeIntOrString, true, nil},
		{shapeFloat, int64(1), int64(1)},
		{shapeFloat, 1.5, 1.5},
		{shapeFloat, "1", nil},
	} {
		got, changed, err := fitScalar(c.shape, c.v)
		if c.want == nil {
			if err != errMismatch {
				t.Errorf("%v of shape %d: %v, %v", c.v, c.shape, got, err)
			}
		} else if err != nil || got != c.want || changed != (c.v != c.want) {
			t.Errorf("%v of shape %d: %v, changed: %v, %v", c.v, c.shape, got, changed, err)
		}
	}
}

// TestFitQuantity: a quantity is as upstream prints it, and those that most objects have are not
// parsed for that.
func TestFitQuantity(t *testing.T) {
	check := func(text string) {
		t.Helper()
		got, changed, err := fitQuantity(text)
		q, wantErr := resource.ParseQuantity(text)
		if wantErr != nil {
			if err == nil || err.Error() != wantErr.Error() {
				t.Errorf("%q: %v, upstream %v", text, err, wantErr)
			}
		} else if want := q.String(); err != nil || got != want || text != want && !changed {
			t.Errorf("%q: %v, changed: %v, %v; upstream %s", text, got, changed, err, want)
		}
	}
	for _, number := range []string{"", "0", "00", "01", "1", "9", "10", "99", "100", "909", "999", "1000", "1024", "1.5", "-1", "+1"} {
		for _, suffix := range []string{"", "n", "m", "k", "M", "G", "T", "P", "Ki", "Mi", "Gi", "Ti", "Pi", "x", "/", ":", "e3"} {
			check(number + suffix)
		}
	}
	for _, text := range []string{"0", "1", "9", "10", "100", "109", "999", "500m", "64Mi", "1Gi", "2Ti"} {
		if !canonicalQuantity(text) {
			t.Errorf("%s is parsed", text)
		}
	}
	for text, want := range map[string]string{ // upstream's String loses what has no suffix
		"1000000000000000000000": "1e21", "-2000000000000000000000": "-2e21", "1000000000000000000000000": "1e24",
		"1234000000000000000000000": "1234e21", "1000000000000000000001": "1000000000000000000001",
	} {
		got, _, err := fitQuantity(text)
		if err != nil || got != want {
			t.Errorf("%s: %v, %v, want %s", text, got, err, want)
			continue
		}
		was, now := resource.MustParse(text), resource.MustParse(got.(string))
		if was.Cmp(now) != 0 {
			t.Errorf("%s is stored as %s", text, got)
		}
	}
	for text, want := range map[string]string{"1e-1000": "1e-3", "1e-9": "1e-3", "1n": "1m", "1001u": "2m", "5e-3": "5e-3", "1e3": "1e3"} {
		got, _, err := fitQuantity(text)
		if got = milli(got); err != nil || got != want {
			t.Errorf("%s in a list of resources: %v, %v, want %s", text, got, err, want)
		}
	}
	for _, text := range []string{`" 1Gi"`, `"1Gi  "`, `"\u20031Gi"`, "\"\u20031Gi\"", `"1 Gi"`, `"\t1Gi"`, `"  "`} {
		var decoded string
		must.OK(t, json.Unmarshal([]byte(text), &decoded))
		var q resource.Quantity
		wantErr := json.Unmarshal([]byte(text), &q)
		got, _, err := fitQuantity(decoded)
		escaped := strings.Contains(text, `\u`) // a space that cannot be told from one that is not escaped
		if (err == nil) != (wantErr == nil) && !escaped || err == nil && got != "1Gi" {
			t.Errorf("%s: %v, %v, want %v, %v", text, got, err, q.String(), wantErr)
		}
	}
	if got, _, err := fitQuantity(int64(2000)); got != "2k" || err != nil {
		t.Errorf("2000: %v, %v", got, err)
	}
	if got, _, err := fitQuantity(0.5); got != "500m" || err != nil {
		t.Errorf("0.5: %v, %v", got, err)
	}
	if _, _, err := fitQuantity(true); err != resource.ErrFormatWrong {
		t.Errorf("true: %v", err)
	}
}

// TestFitBytes: of all short texts of these characters, those of base64 are taken, as the library
// would write them; it is asked only about those that it would write in another way.
func TestFitBytes(t *testing.T) {
	const characters = "AQw/9+=\n-"
	var all func(text string)
	all = func(text string) {
		got, changed, err := fitBytes(text, text)
		b, wantErr := base64.StdEncoding.DecodeString(text)
		want := base64.StdEncoding.EncodeToString(b)
		switch {
		case wantErr != nil:
			if err == nil || err.Error() != wantErr.Error() {
				t.Fatalf("%q: %v, the library: %v", text, err, wantErr)
			}
		case err != nil || got != want || changed != (text != want):
			t.Fatalf("%q: %q, changed: %v, %v; want %q", text, got, changed, err, want)
		}
		if len(text) < 5 {
			for _, c := range characters {
				all(text + string(c))
			}
		}
	}
	all("")
	for _, text := range []string{strings.Repeat("A", 8), "AAAAAA==", "AAAAAAA=", "AAA=AAA=", "AAAA===="} {
		got, _, err := fitBytes(text, text)
		if _, wantErr := base64.StdEncoding.DecodeString(text); (err == nil) != (wantErr == nil) || err == nil && got != text {
			t.Errorf("%q: %v, %v; the library: %v", text, got, err, wantErr)
		}
	}
}

// TestFitTime: times are written in UTC, in the years that four digits can say.
func TestFitTime(t *testing.T) {
	for _, c := range []struct {
		shape           shape
		text, want, err string
	}{
		{shapeTime, "2026-01-02T03:04:05Z", "2026-01-02T03:04:05Z", ""},
		{shapeTime, "2026-01-02T03:04:05+01:00", "2026-01-02T02:04:05Z", ""},
		{shapeTime, "2026-01-02T03:04:05.9Z", "2026-01-02T03:04:05Z", ""},
		{shapeTime, "0000-01-01T00:00:00Z", "0000-01-01T00:00:00Z", ""},
		{shapeTime, "0000-01-01T00:00:00+00:01", "", "year outside of range [0,9999]"},
		{shapeTime, "9999-12-31T23:59:59Z", "9999-12-31T23:59:59Z", ""},
		{shapeTime, "9999-12-31T23:59:59-00:01", "", "year outside of range [0,9999]"},
		{shapeTime, "2026-01-02", "", "cannot parse"},
		{shapeMicroTime, "2026-01-02T03:04:05.000006+01:00", "2026-01-02T02:04:05.000006Z", ""},
		{shapeMicroTime, "2026-01-02T03:04:05Z", "", "cannot parse"},
	} {
		got, changed, err := fitScalar(c.shape, c.text)
		if c.err != "" {
			if err == nil || !strings.Contains(err.Error(), c.err) {
				t.Errorf("%s: %v, %v; want %s", c.text, got, err, c.err)
			}
		} else if err != nil || got != c.want || changed != (c.text != c.want) {
			t.Errorf("%s: %v, changed: %v, %v; want %s", c.text, got, changed, err, c.want)
		}
	}
	if _, _, err := fitScalar(shapeTime, int64(1)); err != errMismatch {
		t.Errorf("a number as a time: %v", err)
	}
}
