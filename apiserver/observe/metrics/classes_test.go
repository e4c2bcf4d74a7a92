package metrics

import (
	"bytes"
	"net/http/httptest"
	"regexp"
	"testing"

	"github.com/quorate/quorate/internal/must"
)

// TestClasses: each family says how stable it is, but for those of other projects, and that it is deprecated if it is.
func TestClasses(t *testing.T) {
	m := newMetrics(t)
	must.OK(t, m.ShowHidden())
	exercise(m)
	w := httptest.NewRecorder()
	m.ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
	text := w.Body.Bytes()
	for _, want := range []string{
		"# HELP apiserver_storage_objects [STABLE] (Deprecated since 1.34.0) ",
		"# HELP apiserver_storage_db_total_size_in_bytes [ALPHA] (Deprecated since 1.28.0) Size",
		"# HELP apiserver_request_total [STABLE] ",
		"# HELP apiserver_requested_deprecated_apis [STABLE] ",
		"# HELP quorate_build_info [ALPHA] ",
	} {
		if !bytes.Contains(text, []byte(want)) {
			t.Errorf("no %s", want)
		}
	}
	others := regexp.MustCompile(`^(go|process|promhttp|etcd_(disk|mvcc|network|server))_`)
	for _, l := range regexp.MustCompile(`(?m)^# HELP (\S+) (.*)$`).FindAllSubmatch(text, -1) {
		if !others.Match(l[1]) && !bytes.HasPrefix(l[2], []byte("[")) {
			t.Errorf("%s says nothing of its stability: %s", l[1], l[2])
		}
	}
}
