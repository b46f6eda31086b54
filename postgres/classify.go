package postgres

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"regexp"
	"strings"
	"syscall"

	"github.com/cdc-relay/cdc-relay/fault"
	"github.com/cdc-relay/cdc-relay/replication/wal"
	"github.com/cdc-relay/cdc-relay/wording"
	"github.com/jackc/pgx/v5/pgconn"
)

// Classify turns a failure of the driver or the server into a *fault.Error. An error
// that is one already, or wraps one, keeps its kind. It is nil for nil.
func Classify(op string, err error) error {
	if err == nil {
		return nil
	}
	var e *fault.Error
	if errors.As(err, &e) {
		return err
	}
	v := verdictOf(err)
	return &fault.Error{Kind: v.kind, Reason: v.reason, Op: op, Hint: v.hint, LSN: v.lsn, Err: withDetail(err)}
}

type verdict struct {
	kind   fault.Kind
	reason string
	hint   string
	lsn    wal.LSN
}

func verdictOf(err error) verdict {
	var pg *pgconn.PgError
	if errors.As(err, &pg) {
		return verdictOfServer(pg)
	}
	return verdictOfNetwork(err)
}

const (
	HintSetup     = "run `cdc-relay setup` to create what is missing"
	hintVerify    = "renew the server's certificate, correct the clock, or name the authority that signed it in sslrootcert"
	hintAuthority = "name the authority that signed the server's certificate in sslrootcert"
	hintName      = "connect by a name in the server's certificate; sslmode=verify-ca does not compare names"
	HintInUse     = "the relay takes the slot when it is free; if two consumers are a mistake, stop one or give it its own slot (postgres.slot)"
	hintServerLog = "the server's log may say more"
	hintReach     = "check that the server is up and can be reached from here, and host and port in postgres.url"
	hintPrimary   = "name the primary in postgres.url, or all hosts: the relay takes the primary of them"
	hintServerTLS = "turn on ssl at the server, or set sslmode=disable if the network is trusted"

	SeeSendingAgain = "see " + wording.Docs + "operations.md#sending-rows-again"
)

// HintRecreate is the way out of a slot that cannot continue: reason names the entry of
// the runbook, confirmed is zero where it is not known.
func HintRecreate(reason string, confirmed wal.LSN) string {
	since := "the last confirmed LSN"
	if confirmed != 0 {
		since = "LSN " + confirmed.String()
	}
	return fmt.Sprintf("stop the relay, then `cdc-relay teardown --yes`, `cdc-relay setup`, `cdc-relay run`, and send the rows since %s again (`cdc-relay replay`): see %soperations.md#%s", since, wording.Docs, reason)
}

// HintUnpublished is for a row from before its publication, of which the server uses the
// catalog as it was then.
func HintUnpublished(confirmed wal.LSN) string {
	return "the publication did not exist when the row at this position was written, and the slot cannot stream rows from before a new one: " +
		HintRecreate(fault.ReasonPublicationMissing, confirmed)
}

