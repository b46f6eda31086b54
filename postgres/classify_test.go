package postgres_test

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

	"github.com/cdc-relay/cdc-relay/fault"
	"github.com/cdc-relay/cdc-relay/postgres"
	"github.com/cdc-relay/cdc-relay/postgres/postgrestest"
	"github.com/jackc/pgx/v5/pgconn"
)

func TestClassify_BySQLState(t *testing.T) {
	const inCallback = `slot "s", output plugin "pgoutput", in the change callback, associated LSN 16/B374D848`
	tests := []struct {
		name   string
		err    pgconn.PgError
		kind   fault.Kind
		reason string
	}{
		{"slot dropped", pgconn.PgError{Code: "42704", File: "slot.c", Message: `replication slot "s" does not exist`}, fault.KindRefused, fault.ReasonSlotMissing},
		{"slot dropped, server in German", pgconn.PgError{Code: "42704", File: "slot.c", Message: `Replikations-Slot »s« existiert nicht`}, fault.KindRefused, fault.ReasonSlotMissing},
		{"publication dropped", pgconn.PgError{Code: "42704", File: "pg_publication.c", Where: inCallback}, fault.KindRefused, fault.ReasonPublicationMissing},
		{"publication dropped, by text", pgconn.PgError{Code: "42704", Message: `publication "p" does not exist`}, fault.KindRefused, fault.ReasonPublicationMissing},
		{"something else undefined", pgconn.PgError{Code: "42704", File: "parse_type.c", Message: `type "x" does not exist`}, fault.KindRefused, fault.ReasonServerError},
		{"busy", pgconn.PgError{Code: "55006", Message: `replication slot "s" is active for PID 7`}, fault.KindBusy, fault.ReasonSlotInUse},
		{"invalidated, 15", pgconn.PgError{Code: "55000", Message: `cannot read from logical replication slot "s"`}, fault.KindLost, fault.ReasonSlotLost},
		{"invalidated, 18", pgconn.PgError{Code: "55000", Message: `can no longer access replication slot "s"`}, fault.KindLost, fault.ReasonSlotLost},
		{"synced copy", pgconn.PgError{Code: "55000", Message: `cannot use replication slot "s" for logical decoding`, Detail: `This replication slot is being synchronized from the primary server.`}, fault.KindRetry, fault.ReasonInRecovery},
		{"other database", pgconn.PgError{Code: "55000", Message: `replication slot "s" was not created in this database`}, fault.KindRefused, fault.ReasonSlotUnusable},
		{"wal_level", pgconn.PgError{Code: "55000", Message: `logical decoding requires wal_level >= logical`}, fault.KindRefused, fault.ReasonWALLevel},
		{"stopping", pgconn.PgError{Code: "55000", Message: `cannot execute new commands while WAL sender is in stopping mode`}, fault.KindRetry, fault.ReasonServerShutdown},
		{"unknown 55000 asks the catalog again", pgconn.PgError{Code: "55000", Message: `…`}, fault.KindRetry, fault.ReasonServerError},
		{"admin shutdown", pgconn.PgError{Code: "57P01"}, fault.KindRetry, fault.ReasonServerShutdown},
		{"crash shutdown", pgconn.PgError{Code: "57P02"}, fault.KindRetry, fault.ReasonServerShutdown},
		{"starting up", pgconn.PgError{Code: "57P03"}, fault.KindRetry, fault.ReasonServerShutdown},
		{"statement timeout", pgconn.PgError{Code: "57014"}, fault.KindRetry, fault.ReasonTimeout},
		{"too many connections", pgconn.PgError{Code: "53300"}, fault.KindRetry, fault.ReasonServerLimit},
		{"slots in use", pgconn.PgError{Code: "53400"}, fault.KindRetry, fault.ReasonServerLimit},
		{"disk full", pgconn.PgError{Code: "53100"}, fault.KindRetry, fault.ReasonServerLimit},
		{"I/O error", pgconn.PgError{Code: "58030"}, fault.KindRetry, fault.ReasonServerError},
		{"WAL removed", pgconn.PgError{Code: "58P01", File: "walsender.c"}, fault.KindLost, fault.ReasonSlotLost},
		{"no pgoutput", pgconn.PgError{Code: "58P01", File: "dfmgr.c"}, fault.KindRefused, fault.ReasonServerError},
		{"poison row", pgconn.PgError{Code: "XX000", Message: "invalid memory alloc request size 1080000003", Where: inCallback}, fault.KindProtocol, fault.ReasonUndecodable},
		{"bad encoding of a row", pgconn.PgError{Code: "22021", Where: inCallback}, fault.KindProtocol, fault.ReasonUndecodable},
		{"string too long", pgconn.PgError{Code: "54000", Where: inCallback}, fault.KindProtocol, fault.ReasonUndecodable},
		{"internal error elsewhere", pgconn.PgError{Code: "XX000"}, fault.KindRetry, fault.ReasonServerError},
		{"password", pgconn.PgError{Code: "28P01"}, fault.KindRefused, fault.ReasonAuth},
		{"pg_hba", pgconn.PgError{Code: "28000"}, fault.KindRefused, fault.ReasonAuth},
		{"permission", pgconn.PgError{Code: "42501"}, fault.KindRefused, fault.ReasonPermission},
		{"database", pgconn.PgError{Code: "3D000"}, fault.KindRefused, fault.ReasonDatabaseMissing},
		{"connection failure", pgconn.PgError{Code: "08006"}, fault.KindRetry, fault.ReasonNetwork},
		{"pooler", pgconn.PgError{Code: "08P01"}, fault.KindRetry, fault.ReasonNetwork},
		{"pooler in the way", pgconn.PgError{Code: "08P01", Message: "unsupported startup parameter: extra_float_digits"}, fault.KindRefused, fault.ReasonConfiguration},
		{"nobody knows", pgconn.PgError{Code: "P0001"}, fault.KindRefused, fault.ReasonServerError},
		{"no code at all", pgconn.PgError{}, fault.KindRefused, fault.ReasonServerError},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			postgrestest.WantError(t, postgres.Classify("try", &test.err), test.kind, test.reason, "try: ")
			postgrestest.WantError(t, postgres.Classify("try", fmt.Errorf("wrapped: %w", &test.err)), test.kind, test.reason)
			if postgres.KindOf(&test.err) != test.kind {
				t.Errorf("KindOf without classify: %s", postgres.KindOf(&test.err))
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
		{"end of stream", io.EOF, fault.ReasonNetwork},
		{"half a message", io.ErrUnexpectedEOF, fault.ReasonNetwork},
		{"refused", &net.OpError{Op: "dial", Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)}, fault.ReasonNetwork},
		{"reset", syscall.ECONNRESET, fault.ReasonNetwork},
		{"no such host", &net.DNSError{Err: "no such host", Name: "db"}, fault.ReasonNetwork},
		{"closed", net.ErrClosed, fault.ReasonNetwork},
		{"deadline", os.ErrDeadlineExceeded, fault.ReasonTimeout},
		{"context deadline", context.DeadlineExceeded, fault.ReasonTimeout},
		{"cancelled", context.Canceled, fault.ReasonCancelled},
		{"unknown CA", &tls.CertificateVerificationError{Err: x509.UnknownAuthorityError{}}, fault.ReasonTLS},
		{"wrong name", x509.HostnameError{Certificate: &x509.Certificate{}, Host: "db"}, fault.ReasonTLS},
		{"alert", tls.AlertError(42), fault.ReasonTLS},
		{"no TLS", errors.New("tls error: server refused TLS connection"), fault.ReasonTLS},
		{"standby", pgconn.ErrStandbyConnection, fault.ReasonInRecovery},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			kind := fault.KindRetry
			switch test.name {
			case "unknown CA", "wrong name", "no TLS": // no waiting helps
				kind = fault.KindRefused
			}
			postgrestest.WantError(t, postgres.Classify("try", fmt.Errorf("wrapped: %w", test.err)), kind, test.reason)
		})
	}
	postgrestest.WantError(t, postgres.Classify("try", errors.New("nobody knows")), fault.KindRefused, fault.ReasonServerError)
}

