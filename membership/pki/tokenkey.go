package pki

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
)

// FileTokenKey is the key of this node alone that signs service account tokens. It follows
// from nothing: who has the cluster's secret does not have it.
const FileTokenKey = "token.key"

// maxKeyFile bounds what is read of a key's file, in bytes. A P-256 key takes 241.
const maxKeyFile = 16 << 10

// loadTokenKey reads the node's own signing key, or makes it. A file that cannot be used is an
// error: with another key, all tokens that the node has signed would end.
func loadTokenKey(path string) (*ecdsa.PrivateKey, error) {
	text, err := readKeyFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return makeTokenKey(path)
	}
	if err != nil {
		return nil, err
	}
	key, err := parseTokenKey(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w; put the file back, or remove it: then the node makes another key, and the service account tokens that it has signed end", path, err)
	}
	// It may have been copied here, from another directory of this node.
	if err := os.Chmod(path, ModeSecret); err != nil {
		return nil, err
	}
	return key, nil
}

// readKeyFile reads no more than one byte above maxKeyFile, and only files.
func readKeyFile(path string) ([]byte, error) {
	f, err := openAny(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if !st.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is not a file", path)
	}
	return io.ReadAll(io.LimitReader(f, maxKeyFile+1))
}

// parseTokenKey reads a key of P-256 in PKCS#8 PEM.
func parseTokenKey(text []byte) (*ecdsa.PrivateKey, error) {
	if len(text) > maxKeyFile {
		return nil, fmt.Errorf("larger than %d bytes", maxKeyFile)
	}
	block, _ := pem.Decode(text)
	if block == nil || block.Type != "PRIVATE KEY" {
		return nil, errors.New("no private key in PEM")
	}
	parsed, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		return nil, err
	}
	key, ok := parsed.(*ecdsa.PrivateKey)
	if !ok || key.Curve != elliptic.P256() {
		return nil, errors.New("not an ECDSA key of P-256")
	}
	return key, nil
}

func makeTokenKey(path string) (*ecdsa.PrivateKey, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, err
	}
	return key, WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}), ModeSecret)
}

// TokenKey signs service account tokens in the name of this node: a random key (ES256), made
// once and kept in FileTokenKey. It is nil with AdminOnly.
func (n *Node) TokenKey() *ecdsa.PrivateKey { return n.token }
