package codec

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/quorate/quorate/internal/must"
	"github.com/quorate/quorate/raftstore/mvcc"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/yaml"
)

// awkward is an object whose texts YAML has many ways to write.
const awkward = `{"metadata":{"name":"a","namespace":"ns","resourceVersion":"1","annotations":{"<<":"merge","yes":"no","1":"1e3","é":"\ud83d\ude00"}},
	"data":{"lines":"one\n\n  two\n\n","tabs":"\tx\n y","long":"` + `word word word word word word word word word word word word word word word word word word word word` +
	`","date":"2026-01-02","null":"null","tilde":"~","octal":"0777","colon":"a: b","hash":"a #b","dash":"- a","empty":"","quote":"'\"","ctl":"\u0007","trail":"x  "}}`

// TestYAMLAsUpstream: objects, and lists item by item, are what upstream's library makes of their
// JSON.
func TestYAMLAsUpstream(t *testing.T) {
	all := samples(t)
	all[configMaps] = stored(t, configMaps, awkward, 42)
	all[deploys] = stored(t, deploys, `{"metadata":{"name":"d","namespace":"ns"},"spec":{"replicas":3,"big":9007199254740993,"float":1.5,"e":1e21,"small":1e-7,"list":[],"map":{},"none":null}}`, 43)
	meta := ListMeta{Revision: 99, Continue: "to<ken", Remaining: 7}
	for res, v := range all {
		for _, f := range []Format{{}, {As: AsMetadata, AsVersion: "v1"}, {As: AsTable, AsVersion: "v1"}} {
			for _, n := range []int{-1, 0, 1, 200} {
				write := func(medium string) string {
					t.Helper()
					f, w := f, httptest.NewRecorder()
					f.MediaType = medium
					if n < 0 {
						must.OK(t, Respond(w, request("/"), f).Object(http.StatusOK, res, v))
					} else {
						items := make([]*mvcc.Version, n)
						for i := range items {
							items[i] = v
						}
						must.OK(t, Respond(w, request("/"), f).List(res, meta, items))
					}
					return w.Body.String()
				}
				want, err := yaml.JSONToYAML([]byte(write(JSON)))
				must.OK(t, err)
				if got := write(YAML); got != string(want) {
					t.Errorf("%s, form %v, %d items:\n%s\nwant\n%s", res.Kind, f.As, n, got, want)
				}
			}
		}
	}
}

// firsts notes how much of an answer is there when it begins.
type firsts struct {
	*httptest.ResponseRecorder
	largest int
}

func (f *firsts) Write(b []byte) (int, error) {
	f.largest = max(f.largest, len(b))
	return f.ResponseRecorder.Write(b)
}

func large(t *testing.T, bytes int) *mvcc.Version {
	return stored(t, configMaps, fmt.Sprintf(`{"metadata":{"name":"a","namespace":"ns"},"data":{"k":%q}}`, strings.Repeat("x", bytes)), 42)
}

// TestYAMLIsNotThereAsAWhole: a list is sent item by item, and a table that is not is bounded.
func TestYAMLIsNotThereAsAWhole(t *testing.T) {
	items := make([]*mvcc.Version, 200)
	for i := range items {
		items[i] = large(t, 100<<10)
	}
	meta := ListMeta{Revision: 1, Remaining: -1}
	w := &firsts{ResponseRecorder: httptest.NewRecorder()}
	must.OK(t, Respond(w, request("/"), Format{MediaType: YAML}).List(configMaps, meta, items))
	if w.Body.Len() < 200*(100<<10) || w.largest > 1<<20 {
		t.Errorf("%d bytes came in pieces of up to %d", w.Body.Len(), w.largest)
	}
	for _, f := range []Format{{MediaType: YAML}, {MediaType: JSON, Pretty: true}} {
		f.As, f.AsVersion, f.IncludeObject = AsTable, "v1", "Object"
		w := httptest.NewRecorder()
		if err := Respond(w, request("/"), f).List(configMaps, meta, items); !apierrors.IsBadRequest(err) || w.Body.Len() > 0 {
			t.Errorf("a large table, %+v: %v, %d bytes", f, err, w.Body.Len())
		}
	}
}

// TestYAMLTakesTurns: few large answers become YAML at once; those that cannot wait are refused,
// and small ones need not wait.
func TestYAMLTakesTurns(t *testing.T) {
	for range yamlAtOnce {
		yamlPlaces <- struct{}{}
	}
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	write := func(bytes int) error {
		return Respond(httptest.NewRecorder(), request("/").WithContext(gone), Format{MediaType: YAML}).Object(http.StatusOK, configMaps, large(t, bytes))
	}
	if err := write(2 * smallYAML); !apierrors.IsTooManyRequests(err) {
		t.Errorf("a large one: %v", err)
	}
	must.OK(t, write(100))
	for range yamlAtOnce {
		<-yamlPlaces
	}
	must.OK(t, write(2*smallYAML))
	if len(yamlPlaces) != 0 {
		t.Errorf("%d places are taken", len(yamlPlaces))
	}
}
