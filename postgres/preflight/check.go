package preflight

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/cdc-relay/cdc-relay/advice"
	"github.com/cdc-relay/cdc-relay/fault"
	"github.com/cdc-relay/cdc-relay/postgres"
	"github.com/cdc-relay/cdc-relay/postgres/catalog"
	"github.com/cdc-relay/cdc-relay/replication/wal"
	"github.com/cdc-relay/cdc-relay/wording"
	"github.com/jackc/pgx/v5/pgconn"
)

// Report is what Check saw.
type Report struct {
	Findings advice.Findings
	Tables   []CheckedTable // parallel to Config.Tables; shorter when the server could not be asked
}

// CheckedTable is a configured table as the stream will announce it.
type CheckedTable struct {
	Table    wal.Table
	Relation *wal.Relation // nil when the table is missing, or nothing of its kind can be streamed
	Readable bool          // our role may SELECT from it, and sees every row

	// Generated and Unlisted are the columns that the table has and the stream
	// lacks: generated ones, and those that the publication's column list omits.
	Generated []string
	Unlisted  []string
}

// Check asks the server for everything that streaming depends on, and for what
// tends to go wrong later. It changes nothing. A role with LOGIN and REPLICATION
// is enough. ctx bounds it all; it takes about a second when the slot's WAL is
// limited, to measure how fast WAL is written.
func Check(ctx context.Context, cfg postgres.Config) *Report {
	c := &checker{cfg: cfg, report: &Report{}}
	if err := postgres.CheckNames(cfg); err != nil {
		c.fail("configuration", err)
		return c.report
	}
	conn, err := postgres.Connect(ctx, cfg, false)
	if err != nil {
		c.fail("postgres.connection", withAdvice(err, "start the server, or correct postgres.url"))
		return c.report
	}
	defer postgres.CloseQuietly(conn)
	c.q = postgres.Querier{Ctx: ctx, Conn: conn}
	err = c.run()
	if cfg.Shard.Divided() {
		c.checkFamilies()
	}
	for _, shard := range cfg.Shards()[1:] {
		if err == nil {
			err = c.checkShard(shard)
		}
	}
	if err != nil {
		c.fail("postgres.connection", withAdvice(postgres.Classify("check the server", err), "run the check again"))
	}
	return c.report
}

// checker collects the findings of one Check over one connection.
type checker struct {
	cfg      postgres.Config
	q        postgres.Querier
	server   postgres.Server
	slot     catalog.SlotInfo
	settings map[string]string
	user     string
	report   *Report

	streaming bool // somebody streams from our slot
	senders   int  // WAL senders that are free

	started time.Time // when the WAL ended at walFrom
	walFrom wal.LSN
}

func (c *checker) add(check string, level advice.Level, next, seen string, args ...any) {
	c.report.Findings.Add(check, level, next, "%s", fault.OneLine(fmt.Sprintf(seen, args...)))
}

func (c *checker) ok(check, seen string, args ...any) { c.add(check, advice.OK, "", seen, args...) }

func (c *checker) warn(check, next, seen string, args ...any) {
	c.add(check, advice.Warn, next, seen, args...)
}

// fail turns a *fault.Error into a finding: its hint is the advice.
func (c *checker) fail(check string, err error) {
	seen, next := err.Error(), ""
	if e, ok := errors.AsType[*fault.Error](err); ok {
		seen, next = e.Apart()
	}
	c.add(check, advice.Fail, next, "%s", seen)
}

// withAdvice gives an error that has no hint of its own one.
func withAdvice(err error, hint string) error {
	e, ok := errors.AsType[*fault.Error](err)
	if !ok {
		return &fault.Error{Op: "check", Err: err, Hint: hint}
	}
	if e.Hint != "" {
		return err
	}
	with := *e
	with.Hint = hint
	return &with
}

