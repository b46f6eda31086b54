package postgres

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/cdc-relay/cdc-relay/fault"
	"github.com/cdc-relay/cdc-relay/replication/wal"
	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5/pgconn"
)

const (
	OldestVersion   = 140000
	newestVersion   = 180000 // the newest major that the tests run on
	FailoverVersion = 170000 // slots with failover, invalidation_reason
)

// Server is what a server says of itself, as far as it was asked.
type Server struct {
	ServerVersion int // server_version_num: 150014
	SystemID      string
	Database      string // OID of the session's
	Timeline      int32
	WALEnd        wal.LSN
	SenderTimeout time.Duration // wal_sender_timeout of this connection; zero is never

	// Warnings are one sentence each: what does not stop a stream but may surprise.
	Warnings []string

	forks      []wal.Fork // of the timelines before this one
	walLevel   string
	inRecovery bool
}

// ReadSettings reads the server's settings and refuses a version that is too old.
func (s *Server) ReadSettings(q Querier) error {
	row, err := q.One(`SELECT current_setting('server_version_num'), current_setting('server_version'),
		current_setting('wal_level'), pg_catalog.pg_is_in_recovery(),
		(SELECT d.oid FROM pg_catalog.pg_database d WHERE d.datname = pg_catalog.current_database())`)
	if err != nil {
		return Classify("read the server's settings", err)
	}
	version, release := row.Int("server_version_num", 0), row.Text(1)
	if row.Err != nil {
		return row.Err
	}
	s.ServerVersion, s.walLevel, s.inRecovery, s.Database = version, row.Text(2), row.Bool(3), row.Text(4)
	switch {
	case version < OldestVersion:
		return &fault.Error{
			Kind: fault.KindRefused, Reason: fault.ReasonServerVersion, Op: "check the server",
			Err: fmt.Errorf("PostgreSQL %s is not supported", release), Hint: "versions 14 and later are",
		}
	case version/10000 > newestVersion/10000:
		s.Warnings = append(s.Warnings, fmt.Sprintf("PostgreSQL %s is newer than the versions this program was tested with (14 to 18)", release))
	}
	if warning := oldMinor(version, release); warning != "" {
		s.Warnings = append(s.Warnings, warning)
	}
	return nil
}

// CheckDecoding refuses a server that cannot have and feed a logical slot.
func (s *Server) CheckDecoding(q Querier) error {
	if s.inRecovery {
		return &fault.Error{
			Kind: fault.KindRetry, Reason: fault.ReasonInRecovery, Op: "check the server", Subject: RemoteAddr(q.Conn),
			Err: errStandby, Hint: hintPrimary,
		}
	}
	if s.walLevel != "logical" {
		return &fault.Error{
			Kind: fault.KindRefused, Reason: fault.ReasonWALLevel, Op: "check the server",
			Err: fmt.Errorf("wal_level is %s", s.walLevel), Hint: hintWALLevel,
		}
	}
	return nil
}

// oldMinor names releases whose logical decoding is known to lose changes or to
// leave a slot broken (concurrent DDL on a publication, a restart position moving
// backwards, WAL removed while a slot advances, slot state lost on a full disk).
func oldMinor(version int, release string) string {
	fixed := map[int]int{14: 20, 15: 15, 16: 11, 17: 7, 18: 1}
	major, minor := version/10000, version%10000
	if since, ok := fixed[major]; ok && minor < since {
		return fmt.Sprintf("PostgreSQL %s has known faults in logical decoding that are fixed in %d.%d; update the server", release, major, since)
	}
	return ""
}

// ReadSenderTimeout takes the value in force, which a proxy or the server may
// have made another than the one we asked for.
func (s *Server) ReadSenderTimeout(q Querier) error {
	row, err := q.One(`SELECT setting FROM pg_catalog.pg_settings WHERE name = 'wal_sender_timeout'`)
	if err != nil {
		return Classify("read wal_sender_timeout", err)
	}
	s.SenderTimeout = time.Duration(row.Int("wal_sender_timeout", 0)) * time.Millisecond
	return row.Err
}

// OpenServer begins what a command asks beside a stream: it checks the names in cfg,
// connects and reads the server's settings. The caller closes q.conn.
func OpenServer(ctx context.Context, cfg Config, replication bool) (q Querier, server *Server, err error) {
	if err := CheckNames(cfg); err != nil {
		return q, nil, err
	}
	return OpenSession(ctx, cfg, replication)
}

// OpenSession is OpenServer for what does without slot and publication.
func OpenSession(ctx context.Context, cfg Config, replication bool) (q Querier, server *Server, err error) {
	conn, err := Connect(ctx, cfg, replication)
	if err != nil {
		return q, nil, err
	}
	q, server = Querier{Ctx: ctx, Conn: conn}, &Server{}
	if err := server.ReadSettings(q); err != nil {
		CloseQuietly(conn)
		return q, nil, err
	}
	return q, server, nil
}

// Identify asks, over a replication connection, where positions of the server mean
// something, and for the end of its WAL.
func (s *Server) Identify(q Querier) error {
	system, err := pglogrepl.IdentifySystem(q.Ctx, q.Conn)
	if err != nil {
		return Classify("identify the server", err)
	}
	s.SystemID, s.Timeline, s.WALEnd = system.SystemID, system.Timeline, wal.LSN(system.XLogPos)
	return s.readHistory(q.Ctx, q.Conn)
}

// Origin is where the server's positions mean something, once it was identified.
func (s *Server) Origin() wal.Origin {
	return wal.Origin{SystemID: s.SystemID, Database: s.Database, Timeline: s.Timeline, Forks: s.forks}
}

// readHistory asks for the forks before the present timeline.
func (s *Server) readHistory(ctx context.Context, conn *pgconn.PgConn) error {
	if s.Timeline <= 1 {
		return nil
	}
	history, err := pglogrepl.TimelineHistory(ctx, conn, s.Timeline)
	if err != nil {
		return Classify("read the history of timeline "+strconv.Itoa(int(s.Timeline)), err)
	}
	s.forks, err = parseHistory(string(history.Content))
	if err != nil {
		return &fault.Error{Kind: fault.KindProtocol, Op: "read the history of timeline", Subject: strconv.Itoa(int(s.Timeline)), Err: err}
	}
	return nil
}

// parseHistory reads a timeline history file: a line for each timeline that was
// left, with its number, the position of the fork and a reason.
func parseHistory(content string) ([]wal.Fork, error) {
	var forks []wal.Fork
	for i, line := range strings.Split(content, "\n") {
		line = strings.TrimSpace(line)
		if line == "" || line[0] == '#' {
			continue
		}
		words := strings.Fields(line)
		if len(words) < 2 {
			return nil, fmt.Errorf("line %d has no position", i+1)
		}
		timeline, err := strconv.ParseInt(words[0], 10, 32)
		if err != nil || timeline < 1 {
			return nil, fmt.Errorf("line %d begins with no timeline", i+1)
		}
		at, err := wal.ParseLSN(words[1])
		if err != nil {
			return nil, fmt.Errorf("line %d has no position: %w", i+1, err)
		}
		if n := len(forks); n > 0 && (int32(timeline) <= forks[n-1].Timeline || at < forks[n-1].At) {
			return nil, fmt.Errorf("line %d goes back", i+1)
		}
		forks = append(forks, wal.Fork{Timeline: int32(timeline), At: at})
	}
	return forks, nil
}
