package membership

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"strings"
	"syscall"
	"time"
)

// plainError is an error of a connection in words for people. The whole of it is below.
type plainError struct {
	text string
	err  error
}

func (e *plainError) Error() string { return e.text }
func (e *plainError) Unwrap() error { return e.err }

// plainly puts into words why a server was not reached. Anyone who prints the result says
// which server it was.
func plainly(err error) error {
	text := ""
	var timeout net.Error
	var name *net.DNSError
	var authority x509.UnknownAuthorityError
	var host x509.HostnameError
	var invalid x509.CertificateInvalidError
	var record tls.RecordHeaderError
	switch {
	case err == nil || errors.Is(err, context.Canceled):
		return err
	case errors.As(err, &name):
		text = fmt.Sprintf("there is no address for the name %s", name.Name)
	case errors.Is(err, syscall.ECONNREFUSED):
		text = "connection refused: nothing listens there"
	case errors.Is(err, syscall.EHOSTUNREACH), errors.Is(err, syscall.ENETUNREACH):
		text = "there is no way to that address"
	case errors.Is(err, syscall.ECONNRESET), errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		text = "it closed the connection without an answer"
	case errors.Is(err, os.ErrDeadlineExceeded), errors.Is(err, context.DeadlineExceeded), errors.As(err, &timeout) && timeout.Timeout():
		text = "no answer in time"
	case errors.As(err, &authority):
		text = "its certificate is of another CA: another cluster, another cluster secret, or an old kubeconfig"
	case errors.As(err, &host), errors.As(err, &invalid):
		// What x509 says is plain, behind what url and tls say.
		text = "its certificate is not accepted: " + innermost(err).Error()
	case errors.As(err, &record):
		text = "it does not speak HTTPS"
	default:
		var u *url.Error
		if !errors.As(err, &u) {
			return err
		}
		return u.Err // without the method and the URL
	}
	return &plainError{text, err}
}

// unreached says in plain words that a member did not answer a call: gRPC passes the
// reason on as text only. Other errors stay what they are.
func unreached(err error, address string, within time.Duration) error {
	if !errors.Is(err, errNotReached) {
		return err
	}
	text := err.Error()
	switch {
	case strings.Contains(text, "connection refused"):
		text = "connection refused at " + address
	case strings.Contains(text, "context deadline exceeded"), strings.Contains(text, "i/o timeout"):
		text = fmt.Sprintf("no answer from %s within %s", address, within)
	case isStranger(err):
		text = address + " has another cluster secret"
	default:
		return err
	}
	return &plainError{text, err}
}

func innermost(err error) error {
	for {
		next := errors.Unwrap(err)
		if next == nil {
			return err
		}
		err = next
	}
}