// run goes from the server to the slot. Its error is a server that stopped to
// answer; whatever else is wrong is a finding, and the checks go on.
func (c *checker) run() error {
	for _, step := range []struct {
		check string
		do    func() error
	}{
		{"postgres.connection", c.checkConnection},
		{"postgres.version", c.checkVersion},
		{"postgres.wal_level", c.checkDecoding},
		{"postgres.settings", c.readSettings},
		{"postgres.slots_free", c.checkRoom},
		{"postgres.shards", c.checkShards},
		{"postgres.replication", c.checkReplication},
		{"publication", c.checkPublication},
		{"slot", c.checkSlot},
		{"slot.wal", c.checkRetention},
		{"slot.failover", c.checkFailover},
		{"postgres.synchronous", c.checkSynchronous},
	} {
		err := step.do()
		switch {
		case err == nil:
		case unanswered(err):
			return err
		default:
			c.warn(step.check, "check which rights on the system catalog were revoked on this server", "could not be checked: %v", err)
		}
	}
	return nil
}

// checkConnection compares the backend's process with the one that answered the
// login: between them stands a pooler when they are not the same.
func (c *checker) checkConnection() error {
	row, err := c.q.One(`SELECT pg_catalog.pg_backend_pid(), current_user, current_database(), pg_catalog.pg_encoding_to_char(encoding),
			(SELECT rolsuper FROM pg_catalog.pg_roles WHERE rolname = current_user), current_setting('client_encoding')
		FROM pg_catalog.pg_database WHERE datname = current_database()`)
	if err != nil {
		return err
	}
	pid := row.Int("pg_backend_pid", 0)
	c.user = row.Text(1)
	c.ok("postgres.connection", "connected to %s as %q to database %q", postgres.RemoteAddr(c.q.Conn), c.user, row.Text(2))
	if uint32(pid) != c.q.Conn.PID() {
		c.warn("postgres.pooler", "connect to the server itself: a pooler hides failovers, and few pass replication on",
			"a pooler or proxy is between the relay and the server: process %d answered the login, and process %d runs the statements", c.q.Conn.PID(), pid)
	} else {
		c.ok("postgres.pooler", "no pooler in between")
	}
	if row.Bool(4) {
		c.warn("postgres.role", fmt.Sprintf("run as a role of its own: CREATE ROLE cdc_relay LOGIN REPLICATION; GRANT CONNECT ON DATABASE %s TO cdc_relay", wal.QuoteIdentifier(row.Text(2))),
			"role %q is a superuser; streaming needs less", c.user)
	}
	if row.Text(3) == "SQL_ASCII" {
		c.warn("postgres.encoding", "move to a database in UTF8: invalid bytes stop the stream, or reach consumers unchanged",
			"the database's encoding is SQL_ASCII, which checks nothing")
	}
	return row.Err
}

func (c *checker) checkVersion() error {
	err := c.server.ReadSettings(c.q)
	switch {
	case postgres.Reason(err) == fault.ReasonServerVersion:
		c.fail("postgres.version", err)
		return nil
	case err != nil:
		return err
	}
	for _, warning := range c.server.Warnings {
		c.warn("postgres.version", "use a current minor release of 14 to 18", "%s", warning)
	}
	if len(c.server.Warnings) == 0 {
		c.ok("postgres.version", "PostgreSQL %d.%d", c.server.ServerVersion/10000, c.server.ServerVersion%10000)
	}
	return nil
}

func (c *checker) checkDecoding() error {
	if err := c.server.CheckDecoding(c.q); err != nil {
		check := "postgres.wal_level"
		if postgres.Reason(err) == fault.ReasonInRecovery {
			check = "postgres.primary"
		}
		c.fail(check, err)
		return nil
	}
	c.ok("postgres.wal_level", "wal_level is logical, and the server is a primary")
	if c.server.ServerVersion < postgres.OldestVersion {
		return nil
	}
	row, err := c.q.One(`SELECT pg_catalog.pg_current_wal_lsn()`)
	if err != nil {
		return err
	}
	c.walFrom, c.started = row.LSN("pg_current_wal_lsn", 0), time.Now()
	return row.Err
}

// readSettings takes values in their base unit. A setting that the server does
// not have is not in the map.
func (c *checker) readSettings() error {
	rows, err := c.q.All(`SELECT name, setting FROM pg_catalog.pg_settings WHERE name IN ('max_replication_slots', 'max_wal_senders',
		'max_slot_wal_keep_size', 'wal_segment_size', 'idle_replication_slot_timeout', 'synchronous_standby_names', 'synchronized_standby_slots')`)
	if err != nil {
		return err
	}
	c.settings = make(map[string]string, len(rows))
	for _, row := range rows {
		c.settings[row[0].Text] = row[1].Text
	}
	return nil
}

