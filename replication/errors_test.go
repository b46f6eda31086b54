package replication

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"syscall"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"
)

func TestClassify_BySQLState(t *testing.T) {
	const inCallback = `slot "s", output plugin "pgoutput", in the change callback, associated LSN 16/B374D848`
	tests := []struct {
		name   string
		err    pgconn.PgError
		kind   ErrorKind
		reason string
	}{
		{"slot dropped", pgconn.PgError{Code: "42704", File: "slot.c", Message: `replication slot "s" does not exist`}, KindRefused, ReasonSlotMissing},
		{"slot dropped, server in German", pgconn.PgError{Code: "42704", File: "slot.c", Message: `Replikations-Slot »s« existiert nicht`}, KindRefused, ReasonSlotMissing},
		{"publication dropped", pgconn.PgError{Code: "42704", File: "pg_publication.c", Where: inCallback}, KindRefused, ReasonPublicationMissing},
		{"publication dropped, by text", pgconn.PgError{Code: "42704", Message: `publication "p" does not exist`}, KindRefused, ReasonPublicationMissing},
		{"something else undefined", pgconn.PgError{Code: "42704", File: "parse_type.c", Message: `type "x" does not exist`}, KindRefused, ReasonServerError},
		{"busy", pgconn.PgError{Code: "55006", Message: `replication slot "s" is active for PID 7`}, KindBusy, ReasonSlotInUse},
		{"invalidated, 15", pgconn.PgError{Code: "55000", Message: `cannot read from logical replication slot "s"`}, KindLost, ReasonSlotLost},
		{"invalidated, 18", pgconn.PgError{Code: "55000", Message: `can no longer access replication slot "s"`}, KindLost, ReasonSlotLost},
		{"synced copy", pgconn.PgError{Code: "55000", Message: `cannot use replication slot "s" for logical decoding`, Detail: `This replication slot is being synchronized from the primary server.`}, KindRetry, ReasonInRecovery},
		{"other database", pgconn.PgError{Code: "55000", Message: `replication slot "s" was not created in this database`}, KindRefused, ReasonSlotUnusable},
		{"wal_level", pgconn.PgError{Code: "55000", Message: `logical decoding requires wal_level >= logical`}, KindRefused, ReasonWALLevel},
		{"stopping", pgconn.PgError{Code: "55000", Message: `cannot execute new commands while WAL sender is in stopping mode`}, KindRetry, ReasonServerShutdown},
		{"unknown 55000 asks the catalog again", pgconn.PgError{Code: "55000", Message: `…`}, KindRetry, ReasonServerError},
		{"admin shutdown", pgconn.PgError{Code: "57P01"}, KindRetry, ReasonServerShutdown},
		{"crash shutdown", pgconn.PgError{Code: "57P02"}, KindRetry, ReasonServerShutdown},
		{"starting up", pgconn.PgError{Code: "57P03"}, KindRetry, ReasonServerShutdown},
		{"statement timeout", pgconn.PgError{Code: "57014"}, KindRetry, ReasonTimeout},
		{"too many connections", pgconn.PgError{Code: "53300"}, KindRetry, ReasonServerLimit},
		{"slots in use", pgconn.PgError{Code: "53400"}, KindRetry, ReasonServerLimit},
		{"disk full", pgconn.PgError{Code: "53100"}, KindRetry, ReasonServerLimit},
		{"I/O error", pgconn.PgError{Code: "58030"}, KindRetry, ReasonServerError},
		{"WAL removed", pgconn.PgError{Code: "58P01", File: "walsender.c"}, KindLost, ReasonSlotLost},
		{"no pgoutput", pgconn.PgError{Code: "58P01", File: "dfmgr.c"}, KindRefused, ReasonServerError},
		{"poison row", pgconn.PgError{Code: "XX000", Message: "invalid memory alloc request size 1080000003", Where: inCallback}, KindProtocol, ReasonUndecodable},
		{"bad encoding of a row", pgconn.PgError{Code: "22021", Where: inCallback}, KindProtocol, ReasonUndecodable},
		{"string too long", pgconn.PgError{Code: "54000", Where: inCallback}, KindProtocol, ReasonUndecodable},
		{"internal error elsewhere", pgconn.PgError{Code: "XX000"}, KindRetry, ReasonServerError},
		{"password", pgconn.PgError{Code: "28P01"}, KindRefused, ReasonAuth},
		{"pg_hba", pgconn.PgError{Code: "28000"}, KindRefused, ReasonAuth},
		{"permission", pgconn.PgError{Code: "42501"}, KindRefused, ReasonPermission},
		{"database", pgconn.PgError{Code: "3D000"}, KindRefused, ReasonDatabaseMissing},
		{"connection failure", pgconn.PgError{Code: "08006"}, KindRetry, ReasonNetwork},
		{"pooler", pgconn.PgError{Code: "08P01"}, KindRetry, ReasonNetwork},
		{"pooler in the way", pgconn.PgError{Code: "08P01", Message: "unsupported startup parameter: extra_float_digits"}, KindRefused, ReasonConfiguration},
		{"nobody knows", pgconn.PgError{Code: "P0001"}, KindRefused, ReasonServerError},
		{"no code at all", pgconn.PgError{}, KindRefused, ReasonServerError},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			wantError(t, classify("try", &test.err), test.kind, test.reason, "try: ")
			wantError(t, classify("try", fmt.Errorf("wrapped: %w", &test.err)), test.kind, test.reason)
			if KindOf(&test.err) != test.kind {
				t.Errorf("KindOf without classify: %s", KindOf(&test.err))
			}
		})
	}
}

