package apiserver_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/quorate/quorate/apiserver"
	"github.com/quorate/quorate/apiserver/admission"
	"github.com/quorate/quorate/apiserver/admission/plugins"
	"github.com/quorate/quorate/apiserver/admission/suspension"
	"github.com/quorate/quorate/apiserver/admission/upstream"
	"github.com/quorate/quorate/consistency"
	"github.com/quorate/quorate/internal/must"
	"github.com/quorate/quorate/proto"
	"github.com/quorate/quorate/test/harness/story"
)

// TestScenarios plays testdata/*.txt, each to a server of its own. The language is that
// of package story, with what testdata/README.md adds.
func TestScenarios(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no scenarios: %v", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			t.Parallel()
			s := &scenario{t: t, limits: apiserver.Limits{Bookmark: time.Hour}}
			tale, err := s.language().Story(file)
			must.OK(t, err)
			must.OK(t, tale.Run(t.Context(), s.send, nil))
		})
	}
}

// scenario is the server of one story, and what the story says about it.
type scenario struct {
	t *testing.T
	// env is nil until the first request.
	env         *env
	limits      apiserver.Limits
	controllers bool
	admission   bool
	ttl         time.Duration // of Events
	hook        *convertHook
}

// server returns the server, which begins with the first request.
func (s *scenario) server() *env {
	if s.env == nil {
		begin := newEnv
		if s.admission {
			begin = newAdmittingEnv
		}
		s.env = begin(s.t, func(c *apiserver.Config) {
			c.Limits, c.GarbageCollector, c.EventTTL = s.limits, s.controllers, s.ttl
		})
		if s.controllers {
			s.env.runControllers()
		}
		s.env.lead()
	}
	return s.env
}

func (s *scenario) send(r *http.Request) (*http.Response, error) {
	e := s.server()
	u, err := url.Parse(e.url)
	if err != nil {
		return nil, err
	}
	r.URL.Scheme, r.URL.Host = u.Scheme, u.Host
	return e.client.Do(r)
}

// defaultPlugins are the admission plugins that are on by default.
func defaultPlugins(t testing.TB, c *apiserver.Config, convert upstream.Convert) admission.Interface {
	log := slog.New(slog.DiscardHandler)
	chain, err := plugins.New(plugins.Config{
		Store: c.Store, Authorizer: c.Authorizer, Kinds: c.Kinds, Convert: convert, Resolve: c.Resolve, Log: log,
		Suspensions: suspension.NewView(c.Store, time.Now, log),
		Confirm: func(ctx context.Context) error {
			_, err := c.Reads.Await(ctx, consistency.Plan{Mode: consistency.MostRecent})
			return err
		},
	})
	must.OK(t, err)
	return chain
}

// language is what scenarios say beside what all stories do.
func (s *scenario) language() story.Language {
	return story.Language{
		Directives: []story.Directive{
			s.setting("@admission", func([]string) error { s.admission = true; return nil }),
			s.setting("@bookmarks DURATION", lasting(&s.limits.Bookmark)),
			s.setting("@conversion-timeout DURATION", lasting(&s.limits.Conversion)),
			s.setting("@event-ttl DURATION", lasting(&s.ttl)),
			s.setting("@controllers", func([]string) error { s.controllers = true; return nil }),
			{Usage: "@webhook [MODE]", Do: s.webhook},
			{Usage: "@calls N", Do: s.calls},
			{Usage: "@compact N", Do: s.compact},
			{Usage: "@sleep-second", Do: nextSecond},
		},
		Marks: map[byte]func([]string, string) error{'%': sameFields},
	}
}

// setting is a directive that says how the server begins.
func (s *scenario) setting(usage string, set func(args []string) error) story.Directive {
	return story.Directive{Usage: usage, Do: func(_ context.Context, _ map[string]string, args []string) error {
		if s.env != nil {
			return errors.New("this must be said before the first request")
		}
		return set(args)
	}}
}

// lasting sets a duration.
func lasting(d *time.Duration) func([]string) error {
	return func(args []string) (err error) {
		*d, err = time.ParseDuration(args[0])
		return err
	}
}

