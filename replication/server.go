package replication

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5/pgconn"
)

const (
	oldestVersion   = 140000
	newestVersion   = 180000 // the newest major that the tests run on
	failoverVersion = 170000 // slots with failover, invalidation_reason
)

// Server is what a server says of itself, as far as it was asked.
type Server struct {
	ServerVersion int // server_version_num: 150014
	SystemID      string
	Timeline      int32
	WALEnd        pglogrepl.LSN
	SenderTimeout time.Duration // wal_sender_timeout of this connection; zero is never

	// Warnings are one sentence each: what does not stop a stream but may surprise.
	Warnings []string

	forks      []Fork // of the timelines before this one
	walLevel   string
	inRecovery bool
}

// readServer reads the server's settings and refuses a version that is too old.
func (s *Server) readServer(q querier) error {
	row, err := q.one(`SELECT current_setting('server_version_num'), current_setting('server_version'),
		current_setting('wal_level'), pg_catalog.pg_is_in_recovery()`)
	if err != nil {
		return classify("read the server's settings", err)
	}
	version, release := row.int("server_version_num", 0), row.text(1)
	if row.err != nil {
		return row.err
	}
	s.ServerVersion, s.walLevel, s.inRecovery = version, row.text(2), row.bool(3)
	switch {
	case version < oldestVersion:
		return &Error{
			Kind: KindRefused, Reason: ReasonServerVersion, Op: "check the server",
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

// decodes tells whether the server can have and feed a logical slot.
func (s *Server) decodes(q querier) error {
	if s.inRecovery {
		return &Error{
			Kind: KindRetry, Reason: ReasonInRecovery, Op: "check the server", Subject: remoteAddr(q.conn),
			Err: errors.New("it is in recovery: a standby"), Hint: "connect to the primary; with several hosts in the URL it is found by itself",
		}
	}
	if s.walLevel != "logical" {
		return &Error{
			Kind: KindRefused, Reason: ReasonWALLevel, Op: "check the server",
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

// readSenderTimeout takes the value in force, which a proxy or the server may
// have made another than the one we asked for.
func (s *Server) readSenderTimeout(q querier) error {
	row, err := q.one(`SELECT setting FROM pg_catalog.pg_settings WHERE name = 'wal_sender_timeout'`)
	if err != nil {
		return classify("read wal_sender_timeout", err)
	}
	s.SenderTimeout = time.Duration(row.int("wal_sender_timeout", 0)) * time.Millisecond
	return row.err
}

// openServer begins what a command asks beside a stream: it checks the names in cfg,
// connects and reads the server's settings. The caller closes q.conn.
func openServer(ctx context.Context, cfg Config, replication bool) (q querier, server *Server, err error) {
	if err := checkNames(cfg); err != nil {
		return q, nil, err
	}
	return openSession(ctx, cfg, replication)
}

// openSession is openServer for what does without slot and publication.
func openSession(ctx context.Context, cfg Config, replication bool) (q querier, server *Server, err error) {
	conn, err := connect(ctx, cfg, replication)
	if err != nil {
		return q, nil, err
	}
	q, server = querier{ctx: ctx, conn: conn}, &Server{}
	if err := server.readServer(q); err != nil {
		closeQuietly(conn)
		return q, nil, err
	}
	return q, server, nil
}

// identify asks, over a replication connection, where positions of the server mean
// something, and for the end of its WAL.
func (s *Server) identify(q querier) error {
	system, err := pglogrepl.IdentifySystem(q.ctx, q.conn)
	if err != nil {
		return classify("identify the server", err)
	}
	s.SystemID, s.Timeline, s.WALEnd = system.SystemID, system.Timeline, system.XLogPos
	return s.readHistory(q.ctx, q.conn)
}

// origin is where the server's positions mean something, once it was identified.
func (s *Server) origin() Origin {
	return Origin{SystemID: s.SystemID, Timeline: s.Timeline, Forks: s.forks}
}

// readHistory asks for the forks before the present timeline.
func (s *Server) readHistory(ctx context.Context, conn *pgconn.PgConn) error {
	if s.Timeline <= 1 {
		return nil
	}
	history, err := pglogrepl.TimelineHistory(ctx, conn, s.Timeline)
	if err != nil {
		return classify("read the history of timeline "+strconv.Itoa(int(s.Timeline)), err)
	}
	s.forks, err = parseHistory(string(history.Content))
	if err != nil {
		return &Error{Kind: KindProtocol, Op: "read the history of timeline", Subject: strconv.Itoa(int(s.Timeline)), Err: err}
	}
	return nil
}

// parseHistory reads a timeline history file: a line for each timeline that was
// left, with its number, the position of the fork and a reason.
func parseHistory(content string) ([]Fork, error) {
	var forks []Fork
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
		at, err := pglogrepl.ParseLSN(words[1])
		if err != nil {
			return nil, fmt.Errorf("line %d has no position: %w", i+1, err)
		}
		if n := len(forks); n > 0 && (int32(timeline) <= forks[n-1].Timeline || at < forks[n-1].At) {
			return nil, fmt.Errorf("line %d goes back", i+1)
		}
		forks = append(forks, Fork{int32(timeline), at})
	}
	return forks, nil
}
