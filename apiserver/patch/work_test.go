package patch

import (
	"net/http"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// A patch within all other bounds that would insert thousands of times at the
// front of a huge array is refused before it has cost anything.
func TestPatchThatIsTooMuchWork(t *testing.T) {
	var b strings.Builder
	b.WriteString(`[{"op":"add","path":"/x","value":[0` + strings.Repeat(",0", 299_999) + `]}`)
	b.WriteString(strings.Repeat(`,{"op":"add","path":"/x/0","value":0}`, 9_000) + "]")
	p, err := Parse("application/json-patch+json", []byte(b.String()), true)
	if err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	_, err = p.Apply(map[string]any{"metadata": map[string]any{"name": "a"}}, nil)
	status, ok := err.(apierrors.APIStatus)
	if !ok || status.Status().Code != http.StatusRequestEntityTooLarge {
		t.Errorf("got %v, want 413", err)
	}
	if took := time.Since(began); took > time.Second {
		t.Errorf("the refusal took %s", took)
	}
}
