package auth

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/cdc-relay/cdc-relay/fault"
	"github.com/cdc-relay/cdc-relay/sink"
)

// tlsError is a handshake that failed, or, if local, settings that could not be
// had.
type tlsError struct {
	addr  string
	local bool
	lacks bool // the broker asked for a certificate of ours and there is none
	err   error
}

func (e *tlsError) Error() string {
	if e.local {
		return fmt.Sprintf("load TLS settings for broker %s: %v", e.addr, e.err)
	}
	return fmt.Sprintf("TLS handshake with broker %s: %v", e.addr, e.err)
}

func (e *tlsError) Unwrap() error { return e.err }

const handshakeTimeout = 5 * time.Second

// Secure makes a connection one with TLS. load is called for each connection.
func Secure(ctx context.Context, conn net.Conn, addr string, load func() (*tls.Config, error)) (net.Conn, error) {
	settings, err := load()
	if err != nil {
		return nil, &tlsError{addr: addr, local: true, err: err}
	}
	settings = settings.Clone()
	if settings.ServerName == "" {
		settings.ServerName, _, _ = net.SplitHostPort(addr)
	}
	if settings.MinVersion == 0 {
		settings.MinVersion = tls.VersionTLS12
	}
	secured := &securedConn{addr: addr}
	if len(settings.Certificates) == 0 && settings.GetClientCertificate == nil {
		settings.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			secured.lacks = true
			return new(tls.Certificate), nil // shows none
		}
	}
	secured.Conn = tls.Client(conn, settings)
	ctx, cancel := context.WithTimeout(ctx, handshakeTimeout)
	defer cancel()
	if err := secured.HandshakeContext(ctx); err != nil {
		return nil, &tlsError{addr: addr, lacks: secured.lacks, err: err}
	}
	return secured, nil
}

// securedConn knows a refusal that comes late: with TLS 1.3 the handshake is over
// for us before the broker has looked at our certificate, and what it thinks of it
// is the first thing that is read.
type securedConn struct {
	*tls.Conn
	addr  string
	lacks bool // as in tlsError
}

func (c *securedConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if err != nil && refusesCertificate(err) {
		err = &tlsError{addr: c.addr, lacks: c.lacks, err: err}
	}
	return n, err
}

// Close sends no farewell: it would wait for what is not sent yet, which is discarded.
func (c *securedConn) Close() error { return c.NetConn().Close() }

// certificateAlerts are what a peer answers to a certificate, or to none, that it
// does not take (RFC 8446, 6.2).
var certificateAlerts = map[string]bool{
	tls.AlertError(42).Error():  true, // bad_certificate
	tls.AlertError(43).Error():  true, // unsupported_certificate
	tls.AlertError(44).Error():  true, // certificate_revoked
	tls.AlertError(45).Error():  true, // certificate_expired
	tls.AlertError(46).Error():  true, // certificate_unknown
	tls.AlertError(48).Error():  true, // unknown_ca
	tls.AlertError(49).Error():  true, // access_denied
	tls.AlertError(116).Error(): true, // certificate_required
}

// Alerts that are about neither the certificate nor the protocol.
const (
	internalError    tls.AlertError = 80 // nothing that we did (RFC 8446, 6.2): it may pass
	unrecognizedName tls.AlertError = 112
)

// refusesCertificate compares texts: the library's type of an alert is not exported.
func refusesCertificate(err error) bool {
	alert := remoteAlert(err)
	return alert != nil && certificateAlerts[alert.Error()]
}

func alerts(err error, what tls.AlertError) bool {
	alert := remoteAlert(err)
	return alert != nil && alert.Error() == what.Error()
}

// remoteAlert is the alert with which the other side ended a connection, or nil.
func remoteAlert(err error) error {
	if op, ok := errors.AsType[*net.OpError](err); ok && op.Op == "remote error" {
		return op.Err
	}
	return nil
}

// WrappedBy says what is wrong with the handshake.
func (e *tlsError) WrappedBy(error) *sink.Error {
	var plain tls.RecordHeaderError
	var unverified *tls.CertificateVerificationError
	var name x509.HostnameError
	var unknown x509.UnknownAuthorityError
	var next string
	switch {
	case e.local:
		next = "check the files of kafka.tls"
	case errors.As(e.err, &plain):
		next = "the broker does not speak TLS on this port: use its TLS listener, or turn kafka.tls.enabled off"
	case errors.As(e.err, &name):
		next = "set kafka.tls.server_name to a name that the certificate has"
	case errors.As(e.err, &unknown):
		next = "set kafka.tls.ca_file to the authority that signed it"
	case errors.As(e.err, &unverified):
		next = "renew the broker's certificate or correct kafka.tls.ca_file"
	case alerts(e.err, internalError):
		return &sink.Error{Class: sink.Retry, Reason: fault.ReasonTLSHandshake, Err: fmt.Errorf("%w; see the broker's log", e)}
	case alerts(e.err, unrecognizedName):
		next = "the broker has no certificate for this name: set kafka.tls.server_name to one that it has"
	case e.lacks && remoteAlert(e.err) != nil:
		next = "the broker requires a client certificate: set kafka.tls.cert_file and key_file"
	case refusesCertificate(e.err):
		next = "the broker refuses the client certificate: check kafka.tls.cert_file and key_file, their dates, and that the broker trusts who signed it"
	case remoteAlert(e.err) != nil:
		next = "the broker refuses the handshake: it has to speak TLS 1.2 or later, with a cipher suite that is not broken; see its log"
	default:
		return &sink.Error{Class: sink.Retry, Reason: fault.ReasonTLSHandshake, Err: fmt.Errorf("%w; when the broker is up, check that it speaks TLS on this port", e)}
	}
	return &sink.Error{Class: sink.Blocked, Reason: fault.ReasonTLS, Err: fmt.Errorf("%w; %s", e, next)}
}
