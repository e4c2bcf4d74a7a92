package node

import (
	"context"
	"crypto/tls"
	"fmt"
	"log/slog"
	"os"
	"sync/atomic"
	"time"

	"github.com/quorate/quorate/internal/settingfile"
)

// keyPair is a certificate with its key, from files that two settings name. It is read again when the files
// change. Safe for concurrent use.
type keyPair struct {
	certSetting, keySetting string
	certFile, keyFile       string
	log                     *slog.Logger

	now atomic.Pointer[tls.Certificate]

	// Of the one goroutine that looks at the files: what they were when they were read, and why they could not be since.
	at, failed string
}

// openKeyPair reads files. It returns nil if the settings name none.
func openKeyPair(certSetting, keySetting, certFile, keyFile string, log *slog.Logger) (*keyPair, error) {
	if certFile == "" {
		return nil, nil
	}
	p := &keyPair{certSetting: certSetting, keySetting: keySetting, certFile: certFile, keyFile: keyFile, log: log, at: filesAt(certFile, keyFile)}
	c, err := readKeyPair(certFile, keyFile)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", certSetting, err)
	}
	p.now.Store(c)
	return p, nil
}

// get is the certificate as it is now, that of own if there are no files.
func (p *keyPair) get(own func() *tls.Certificate) *tls.Certificate {
	if p == nil {
		return own()
	}
	return p.now.Load()
}

// keyPairLook is how often the files are looked at.
const keyPairLook = 5 * time.Second

// follow looks at the files until ctx ends.
func (p *keyPair) follow(ctx context.Context) error {
	t := time.NewTicker(keyPairLook)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-t.C:
			p.look()
		}
	}
}

// look reads the files again if they have changed. One is written after the other: a pair that does not fit is
// looked at again, and until then the old one is shown.
func (p *keyPair) look() {
	is := filesAt(p.certFile, p.keyFile)
	if is == p.at {
		return
	}
	c, err := readKeyPair(p.certFile, p.keyFile)
	if err != nil {
		if err.Error() != p.failed {
			p.log.Error(p.certSetting+" and "+p.keySetting+" cannot be used: the certificate stays as it was", "err", err)
		}
		p.failed = err.Error()
		return
	}
	p.now.Store(c)
	p.at, p.failed = is, ""
	p.log.Info("the certificate of "+p.certSetting+" has changed", "file", p.certFile)
}

// filesAt changes when one of the files does.
func filesAt(paths ...string) (out string) {
	for _, path := range paths {
		if st, err := os.Stat(path); err == nil {
			out += fmt.Sprint(st.ModTime().UnixNano(), " ", st.Size(), "\n")
		}
	}
	return out
}

func readKeyPair(certFile, keyFile string) (*tls.Certificate, error) {
	cert, err := settingfile.Read(certFile, settingfile.MaxBytes)
	if err != nil {
		return nil, err
	}
	key, err := settingfile.Read(keyFile, settingfile.MaxBytes)
	if err != nil {
		return nil, err
	}
	c, err := tls.X509KeyPair(cert, key)
	if err != nil {
		return nil, fmt.Errorf("%s and %s: %w", certFile, keyFile, err)
	}
	return &c, nil
}

// checkKeyPair checks files that two settings name.
func checkKeyPair(bad *mistakes, certSetting, keySetting, certFile, keyFile string) {
	switch {
	case (certFile == "") != (keyFile == ""):
		bad.add("%s and %s need each other", certSetting, keySetting)
	case certFile != "":
		if _, err := readKeyPair(certFile, keyFile); err != nil {
			bad.add("%s: %w", certSetting, err)
		}
	}
}