// byState is the answer for each SQLSTATE whose meaning does not depend on
// anything else. The states in switchState do.
var byState = map[string]verdict{
	"28P01": {kind: fault.KindRefused, reason: fault.ReasonAuth, hint: "check the user name and the password"},
	"28000": {kind: fault.KindRefused, reason: fault.ReasonAuth, hint: "check the user name, and pg_hba.conf at the server: logical replication needs an entry for the database, not for `replication`"},
	"42501": {kind: fault.KindRefused, reason: fault.ReasonPermission, hint: "grant the right to the role that connects"},
	"3D000": {kind: fault.KindRefused, reason: fault.ReasonDatabaseMissing, hint: "check the database name in the URL"},
	"42P01": {kind: fault.KindRefused, reason: fault.ReasonTableMissing, hint: "create the table, or correct its name in the configuration"},
	"3F000": {kind: fault.KindRefused, reason: fault.ReasonTableMissing, hint: "create the schema, or correct its name in the configuration"},
	"0A000": {kind: fault.KindRefused, reason: fault.ReasonServerVersion, hint: "the server does not know this request; versions 14 and later are supported"},
	"42601": {kind: fault.KindRefused, reason: fault.ReasonProtocol, hint: "connect to PostgreSQL itself, not to a pooler or proxy; if PostgreSQL itself answers, please report this"},
	"42602": {kind: fault.KindRefused, reason: fault.ReasonConfiguration, hint: "correct postgres.slot or postgres.publication"},
	"42710": {kind: fault.KindRefused, reason: fault.ReasonServerError, hint: "an object of this name was created meanwhile: run the command again"},

	"55P03": {kind: fault.KindRetry, reason: fault.ReasonLockTimeout},
	"55006": {kind: fault.KindBusy, reason: fault.ReasonSlotInUse, hint: HintInUse},

	"57P01": {kind: fault.KindRetry, reason: fault.ReasonServerShutdown}, // also what a walsender says whose slot is being invalidated
	"57P02": {kind: fault.KindRetry, reason: fault.ReasonServerShutdown},
	"57P03": {kind: fault.KindRetry, reason: fault.ReasonServerShutdown},
	"57P04": {kind: fault.KindRetry, reason: fault.ReasonServerShutdown},
	"57P05": {kind: fault.KindRetry, reason: fault.ReasonTimeout},
	"57014": {kind: fault.KindRetry, reason: fault.ReasonTimeout},
	"25006": {kind: fault.KindRetry, reason: fault.ReasonInRecovery, hint: "connect to the primary"},
	"53300": {kind: fault.KindRetry, reason: fault.ReasonServerLimit, hint: "raise max_connections or max_wal_senders, or close other connections"},
	"53400": {kind: fault.KindRetry, reason: fault.ReasonServerLimit, hint: "raise max_replication_slots, or drop a slot that nobody uses"},
	"53000": {kind: fault.KindRetry, reason: fault.ReasonServerLimit},
	"53100": {kind: fault.KindRetry, reason: fault.ReasonServerLimit, hint: "the server's disk is full: free space there"},
	"53200": {kind: fault.KindRetry, reason: fault.ReasonServerLimit, hint: "the server is out of memory: see its log"},
	"58000": {kind: fault.KindRetry, reason: fault.ReasonServerError},
	"58030": {kind: fault.KindRetry, reason: fault.ReasonServerError, hint: "the server reports an I/O error: see its log and its disks"},
	"40001": {kind: fault.KindRetry, reason: fault.ReasonServerError},
	"40P01": {kind: fault.KindRetry, reason: fault.ReasonServerError},
}

// SQLState is the state that a server gave its error; empty: it is none of a server's.
func SQLState(err error) string {
	if pg, ok := errors.AsType[*pgconn.PgError](err); ok {
		return pg.Code
	}
	return ""
}

func verdictOfServer(pg *pgconn.PgError) verdict {
	v, ok := byState[pg.Code]
	if !ok {
		v = switchState(pg)
	}
	v.lsn = associatedLSN(pg)
	return v
}

// switchState distinguishes the states that several failures share. The source
// file of the server's error is asked first: messages are translated by
// lc_messages, which an ordinary role cannot pin; files are not.
func switchState(pg *pgconn.PgError) verdict {
	switch pg.Code {
	case "42704":
		return undefinedObject(pg)
	case "55000":
		return wrongState(pg)
	case "58P01":
		if pg.File == "dfmgr.c" {
			return verdict{kind: fault.KindRefused, reason: fault.ReasonServerError, hint: "the server has no pgoutput library; install the complete server package"}
		}
		return verdict{kind: fault.KindLost, reason: fault.ReasonSlotLost, hint: HintRecreate(fault.ReasonSlotLost, 0)}
	}
	switch class := pg.Code[:min(2, len(pg.Code))]; class {
	case "08":
		if strings.Contains(pg.Message, "startup parameter") {
			return verdict{kind: fault.KindRefused, reason: fault.ReasonConfiguration, hint: "a connection pooler answered: connect to PostgreSQL itself"}
		}
		return verdict{kind: fault.KindRetry, reason: fault.ReasonNetwork}
	case "XX", "22", "54":
		// Inside the change callback it is a row that the server cannot decode:
		// every attempt ends at the same place.
		if associatedLSN(pg) != 0 {
			return verdict{kind: fault.KindProtocol, reason: fault.ReasonUndecodable, hint: "the server cannot decode the row at this position, and the slot cannot pass it: see the server's log for the cause"}
		}
		if class == "XX" {
			return verdict{kind: fault.KindRetry, reason: fault.ReasonServerError}
		}
	}
	return verdict{kind: fault.KindRefused, reason: fault.ReasonServerError, hint: hintServerLog}
}

