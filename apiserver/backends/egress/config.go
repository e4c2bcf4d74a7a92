package egress

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/url"
	"slices"
	"strings"

	"github.com/quorate/quorate/internal/settingfile"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/apis/apiserver"
	"k8s.io/apiserver/pkg/server/egressselector"
	"sigs.k8s.io/yaml"
)

// maxFile bounds the configuration, and each certificate that it names.
const maxFile = 1 << 20

// Check returns what is wrong with a configuration and with the files that it names.
func Check(file string) error {
	_, err := read(file)
	return err
}

// read returns the dialers that a configuration names; nil for Direct.
func read(file string) (map[Purpose]DialFunc, error) {
	if file == "" {
		return nil, nil
	}
	// Upstream's reader would wait for a pipe, and read a device without an end.
	text, err := settingfile.Read(file, maxFile)
	if err != nil {
		return nil, err
	}
	// What is another thing altogether it refuses in words about Go types and schemes.
	var is any
	if err := yaml.Unmarshal(text, &is); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	if m, _ := is.(map[string]any); m["kind"] != "EgressSelectorConfiguration" {
		return nil, fmt.Errorf("%s: must be an EgressSelectorConfiguration of apiserver.k8s.io/v1beta1", file)
	}
	config, err := egressselector.ReadEgressSelectorConfiguration(file)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	all := map[Purpose]DialFunc{}
	seen := map[string]bool{}
	var bad field.ErrorList
	for i, selection := range config.EgressSelections {
		at := field.NewPath("egressSelections").Index(i)
		if name := strings.ToLower(selection.Name); seen[name] {
			bad = append(bad, field.Duplicate(at.Child("name"), selection.Name))
			continue
		} else {
			seen[name] = true
		}
		if wrong := check(selection, at); len(wrong) > 0 {
			bad = append(bad, wrong...)
			continue
		}
		dial, err := dialer(selection.Connection)
		if err != nil {
			at := at.Child("connection", "transport")
			bad = append(bad, field.Invalid(at.Child(err.field), field.OmitValueType{}, err.Error()))
			continue
		}
		// There is no etcd: its selection is upstream's, and means nothing here.
		if of := slices.Index(names[:], strings.ToLower(selection.Name)); of >= 0 {
			all[Purpose(of)] = dial
		}
	}
	if len(bad) > 0 {
		return nil, fmt.Errorf("%s: %w", file, bad.ToAggregate())
	}
	return all, nil
}

// check is upstream's check of one selection, which names fields without saying of which selection.
func check(selection apiserver.EgressSelection, at *field.Path) field.ErrorList {
	bad := egressselector.ValidateEgressSelectorConfiguration(&apiserver.EgressSelectorConfiguration{EgressSelections: []apiserver.EgressSelection{selection}})
	const all, name, protocol, transport = "service.connection", "service.connection", "service.connection.protocol", "service.connection.transport"
	for _, e := range bad {
		switch {
		case e.Field == name:
			e.Field = at.Child("name").String()
		case e.Field == protocol:
			e.Field = at.Child("connection", "proxyProtocol").String()
		case e.Field == transport:
			e.Field = at.Child("connection", "transport").String()
		case e.Field == all+".udsName":
			e.Field = at.Child("connection", "transport", "uds", "udsName").String()
		case e.Field == all+".tcp", e.Field == all+".uds":
			e.Field = at.Child("connection", "transport").String() + strings.TrimPrefix(e.Field, all)
		default: // a field of the TCP transport
			e.Field = at.Child("connection", "transport", "tcp").String() + strings.TrimPrefix(e.Field, all)
		}
	}
	return bad
}

// wrong is a mistake in a field of a transport.
type wrong struct {
	field string
	error
}

// dialer returns that of a connection which check has found nothing wrong with.
func dialer(c apiserver.Connection) (DialFunc, *wrong) {
	switch {
	case c.ProxyProtocol == apiserver.ProtocolDirect:
		return nil, nil
	case c.ProxyProtocol == apiserver.ProtocolGRPC:
		return (&konnectivity{socket: c.Transport.UDS.UDSName}).dial, nil
	case c.Transport.UDS != nil:
		return (&connect{network: "unix", address: c.Transport.UDS.UDSName}).dial, nil
	}
	tcp := c.Transport.TCP
	at, err := url.Parse(tcp.URL)
	if err != nil {
		return nil, &wrong{"tcp.url", err}
	}
	if at.Hostname() == "" || at.Port() == "" {
		return nil, &wrong{"tcp.url", fmt.Errorf("%q has no host or no port", tcp.URL)}
	}
	proxy := &connect{network: "tcp", address: at.Host}
	if tcp.TLSConfig == nil { // http://, which check lets through
		return proxy.dial, nil
	}
	if proxy.tls, err = clientTLS(tcp.TLSConfig, at.Hostname()); err != nil {
		return nil, &wrong{"tcp.tlsConfig", err}
	}
	return proxy.dial, nil
}

// clientTLS is how a proxy is spoken to, and knows this server. The files must be there.
func clientTLS(c *apiserver.TLSConfig, host string) (*tls.Config, error) {
	pair := func() (*tls.Certificate, error) {
		cert, err := settingfile.Read(c.ClientCert, maxFile)
		if err != nil {
			return nil, fmt.Errorf("clientCert: %w", err)
		}
		key, err := settingfile.Read(c.ClientKey, maxFile)
		if err != nil {
			return nil, fmt.Errorf("clientKey: %w", err)
		}
		made, err := tls.X509KeyPair(cert, key)
		if err != nil {
			return nil, fmt.Errorf("%s and %s: %w", c.ClientCert, c.ClientKey, err)
		}
		return &made, nil
	}
	first, err := pair()
	if err != nil {
		return nil, err
	}
	out := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: c.TLSServerName}
	if out.ServerName == "" {
		out.ServerName = host
	}
	if c.CABundle != "" {
		text, err := settingfile.Read(c.CABundle, maxFile)
		if err != nil {
			return nil, fmt.Errorf("caBundle: %w", err)
		}
		out.RootCAs = x509.NewCertPool()
		if !out.RootCAs.AppendCertsFromPEM(text) {
			return nil, errors.New("caBundle: " + c.CABundle + " has no certificate")
		}
	}
	// Read at each dial, of which there are few: certificates are renewed. While the files are being
	// written the first one serves.
	out.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
		if now, err := pair(); err == nil {
			return now, nil
		}
		return first, nil
	}
	return out, nil
}

// checkTarget refuses an address that a proxy could take for more than one.
func checkTarget(address string) error {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return err
	}
	for _, r := range host + port {
		if r <= ' ' || r >= 0x7f {
			return fmt.Errorf("address %q has characters that no address has", address)
		}
	}
	return nil
}
