package node

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"

	"github.com/quorate/quorate/apiserver/access/auth/token"
	"github.com/quorate/quorate/internal/settingfile"
)

// fixedTokenKeys are the keys of service account tokens that files name, nil if none does: then they
// follow from the cluster's state.
func (c *Config) fixedTokenKeys() (*token.Keys, error) {
	if c.TokenSigningKey == "" && len(c.TokenKeys) == 0 {
		return nil, nil
	}
	var verify []token.Key
	for _, file := range c.TokenKeys {
		keys, err := readTokenKeys(file)
		if err != nil {
			return nil, fmt.Errorf("service-account-key-file: %w", err)
		}
		for _, key := range keys {
			verify = append(verify, token.Key{Public: publicOf(key)})
		}
	}
	if c.TokenSigningKey == "" {
		return token.NewKeys(nil, verify...)
	}
	keys, err := readTokenKeys(c.TokenSigningKey)
	if err != nil {
		return nil, fmt.Errorf("service-account-signing-key-file: %w", err)
	}
	sign, ok := keys[0].(crypto.Signer)
	if !ok {
		return nil, fmt.Errorf("service-account-signing-key-file: %s: its first key is not a private key", c.TokenSigningKey)
	}
	// What this node signs it verifies, whatever the other files are.
	return token.NewKeys(sign, append(verify, token.Key{Public: sign.Public()})...)
}

// publicOf is a key, or its public half.
func publicOf(key any) crypto.PublicKey {
	if s, ok := key.(crypto.Signer); ok {
		return s.Public()
	}
	return key
}

// readTokenKeys reads all keys of a file, of which there is at least one: public ones, private ones, and
// those of certificates.
func readTokenKeys(file string) (keys []any, err error) {
	text, err := settingfile.Read(file, settingfile.MaxBytes)
	if err != nil {
		return nil, err
	}
	for rest := text; ; {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil {
			break
		}
		key, err := parseTokenKey(block)
		if err != nil {
			return nil, fmt.Errorf("%s: %s: %w", file, block.Type, err)
		}
		if key != nil {
			keys = append(keys, key)
		}
	}
	if len(keys) == 0 {
		return nil, fmt.Errorf("%s: no key in PEM", file)
	}
	return keys, nil
}

// parseTokenKey is nil for what is no key, such as the parameters of a curve that openssl puts before one.
func parseTokenKey(block *pem.Block) (key any, err error) {
	switch block.Type {
	case "PRIVATE KEY":
		key, err = x509.ParsePKCS8PrivateKey(block.Bytes)
	case "RSA PRIVATE KEY":
		key, err = x509.ParsePKCS1PrivateKey(block.Bytes)
	case "EC PRIVATE KEY":
		key, err = x509.ParseECPrivateKey(block.Bytes)
	case "PUBLIC KEY":
		key, err = x509.ParsePKIXPublicKey(block.Bytes)
	case "RSA PUBLIC KEY":
		key, err = x509.ParsePKCS1PublicKey(block.Bytes)
	case "CERTIFICATE":
		cert, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, err
		}
		key = cert.PublicKey
	default:
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	switch publicOf(key).(type) {
	case *rsa.PublicKey, *ecdsa.PublicKey:
		return key, nil
	}
	return nil, errors.New("neither RSA nor ECDSA")
}
