package resourcequota_test

import (
	"log/slog"
	"strings"
	"testing"

	"github.com/quorate/quorate/apiserver/admission"
	"github.com/quorate/quorate/apiserver/admission/resourcequota"
	"github.com/quorate/quorate/apiserver/admission/state"
	"github.com/quorate/quorate/apiserver/auth"
	"github.com/quorate/quorate/apiserver/objects/objectstest"
	"github.com/quorate/quorate/raftstore/memstore"
	"github.com/quorate/quorate/raftstore/view"
)

func options(t *testing.T, config string) objectstest.Options {
	return objectstest.Options{Admission: func(s view.Store, _ auth.Authorizer) []admission.Named {
		p, err := resourcequota.New(state.New(s), strings.NewReader(config), slog.Default())
		if err != nil {
			t.Fatal(err)
		}
		return []admission.Named{{Name: "ResourceQuota", Plugin: p}}
	}}
}

const empty = `{"apiVersion":"apiserver.config.k8s.io/v1","kind":"ResourceQuotaConfiguration"}`

func TestOperations(t *testing.T) {
	objectstest.Run(t, "testdata/quotas.txt", options(t, empty))
}

// TestLimitedResources: what only a quota allows.
func TestLimitedResources(t *testing.T) {
	objectstest.Run(t, "testdata/limited.txt", options(t, `{"apiVersion":"apiserver.config.k8s.io/v1","kind":"ResourceQuotaConfiguration","limitedResources":[
		{"resource":"pods","matchContains":["cpu"],"matchScopes":[{"scopeName":"PriorityClass","operator":"In","values":["high"]}]},
		{"resource":"persistentvolumeclaims","matchContains":[".storageclass.storage.k8s.io/requests.storage"]}]}`))
}

func TestConfiguration(t *testing.T) {
	for config, want := range map[string]string{
		`{"apiVersion":"apiserver.config.k8s.io/v1","kind":"ResourceQuotaConfiguration","limitedResources":[{}]}`: "limitedResources[0].resource: Required value",
		`{"apiVersion":"apiserver.config.k8s.io/v1","kind":"ResourceQuotaConfiguration","x":1}`:                   "unknown field",
		`{"apiVersion":"v1","kind":"Pod"}`:                                               "no kind \"Pod\" is registered",
		`{"apiVersion":"resourcequota.admission.k8s.io/v1beta1","kind":"Configuration"}`: "",
	} {
		_, err := resourcequota.New(state.New(memstore.New()), strings.NewReader(config), slog.Default())
		if (err != nil) != (want != "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", config, err, want)
		}
	}
}
