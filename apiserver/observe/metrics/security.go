package metrics

import (
	"bytes"
	"log"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/quorate/quorate/internal/loglimit"
)

type securitySeries struct {
	handshakes     prometheus.Counter
	expiration     prometheus.Observer
	authentication *prometheus.CounterVec
	authorization  *prometheus.CounterVec
	untaken        prometheus.Counter
}

func (s *securitySeries) init(r *registrar) {
	s.handshakes = r.counter("apiserver_tls_handshake_errors_total", "Connections dropped because the TLS handshake failed.").WithLabelValues()
	s.expiration = r.histogram("apiserver_client_certificate_expiration_seconds",
		"Remaining validity of the client certificates of requests, in seconds.", expirationBuckets).WithLabelValues()
	s.authentication = r.counter("authentication_attempts", "Authenticated requests by result.", "result")
	s.authorization = r.counter("authorization_attempts_total", "Authorized requests by result.", "result")
	s.untaken = r.counter("quorate_connections_closed_for_untaken_answers_total",
		"Connections closed because their client left too many answers on HTTP/2 untaken.").WithLabelValues()
	for _, result := range []string{"success", "failure"} {
		s.authentication.WithLabelValues(result)
	}
	for _, result := range []string{"allowed", "denied", "no-opinion", "error"} {
		s.authorization.WithLabelValues(result)
	}
}

// ClientCertificate is told how long a request's client certificate is still valid.
func (m *Metrics) ClientCertificate(remaining time.Duration) {
	m.security.expiration.Observe(remaining.Seconds())
}

// Authenticated counts an authentication: success or failure.
func (m *Metrics) Authenticated(result string) {
	m.security.authentication.WithLabelValues(result).Inc()
}

// Authorized counts an authorization: allowed, denied, no-opinion or error.
func (m *Metrics) Authorized(result string) {
	m.security.authorization.WithLabelValues(result).Inc()
}

// ClosedForUntakenAnswers counts connections that were closed because their client does not take
// its answers.
func (m *Metrics) ClosedForUntakenAnswers(connections int) {
	m.security.untaken.Add(float64(connections))
}

// ErrorLog is for http.Server.ErrorLog: it counts failed TLS handshakes, which
// net/http only logs, and passes every line on to l at debug level (handshakes)
// or warning level (the rest).
func (m *Metrics) ErrorLog(l *slog.Logger) *log.Logger {
	return log.New(errorLog{m, l, loglimit.New(time.Second)}, "", 0)
}

type errorLog struct {
	m     *Metrics
	l     *slog.Logger
	limit *loglimit.Limiter // anybody can break a connection
}

func (e errorLog) Write(line []byte) (int, error) {
	text := string(bytes.TrimSpace(line))
	if bytes.Contains(line, []byte("TLS handshake error from")) {
		e.m.security.handshakes.Inc()
		e.l.Debug("TLS handshake failed", "err", text)
	} else {
		e.limit.Warn(e.l, "HTTP server", "err", text)
	}
	return len(line), nil
}
