package catalog

import (
	"errors"
	"fmt"

	"github.com/cdc-relay/cdc-relay/fault"
	"github.com/cdc-relay/cdc-relay/postgres"
	"github.com/cdc-relay/cdc-relay/replication/wal"
	"github.com/cdc-relay/cdc-relay/wording"
)

// SlotInfo is the state of a slot as the server shows it.
type SlotInfo struct {
	Active    bool
	ActivePID int    // zero unless Active
	WALStatus string // reserved, extended, unreserved, lost; empty when unknown

	Confirmed wal.LSN // what we reported and the server has taken
	Restart   wal.LSN // the oldest WAL that the slot retains

	SafeWAL *int64 // bytes that can be written until the slot is in danger; nil without max_slot_wal_keep_size
	Spilled *int64 // bytes of transactions spilled to disk since the statistics' reset; nil when there are none

	InvalidationReason string // from 17 on
}

// SlotRow is a slot with what decides whether it can be ours.
type SlotRow struct {
	SlotInfo
	Plugin    string
	kind      string
	database  string
	here      string // the database that we are connected to
	temporary bool
	twoPhase  bool
	synced    bool
}

// ReadSlot fails with ReasonSlotMissing when there is none.
func ReadSlot(q postgres.Querier, version int, name string) (*SlotRow, error) {
	if err := postgres.CheckSlotName(name); err != nil {
		return nil, err
	}
	// Columns by version: 16 conflicting; 17 invalidation_reason, synced.
	invalidation, synced := `NULL`, `false`
	switch {
	case version >= postgres.FailoverVersion:
		invalidation, synced = `s.invalidation_reason`, `s.synced AND pg_catalog.pg_is_in_recovery()`
	case version >= 160000:
		invalidation = `CASE WHEN s.conflicting THEN 'conflicting' END`
	}
	row, err := q.One(fmt.Sprintf(`SELECT s.active, coalesce(s.active_pid, 0), coalesce(s.wal_status, ''), s.confirmed_flush_lsn, s.restart_lsn,
			s.safe_wal_size, t.spill_bytes, coalesce(%s, ''), coalesce(s.plugin, ''), s.slot_type, coalesce(s.database, ''), current_database(),
			s.temporary, s.two_phase, %s
		FROM pg_catalog.pg_replication_slots s LEFT JOIN pg_catalog.pg_stat_replication_slots t ON t.slot_name = s.slot_name
		WHERE s.slot_name = %s`, invalidation, synced, postgres.QuoteLiteral(name)))
	if errors.Is(err, postgres.ErrNoRow) {
		return nil, &fault.Error{
			Kind: fault.KindRefused, Reason: fault.ReasonSlotMissing, Op: "look at", Subject: postgres.SlotSubject(name),
			Err:  errors.New("the slot does not exist"),
			Hint: "for a new relay run `cdc-relay setup`; if the slot was there before, send the rows since the last confirmed LSN again (`cdc-relay replay`): see " + wording.Docs + "operations.md#slot_missing",
		}
	}
	if err != nil {
		return nil, postgres.Classify("look at "+postgres.SlotSubject(name), err)
	}
	slot := &SlotRow{
		SlotInfo: SlotInfo{
			Active: row.Bool(0), ActivePID: row.Int("active_pid", 1), WALStatus: row.Text(2),
			Confirmed: row.LSN("confirmed_flush_lsn", 3), Restart: row.LSN("restart_lsn", 4),
			SafeWAL: row.Bigint("safe_wal_size", 5), Spilled: row.Bigint("spill_bytes", 6), InvalidationReason: row.Text(7),
		},
		Plugin: row.Text(8), kind: row.Text(9), database: row.Text(10), here: row.Text(11),
		temporary: row.Bool(12), twoPhase: row.Bool(13), synced: row.Bool(14),
	}
	return slot, row.Err
}

// SlotGone is for a slot that was seen before. It has no fault.Error.LSN: no row of a stream
// is at fault.
func SlotGone(name string, confirmed wal.LSN) error {
	return &fault.Error{
		Kind: fault.KindRefused, Reason: fault.ReasonSlotMissing, Op: "watch", Subject: postgres.SlotSubject(name),
		Err: fmt.Errorf("it no longer exists; it had confirmed LSN %s", confirmed),
		Hint: "if a failover led to another server, go back to the server that has the slot; otherwise stop the relay, then `cdc-relay setup`, `cdc-relay run`, " +
			"and send the rows since that LSN again (`cdc-relay replay`): see " + wording.Docs + "operations.md#slot_missing",
	}
}

