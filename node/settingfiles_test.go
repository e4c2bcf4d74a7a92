package node

import (
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/quorate/quorate/internal/must"
)

// TestSettingFiles: a setting that leads to a pipe which nobody writes, or to a device without an end, is refused by the
// name of its flag and the path; nothing waits for the one and reads all of the other.
func TestSettingFiles(t *testing.T) {
	pipe := filepath.Join(t.TempDir(), "pipe")
	must.OK(t, syscall.Mkfifo(pipe, 0o600))
	for name, set := range map[string]func(c *Config, file string){
		"admission-control-config-file":    func(c *Config, file string) { c.AdmissionConfig = file },
		"egress-selector-config-file":      func(c *Config, file string) { c.EgressSelectorConfig = file },
		"client-ca-file":                   func(c *Config, file string) { c.ClientCA = file },
		"kubelet-certificate-authority":    func(c *Config, file string) { c.KubeletCA = file },
		"kubelet-client-certificate":       func(c *Config, file string) { c.KubeletClientCert, c.KubeletClientKey = file, file },
		"proxy-client-cert-file":           func(c *Config, file string) { c.ProxyClientCert, c.ProxyClientKey = file, file },
		"requestheader-client-ca-file":     func(c *Config, file string) { c.RequestHeaderCA = file },
		"service-account-key-file":         func(c *Config, file string) { c.TokenKeys = []string{file} },
		"service-account-signing-key-file": func(c *Config, file string) { c.TokenSigningKey = file },
		"tls-cert-file":                    func(c *Config, file string) { c.ServingCert, c.ServingKey = file, file },
	} {
		for _, file := range []string{pipe, "/dev/zero"} {
			c := defaults()
			set(c, file)
			done := make(chan error, 1)
			go func() { done <- c.Complete() }()
			select {
			case err := <-done:
				if err == nil || !strings.Contains(err.Error(), name+": "+file+" is ") {
					t.Errorf("%s=%s: %v", name, file, err)
				}
			case <-time.After(10 * time.Second):
				t.Fatalf("%s=%s: no answer", name, file)
			}
		}
	}
}