// checkRoom counts before a replication connection of ours counts too.
func (c *checker) checkRoom() error {
	row, err := c.q.One(fmt.Sprintf(`SELECT current_setting('max_replication_slots')::int - (SELECT count(*) FROM pg_catalog.pg_replication_slots),
		EXISTS (SELECT FROM pg_catalog.pg_replication_slots WHERE slot_name = %[1]s),
		current_setting('max_wal_senders')::int - (SELECT count(*) FROM pg_catalog.pg_stat_replication),
		EXISTS (SELECT FROM pg_catalog.pg_replication_slots WHERE slot_name = %[1]s AND active)`, postgres.QuoteLiteral(c.cfg.Slot)))
	if err != nil {
		return err
	}
	slots, senders := row.Int("max_replication_slots", 0), row.Int("max_wal_senders", 2)
	c.senders, c.streaming = senders, row.Bool(3)
	const tight = "raise max_wal_senders and restart the server: a reconnect needs one while the server still holds on to the old connection"
	switch {
	case slots > 0 || row.Bool(1):
		c.ok("postgres.slots_free", "%d of %s replication slots are free", max(slots, 0), c.settings["max_replication_slots"])
	default:
		limit, _ := strconv.Atoi(c.settings["max_replication_slots"])
		cause, next := catalog.NoSlotsFree(limit)
		if limit > 0 {
			cause = fmt.Sprintf("%s allowed by max_replication_slots, all in use, and none of them is this relay's", wording.Count(limit, "slot"))
		}
		c.add("postgres.slots_free", advice.Fail, next, "%s", cause)
	}
	switch {
	case senders > 1:
		c.ok("postgres.senders_free", "%d of %s WAL senders are free", senders, c.settings["max_wal_senders"])
	case senders == 1:
		c.warn("postgres.senders_free", tight, "1 of %s WAL senders is free", c.settings["max_wal_senders"])
	case c.streaming:
		c.warn("postgres.senders_free", tight, "all %s WAL senders are in use, one of them by the stream from %s", c.settings["max_wal_senders"], postgres.SlotSubject(c.cfg.Slot))
	default:
		c.add("postgres.senders_free", advice.Fail, "raise max_wal_senders and restart the server, or end a replication connection that nobody needs",
			"all %s WAL senders are in use", c.settings["max_wal_senders"])
	}
	return row.Err
}

// checkReplication opens the kind of connection that a stream needs, which
// reports whether role, pg_hba.conf and whatever stands in between permit it.
func (c *checker) checkReplication() error {
	conn, err := postgres.Connect(c.q.Ctx, c.cfg, true)
	if postgres.Reason(err) == fault.ReasonServerLimit && c.streaming && c.senders <= 0 {
		c.warn("postgres.replication", "check again while the relay is stopped, or raise max_wal_senders and restart the server",
			"cannot be tried: no WAL sender is free, and the stream from %s has one", postgres.SlotSubject(c.cfg.Slot))
		return nil
	}
	if err != nil {
		c.fail("postgres.replication", withAdvice(err, fmt.Sprintf(
			"the role needs REPLICATION (ALTER ROLE %s REPLICATION; Amazon RDS: GRANT rds_replication), and pg_hba.conf an entry for the database itself, not for `replication`",
			wal.QuoteIdentifier(c.user))))
		return nil
	}
	defer postgres.CloseQuietly(conn)
	q := postgres.Querier{Ctx: c.q.Ctx, Conn: conn}
	if err := c.server.ReadSenderTimeout(q); err != nil {
		return err
	}
	if c.server.SenderTimeout == 0 {
		c.warn("postgres.replication", "find out what overrides wal_sender_timeout between the relay and the server",
			"wal_sender_timeout is off for the relay's connection, although the relay sets it: a dead connection keeps the slot")
		return nil
	}
	c.ok("postgres.replication", "role %q may open a replication connection; wal_sender_timeout is %s", c.user, c.server.SenderTimeout)
	return nil
}

// unanswered distinguishes a connection that is gone from a statement that was refused.
func unanswered(err error) bool {
	var pg *pgconn.PgError
	return !errors.As(err, &pg) || strings.HasPrefix(pg.Code, "57P") || strings.HasPrefix(pg.Code, "08")
}