// Lost explains why the slot's WAL is gone, or nil.
func (s *SlotRow) Lost(name string) error {
	reason := s.InvalidationReason
	if reason == "" && s.WALStatus == "lost" {
		reason = "wal_removed"
	}
	if reason == "" {
		return nil
	}
	return &fault.Error{
		Kind: fault.KindLost, Reason: fault.ReasonSlotLost, Op: "look at", Subject: postgres.SlotSubject(name), LSN: s.Confirmed,
		Err:  fmt.Errorf("the server invalidated the slot (%s); rows after the LSN are gone from it", reason),
		Hint: postgres.HintRecreate(fault.ReasonSlotLost, s.Confirmed),
	}
}

// Usable refuses a slot that our stream cannot start from.
func (s *SlotRow) Usable(name string) error {
	refuse := func(cause, hint string) error {
		return &fault.Error{Kind: fault.KindRefused, Reason: fault.ReasonSlotUnusable, Op: "look at", Subject: postgres.SlotSubject(name), Err: errors.New(cause), Hint: hint}
	}
	const another = "choose another slot name and run `cdc-relay setup`"
	switch {
	case s.kind != "logical":
		return refuse("it is a physical slot", another)
	case s.Plugin != "pgoutput":
		return refuse(fmt.Sprintf("its output plugin is %s, not pgoutput", s.Plugin), another)
	case s.database != s.here:
		return refuse(fmt.Sprintf("it belongs to database %q, and this is %q", s.database, s.here), "correct the database in the URL, or choose another slot name")
	case s.temporary:
		return refuse("it is temporary: it ends with the session that created it", another)
	case s.twoPhase:
		// With two_phase the rows of a prepared transaction come at PREPARE, and
		// confirming past that loses them when it commits.
		return refuse("it was created with two_phase", "drop it and run `cdc-relay setup`")
	case s.synced:
		return &fault.Error{
			Kind: fault.KindRetry, Reason: fault.ReasonInRecovery, Op: "look at", Subject: postgres.SlotSubject(name),
			Err: errors.New("it is the copy of the primary's slot on a standby"), Hint: "connect to the primary",
		}
	}
	if err := s.Lost(name); err != nil {
		return err
	}
	if s.Confirmed == 0 {
		return refuse("it has no confirmed position", "it is still being created, or was never completed: wait, or drop it and run `cdc-relay setup`")
	}
	return nil
}

// Busy names the owner as far as our rights show it.
func (s *SlotRow) Busy(q postgres.Querier, name string) error {
	owner := fmt.Sprintf("pid %d", s.ActivePID)
	row, err := q.One(fmt.Sprintf(`SELECT coalesce(application_name, ''), coalesce(pg_catalog.host(client_addr), ''), coalesce(usename, '')
		FROM pg_catalog.pg_stat_activity WHERE pid = %d`, s.ActivePID))
	if err == nil {
		for i, label := range []string{"application_name", "client_addr", "user"} {
			if row.Text(i) != "" {
				owner += fmt.Sprintf(", %s %s", label, row.Text(i))
			}
		}
	} else if !errors.Is(err, postgres.ErrNoRow) {
		return postgres.Classify("look at the owner of "+postgres.SlotSubject(name), err)
	}
	return &fault.Error{
		Kind: fault.KindBusy, Reason: fault.ReasonSlotInUse, Op: "start streaming from", Subject: postgres.SlotSubject(name),
		Err:  fmt.Errorf("the slot is in use by %s", owner),
		Hint: postgres.HintInUse, Holder: s.ActivePID,
	}
}

// NoSlotsFree is why a server makes no further slot, and what to do about it.
func NoSlotsFree(limit int) (cause, hint string) {
	if limit == 0 {
		return "the server allows no replication slots (max_replication_slots is 0)",
			"set it to the number of slots needed and restart the server: ALTER SYSTEM SET max_replication_slots = 10; managed services have a parameter for it"
	}
	return fmt.Sprintf("too few of the server's %s are free (max_replication_slots)", wording.Count(limit, "replication slot")),
		"drop a slot that nobody uses (SELECT * FROM pg_replication_slots), or raise max_replication_slots and restart the server"
}