func TestClassify_KeepsWhatIsClassified(t *testing.T) {
	if postgres.Classify("try", nil) != nil {
		t.Error("an error out of none")
	}
	first := &fault.Error{Kind: fault.KindDrift, Op: "watch", Err: io.EOF}
	wrapped := fmt.Errorf("session: %w", first)
	if postgres.Classify("try", wrapped) != wrapped { //nolint:errorlint // the very same value
		t.Error("a classified error was classified again")
	}
	if postgres.KindOf(wrapped) != fault.KindDrift || !errors.Is(wrapped, io.EOF) {
		t.Error("kind or cause is lost in wrapping")
	}
}

func TestClassify_ReadsTheLSN(t *testing.T) {
	err := postgres.Classify("stream", &pgconn.PgError{Code: "XX000", Message: "boom", Where: "Slot »s«, Ausgabe-Plugin »pgoutput«, im Change-Callback, zugehörige LSN 16/B374D848"})
	var e *fault.Error
	if !errors.As(err, &e) || e.LSN.String() != "16/B374D848" {
		t.Errorf("no LSN in %v", err)
	}
}

func TestError_NamesWhatWhereAndNext(t *testing.T) {
	err := &fault.Error{Op: "start streaming from", Subject: `slot "s"`, LSN: 0x16B374D8, Err: errors.New("two\n\tlines"), Hint: "do this"}
	const want = `start streaming from slot "s": two; lines (LSN 0/16B374D8); do this`
	if err.Error() != want {
		t.Errorf("got  %s\nwant %s", err, want)
	}
	if got := (&fault.Error{Op: "decode row", LSN: 1}).Error(); got != "decode row (LSN 0/1)" {
		t.Errorf("without a cause: %s", got)
	}
}

func TestError_EveryKindHasAReason(t *testing.T) {
	for kind := fault.KindRefused; kind <= fault.KindProtocol; kind++ {
		if reason := postgres.Reason(&fault.Error{Kind: kind}); reason == "" {
			t.Errorf("%s has none", kind)
		}
	}
	if postgres.Reason(nil) != "" || postgres.Reason(&fault.Error{Kind: fault.KindRetry, Err: os.ErrDeadlineExceeded}) != fault.ReasonTimeout {
		t.Error("the reason does not follow the cause")
	}
}