func TestClassify_ByNetwork(t *testing.T) {
	tests := []struct {
		name   string
		err    error
		reason string
	}{
		{"end of stream", io.EOF, ReasonNetwork},
		{"half a message", io.ErrUnexpectedEOF, ReasonNetwork},
		{"refused", &net.OpError{Op: "dial", Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)}, ReasonNetwork},
		{"reset", syscall.ECONNRESET, ReasonNetwork},
		{"no such host", &net.DNSError{Err: "no such host", Name: "db"}, ReasonNetwork},
		{"closed", net.ErrClosed, ReasonNetwork},
		{"deadline", os.ErrDeadlineExceeded, ReasonTimeout},
		{"context deadline", context.DeadlineExceeded, ReasonTimeout},
		{"cancelled", context.Canceled, ReasonCancelled},
		{"unknown CA", &tls.CertificateVerificationError{Err: x509.UnknownAuthorityError{}}, ReasonTLS},
		{"wrong name", x509.HostnameError{Certificate: &x509.Certificate{}, Host: "db"}, ReasonTLS},
		{"alert", tls.AlertError(42), ReasonTLS},
		{"no TLS", errors.New("tls error: server refused TLS connection"), ReasonTLS},
		{"standby", pgconn.ErrStandbyConnection, ReasonInRecovery},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			kind := KindRetry
			switch test.name {
			case "unknown CA", "wrong name", "no TLS": // no waiting helps
				kind = KindRefused
			}
			wantError(t, classify("try", fmt.Errorf("wrapped: %w", test.err)), kind, test.reason)
		})
	}
	wantError(t, classify("try", errors.New("nobody knows")), KindRefused, ReasonServerError)
}

func TestClassify_KeepsWhatIsClassified(t *testing.T) {
	if classify("try", nil) != nil {
		t.Error("an error out of none")
	}
	first := &Error{Kind: KindDrift, Op: "watch", Err: io.EOF}
	wrapped := fmt.Errorf("session: %w", first)
	if classify("try", wrapped) != wrapped { //nolint:errorlint // the very same value
		t.Error("a classified error was classified again")
	}
	if KindOf(wrapped) != KindDrift || !errors.Is(wrapped, io.EOF) {
		t.Error("kind or cause is lost in wrapping")
	}
}

func TestClassify_ReadsTheLSN(t *testing.T) {
	err := classify("stream", &pgconn.PgError{Code: "XX000", Message: "boom", Where: "Slot »s«, Ausgabe-Plugin »pgoutput«, im Change-Callback, zugehörige LSN 16/B374D848"})
	var e *Error
	if !errors.As(err, &e) || e.LSN.String() != "16/B374D848" {
		t.Errorf("no LSN in %v", err)
	}
}

func TestError_NamesWhatWhereAndNext(t *testing.T) {
	err := &Error{Op: "start streaming from", Subject: `slot "s"`, LSN: 0x16B374D8, Err: errors.New("two\n\tlines"), Hint: "do this"}
	const want = `start streaming from slot "s": two; lines (LSN 0/16B374D8); do this`
	if err.Error() != want {
		t.Errorf("got  %s\nwant %s", err, want)
	}
	if got := (&Error{Op: "decode row", LSN: 1}).Error(); got != "decode row (LSN 0/1)" {
		t.Errorf("without a cause: %s", got)
	}
}

func TestError_EveryKindHasAReason(t *testing.T) {
	for kind := KindRefused; kind <= KindProtocol; kind++ {
		if reason := Reason(&Error{Kind: kind}); reason == "" {
			t.Errorf("%s has none", kind)
		}
	}
	if Reason(nil) != "" || Reason(&Error{Kind: KindRetry, Err: os.ErrDeadlineExceeded}) != ReasonTimeout {
		t.Error("the reason does not follow the cause")
	}
}