func undefinedObject(pg *pgconn.PgError) verdict {
	slot := verdict{kind: fault.KindRefused, reason: fault.ReasonSlotMissing, hint: HintSetup}
	publication := verdict{kind: fault.KindRefused, reason: fault.ReasonPublicationMissing, hint: HintSetup}
	switch {
	case pg.File == "slot.c" || pg.File == "slotfuncs.c":
		return slot
	case strings.Contains(pg.File, "publication") || associatedLSN(pg) != 0:
		publication.hint = HintUnpublished(0)
		return publication
	case strings.Contains(pg.Message, "replication slot"):
		return slot
	case strings.Contains(pg.Message, "publication"):
		return publication
	}
	return verdict{kind: fault.KindRefused, reason: fault.ReasonServerError, hint: hintServerLog}
}

// wrongState splits 55000 by text, for want of anything else. What it does not
// recognise is retried: the next session reads the slot's state from the
// catalog, where no text is involved.
func wrongState(pg *pgconn.PgError) verdict {
	text := pg.Message + "\n" + pg.Detail
	has := func(s string) bool { return strings.Contains(text, s) }
	switch {
	case has("being synchronized from the primary"):
		return verdict{kind: fault.KindRetry, reason: fault.ReasonInRecovery, hint: "connect to the primary"}
	case has("cannot read from logical replication slot"), has("can no longer access replication slot"),
		has("can no longer get changes from replication slot"), has("has been invalidated"):
		return verdict{kind: fault.KindLost, reason: fault.ReasonSlotLost, hint: HintRecreate(fault.ReasonSlotLost, 0)}
	case has("was not created in this database"):
		return verdict{kind: fault.KindRefused, reason: fault.ReasonSlotUnusable, hint: "connect to the slot's database, or choose another slot name"}
	case has("physical replication slot"):
		return verdict{kind: fault.KindRefused, reason: fault.ReasonSlotUnusable, hint: "choose another slot name and run `cdc-relay setup`"}
	case has("wal_level"):
		return verdict{kind: fault.KindRefused, reason: fault.ReasonWALLevel, hint: hintWALLevel}
	case has("stopping mode"):
		return verdict{kind: fault.KindRetry, reason: fault.ReasonServerShutdown}
	}
	return verdict{kind: fault.KindRetry, reason: fault.ReasonServerError}
}

var lsnInText = regexp.MustCompile(`\b[0-9A-F]{1,8}/[0-9A-F]{1,8}\b`)

// associatedLSN reads "… in the change callback, associated LSN 0/1A2B" out of
// an error's context, whatever its language.
func associatedLSN(pg *pgconn.PgError) wal.LSN {
	all := lsnInText.FindAllString(pg.Where, -1)
	if len(all) == 0 {
		return 0
	}
	lsn, err := wal.ParseLSN(all[len(all)-1])
	if err != nil {
		return 0
	}
	return lsn
}

