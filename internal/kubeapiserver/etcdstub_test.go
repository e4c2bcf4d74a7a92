package kubeapiserver

import (
	"os"
	"strings"
	"testing"
)

// TestStubURLs: a stub listens where it was told to, and nowhere else; one that does not start makes nothing.
func TestStubURLs(t *testing.T) {
	for at, want := range map[string]string{
		"foo":                  "must begin with http",
		"":                     "must begin with http",
		"unix:///x":            "must begin with http",
		"ftp://127.0.0.1:1":    "must begin with http",
		"http://":              "must name a host and a port",
		"http://127.0.0.1":     "must name a host and a port",
		"http://:2379":         "must name a host and a port",
		"http://127.0.0.1:1/x": "has a path",
		"none":                 "it is empty",
	} {
		dir := t.TempDir() + "/data"
		s := &Stub{ClientURLs: []string{at}, DataDir: dir}
		if at == "none" {
			s.ClientURLs = nil
		}
		if err := s.Run(t.Context()); err == nil || !strings.Contains(err.Error(), want) || !strings.HasPrefix(err.Error(), "--listen-client-urls: ") {
			t.Errorf("%q: %v", at, err)
		}
		if _, err := os.Stat(dir); err == nil {
			t.Errorf("%q: its directory is there", at)
		}
	}
	for _, at := range []string{"http://localhost:2379", "https://[::1]:2379/"} {
		if err := checkURL(at); err != nil {
			t.Error(err)
		}
	}
}
