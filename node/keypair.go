package node

import (
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"log/slog"
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

	// Of the one goroutine that looks at the files: what they had when they were used, and why they could not be since.
	cert, key []byte
	failed    string
}

// openKeyPair reads files. It returns nil if the settings name none.
func openKeyPair(certSetting, keySetting, certFile, keyFile string, log *slog.Logger) (*keyPair, error) {
	if certFile == "" {
		return nil, nil
	}
	p := &keyPair{certSetting: certSetting, keySetting: keySetting, certFile: certFile, keyFile: keyFile, log: log}
	if _, err := p.read(); err != nil {
		return nil, fmt.Errorf("%s: %w", certSetting, err)
	}
	return p, nil
}

// read reads the files. changed: they have another pair than before.
func (p *keyPair) read() (changed bool, err error) {
	cert, err := settingfile.Read(p.certFile, settingfile.MaxBytes)
	if err != nil {
		return false, err
	}
	key, err := settingfile.Read(p.keyFile, settingfile.MaxBytes)
	if err != nil {
		return false, err
	}
	if p.now.Load() != nil && bytes.Equal(cert, p.cert) && bytes.Equal(key, p.key) {
		return false, nil
	}
	c, err := tls.X509KeyPair(cert, key)
	if err != nil {
		return false, fmt.Errorf("%s and %s: %w", p.certFile, p.keyFile, err)
	}
	p.cert, p.key = cert, key
	p.now.Store(&c)
	return true, nil
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

// look reads the files again. One is written after the other: a pair that does not fit is looked at again, and until
// then the old one is shown.
func (p *keyPair) look() {
	changed, err := p.read()
	switch {
	case err != nil && err.Error() != p.failed:
		p.log.Error(p.certSetting+" and "+p.keySetting+" cannot be used: the certificate stays as it was", "err", err)
	case changed:
		p.log.Info("the certificate of "+p.certSetting+" has changed", "file", p.certFile)
	}
	if p.failed = ""; err != nil {
		p.failed = err.Error()
	}
}

// checkKeyPair checks files that two settings name.
func checkKeyPair(bad *mistakes, certSetting, keySetting, certFile, keyFile string) {
	if (certFile == "") != (keyFile == "") {
		bad.add("%s and %s need each other", certSetting, keySetting)
	} else if _, err := openKeyPair(certSetting, keySetting, certFile, keyFile, nil); err != nil {
		bad.add("%w", err)
	}
}