// webhook starts a conversion webhook, and says where it is: ${url}, ${ca}; then how it
// answers from now on.
func (s *scenario) webhook(_ context.Context, vars map[string]string, mode []string) error {
	switch {
	case s.hook == nil && len(mode) == 0:
		s.hook = newConvertHook(s.t)
		vars["url"], vars["ca"] = s.hook.http.URL, s.hook.ca()
	case s.hook == nil:
		return errors.New("there is no webhook yet")
	case len(mode) == 0:
		return errors.New("there is a webhook already")
	case !slices.Contains(convertModes, mode[0]):
		return fmt.Errorf("no webhook answers %s, but %s", mode[0], strings.Join(convertModes, ", "))
	default:
		s.hook.set(mode[0])
	}
	return nil
}

// calls compares how often the webhook was called since the last time.
func (s *scenario) calls(_ context.Context, _ map[string]string, args []string) error {
	if s.hook == nil {
		return errors.New("there is no webhook yet")
	}
	if got := fmt.Sprint(s.hook.calls.Swap(0)); got != args[0] {
		return fmt.Errorf("%s calls of the webhook, want %s", got, args[0])
	}
	return nil
}

// compact moves the history floor.
func (s *scenario) compact(ctx context.Context, _ map[string]string, args []string) error {
	n, err := strconv.ParseUint(args[0], 10, 64)
	if err != nil {
		return err
	}
	return s.server().mem.Compact(ctx, proto.Revision(n))
}

// nextSecond awaits the next full second: the times of managedFields have no fractions,
// and two in a row must differ.
func nextSecond(ctx context.Context, _ map[string]string, _ []string) error {
	select {
	case <-time.After(time.Until(time.Now().Truncate(time.Second).Add(time.Second))):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// sameFields compares all entries of an answer's managedFields, in any order.
func sameFields(want []string, answer string) error {
	slices.Sort(want)
	got, err := fieldsOf(answer)
	if err == nil && !slices.Equal(got, want) {
		err = errors.New("they differ")
	}
	if err != nil {
		return fmt.Errorf("managedFields (%w)\n%s\nwant\n%s", err, strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	return nil
}

// TestScenariosFail plays scenarios that do not hold: what they say beside the language
// of all stories is compared, and what is no use is refused.
func TestScenariosFail(t *testing.T) {
	const create = `> POST /api/v1/namespaces/default/configmaps?fieldManager=me
{"metadata":{"name":"a"},"data":{"k":"v","l":"w"}}
< 201
`
	for _, x := range []struct{ text, want string }{
		{create + "% me Update v1: .data .data.k .data.l\n", ""},
		{create + "% me Update v1: .data .data.k\n", "4: managedFields (they differ)"},
		{create + "% me Update v1: .data .data.k .data.l\n% me Apply v1: .data.k\n", "4: managedFields (they differ)"},
		{"> GET /readyz\n< 404\n% me Update v1: .data\n", "3: managedFields ("},
		{create + "@bookmarks 1s\n", "4: this must be said before the first request"},
		{create + "@controllers\n", "4: this must be said before the first request"},
		{"@event-ttl soon\n", `1: time: invalid duration "soon"`},
		{"@calls 0\n", "1: there is no webhook yet"},
		{"@webhook right\n", "1: there is no webhook yet"},
		{"@webhook\n@calls 1\n", "2: 0 calls of the webhook, want 1"},
		{"@webhook\n@webhook\n", "2: there is a webhook already"},
		{"@webhook\n@webhook rihgt\n", "2: no webhook answers rihgt, but right, hang"},
		{"@compact all\n", `1: strconv.ParseUint: parsing "all": invalid syntax`},
	} {
		s := &scenario{t: t}
		tale, err := s.language().Parse("scenario.txt", x.text)
		must.OK(t, err)
		got := ""
		if err := tale.Run(t.Context(), s.send, nil); err != nil {
			got = strings.TrimPrefix(err.Error(), "scenario.txt:")
		}
		if !strings.HasPrefix(got, x.want) || x.want == "" && got != "" {
			t.Errorf("%s\ngot  %s\nwant %s", x.text, got, x.want)
		}
	}
}