func verdictOfNetwork(err error) verdict {
	var (
		netErr      net.Error
		unknownCA   x509.UnknownAuthorityError
		wrongName   x509.HostnameError
		badCert     x509.CertificateInvalidError
		notVerified *tls.CertificateVerificationError
		alert       tls.AlertError
		noTLS       tls.RecordHeaderError
		errno       syscall.Errno
		opErr       *net.OpError
		dnsErr      *net.DNSError
	)
	switch {
	case errors.Is(err, context.Canceled):
		return verdict{kind: fault.KindRetry, reason: fault.ReasonCancelled}
	case errors.As(err, &unknownCA):
		return verdict{kind: fault.KindRefused, reason: fault.ReasonTLS, hint: hintAuthority}
	case errors.As(err, &wrongName):
		return verdict{kind: fault.KindRefused, reason: fault.ReasonTLS, hint: hintName}
	case errors.As(err, &badCert), errors.As(err, &notVerified):
		return verdict{kind: fault.KindRefused, reason: fault.ReasonTLS, hint: hintVerify}
	case errors.As(err, &alert):
		return verdict{kind: fault.KindRetry, reason: fault.ReasonTLS, hint: "the server ended the TLS handshake: check sslcert and sslkey"}
	case errors.As(err, &noTLS):
		return verdict{kind: fault.KindRetry, reason: fault.ReasonTLS, hint: "the server there does not speak TLS: check host and port"}
	case strings.Contains(err.Error(), "server refused TLS connection"):
		return verdict{kind: fault.KindRefused, reason: fault.ReasonTLS, hint: hintServerTLS}
	case errors.As(err, &dnsErr), errors.As(err, &opErr) && opErr.Op == "dial":
		reason := fault.ReasonNetwork
		if errors.As(err, &netErr) && netErr.Timeout() {
			reason = fault.ReasonTimeout
		}
		return verdict{kind: fault.KindRetry, reason: reason, hint: hintReach}
	case errors.Is(err, context.DeadlineExceeded), errors.As(err, &netErr) && netErr.Timeout():
		return verdict{kind: fault.KindRetry, reason: fault.ReasonTimeout}
	case errors.Is(err, pgconn.ErrStandbyConnection), errors.Is(err, pgconn.ErrReadOnlyConnection),
		errors.Is(err, pgconn.ErrPrimaryConnection), errors.Is(err, pgconn.ErrReadWriteConnection):
		return verdict{kind: fault.KindRetry, reason: fault.ReasonInRecovery, hint: hintPrimary}
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, net.ErrClosed), errors.Is(err, pgconn.ErrConnClosed),
		errors.As(err, &opErr), errors.As(err, &errno), pgconn.SafeToRetry(err):
		return verdict{kind: fault.KindRetry, reason: fault.ReasonNetwork}
	}
	return verdict{kind: fault.KindRefused, reason: fault.ReasonServerError}
}

// withDetail adds the server's detail and context, which have the cause where
// the message has only the effect. The detail of a constraint violation would
// quote a row; none of our statements can violate one.
func withDetail(err error) error {
	var pg *pgconn.PgError
	if !errors.As(err, &pg) || pg.Detail == "" || strings.HasPrefix(pg.Code, "23") || strings.HasPrefix(pg.Code, "22") {
		return err
	}
	return fmt.Errorf("%w: %s", err, pg.Detail)
}

// KindOf says what to do about err, which may wrap a *fault.Error or come straight
// from the driver. It is not to be asked about nil.
func KindOf(err error) fault.Kind {
	var e *fault.Error
	if errors.As(err, &e) {
		return e.Kind
	}
	return verdictOf(err).kind
}

// Reason names err's cause in one snake_case word, or is empty for nil.
func Reason(err error) string {
	if err == nil {
		return ""
	}
	var e *fault.Error
	if !errors.As(err, &e) {
		return verdictOf(err).reason
	}
	if e.Reason != "" {
		return e.Reason
	}
	switch e.Kind {
	case fault.KindBusy:
		return fault.ReasonSlotInUse
	case fault.KindLost:
		return fault.ReasonSlotLost
	case fault.KindDrift:
		return fault.ReasonPublicationChanged
	case fault.KindProtocol:
		return fault.ReasonProtocol
	case fault.KindRefused, fault.KindRetry:
	}
	if e.Err != nil {
		return verdictOf(e.Err).reason
	}
	if e.Kind == fault.KindRetry {
		return fault.ReasonNetwork
	}
	return fault.ReasonServerError
}

// FunctionHint replaces the hint of an error about a table or a function that a function which the
// statement runs did not find. Only such an error has a context, which may have values of rows.
func FunctionHint(err error, hint string) error {
	e, classified := errors.AsType[*fault.Error](err)
	pg, sent := errors.AsType[*pgconn.PgError](err)
	if classified && sent && pg.Where != "" && (pg.Code == "42P01" || pg.Code == "42883") {
		e.Hint = hint
	}
	return err
}

// PermissionHint replaces the hint of an error that is about permissions.
func PermissionHint(err error, hint string) error {
	var e *fault.Error
	if errors.As(err, &e) && e.Reason == fault.ReasonPermission {
		e.Hint = hint
	}
	return err
}

const (
	hintWALLevel = "set wal_level = logical at the server and restart it (managed services have a parameter for it)"
)
