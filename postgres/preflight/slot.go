package preflight

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/cdc-relay/cdc-relay/advice"
	"github.com/cdc-relay/cdc-relay/fault"
	"github.com/cdc-relay/cdc-relay/postgres"
	"github.com/cdc-relay/cdc-relay/postgres/catalog"
	"github.com/cdc-relay/cdc-relay/wording"
)

// checkSlot looks at the slot, and at who has it.
func (c *checker) checkSlot() error {
	slot, err := catalog.ReadSlot(c.q, c.server.ServerVersion, c.cfg.Slot)
	if err != nil {
		if unansweredError(err) {
			return err
		}
		c.fail("slot", catalog.SlotMissing(c.q, c.cfg, err))
		return nil
	}
	c.slot = slot.SlotInfo
	if err := slot.Usable(c.cfg.Slot); err != nil {
		c.fail("slot", err)
		return nil
	}
	c.ok("slot", "%s can be used; its confirmed position is %s", postgres.SlotSubject(c.cfg.Slot), slot.Confirmed)
	if !slot.Active {
		c.ok("slot.owner", "nobody streams from it")
		return nil
	}
	owner := slot.Busy(c.q, c.cfg.Slot)
	e, ok := errors.AsType[*fault.Error](owner)
	if !ok || e.Kind != fault.KindBusy {
		return owner
	}
	if byDebezium, err := c.heldByDebezium(); err != nil {
		return err
	} else if byDebezium {
		c.warn("slot.owner", "this is expected before a takeover: `cdc-relay takeover` takes the slot over once the connector is stopped, see "+wording.Docs+"coming-from-debezium.md",
			"Debezium holds %s: %v", postgres.SlotSubject(c.cfg.Slot), e.Err)
		return c.ownerIsAsynchronous()
	}
	c.warn("slot.owner", "if that is this relay, do nothing: a second relay waits as a standby. If it is another consumer, it gets the rows: choose another postgres.slot and run `cdc-relay setup`",
		"%s: %v", postgres.SlotSubject(c.cfg.Slot), e.Err)
	return c.ownerIsAsynchronous()
}

// heldByDebezium goes by the application_name that Debezium gives its connections.
func (c *checker) heldByDebezium() (bool, error) {
	row, err := c.q.One(`SELECT EXISTS (SELECT FROM pg_catalog.pg_replication_slots s JOIN pg_catalog.pg_stat_activity a ON a.pid = s.active_pid
		WHERE s.slot_name = ` + postgres.QuoteLiteral(c.cfg.Slot) + ` AND a.application_name LIKE 'Debezium %')`)
	if err != nil {
		return false, err
	}
	return row.Bool(0), row.Err
}

// ownerIsAsynchronous asks whether commits already wait for whoever has the slot.
func (c *checker) ownerIsAsynchronous() error {
	row, err := c.q.One(fmt.Sprintf(`SELECT coalesce(sync_state, 'async') FROM pg_catalog.pg_stat_replication WHERE pid = %d`, c.slot.ActivePID))
	if errors.Is(err, postgres.ErrNoRow) {
		return nil
	}
	if err != nil {
		return err
	}
	if row.Text(0) != "async" {
		c.add("postgres.synchronous", advice.Fail, hintSynchronous, "the stream from %s counts as a synchronous standby (%s)", postgres.SlotSubject(c.cfg.Slot), row.Text(0))
	}
	return nil
}

const (
	hintSynchronous = "name the standbys in synchronous_standby_names, without * and without the relay's application_name: else every commit waits for Kafka"

	// Less room or time than this is no room: a checkpoint may end it at once.
	leastHeadroom = 4 // WAL segments
	leastTime     = time.Hour
)

// checkRetention says how long a relay that stands still may go on doing so.
func (c *checker) checkRetention() error {
	if err := c.checkIdleTimeout(); err != nil {
		return err
	}
	keep, err := strconv.ParseInt(c.settings["max_slot_wal_keep_size"], 10, 64) // MiB
	if err != nil {
		return nil //nolint:nilerr // a server without the setting has no limit
	}
	slot := c.slot
	switch slot.WALStatus {
	case "lost":
		return nil // the slot's own finding says so
	case "unreserved":
		c.add("slot.wal", advice.Fail, "let the relay catch up now, or raise max_slot_wal_keep_size: the next checkpoint may invalidate the slot",
			"%s holds more WAL than max_slot_wal_keep_size permits", postgres.SlotSubject(c.cfg.Slot))
		return nil
	}
	if keep < 0 {
		c.ok("slot.wal", "max_slot_wal_keep_size is unlimited: a stopped relay loses nothing, but its WAL can fill the server's disk; watch retained_wal_bytes")
		return nil
	}
	room := keep << 20
	if slot.SafeWAL != nil {
		room = *slot.SafeWAL
	}
	rate, err := c.walRate()
	if err != nil {
		return err
	}
	segment, err := strconv.ParseInt(c.settings["wal_segment_size"], 10, 64)
	if err != nil {
		segment = 16 << 20
	}
	seen := fmt.Sprintf("max_slot_wal_keep_size is %s; %s of WAL may be written until the slot is lost", wording.Bytes(keep<<20), wording.Bytes(room))
	tight := room < leastHeadroom*segment
	if rate > 0 {
		seconds := float64(room) / rate
		tight = tight || seconds < leastTime.Seconds()
		left := "more than 30 days"
		if seconds < 30*24*3600 {
			left = time.Duration(seconds * float64(time.Second)).Round(time.Second).String()
		}
		seen += fmt.Sprintf(", %s at the present %s/s", left, wording.Bytes(int64(rate)))
	}
	if tight {
		c.warn("slot.wal", "raise max_slot_wal_keep_size (and reload) above the WAL of the longest outage; the rows of a lost slot have to be sent again (`cdc-relay replay`)", "%s", seen)
	} else {
		c.ok("slot.wal", "%s", seen)
	}
	return nil
}

// walRate is in bytes a second, over at least one second.
func (c *checker) walRate() (float64, error) {
	if c.started.IsZero() {
		return 0, nil
	}
	wait := time.NewTimer(time.Until(c.started.Add(time.Second)))
	defer wait.Stop()
	select {
	case <-wait.C:
	case <-c.q.Ctx.Done():
		return 0, c.q.Ctx.Err()
	}
	row, err := c.q.One(`SELECT pg_catalog.pg_current_wal_lsn()`)
	if err != nil {
		return 0, err
	}
	now := row.LSN("pg_current_wal_lsn", 0)
	return float64(now-c.walFrom) / time.Since(c.started).Seconds(), row.Err
}

func (c *checker) checkIdleTimeout() error {
	if value := c.settings["idle_replication_slot_timeout"]; value == "" || value == "0" {
		return nil
	}
	row, err := c.q.One(`SELECT current_setting('idle_replication_slot_timeout')`)
	if err != nil {
		return err
	}
	c.warn("postgres.idle_slot_timeout", "set idle_replication_slot_timeout to 0, or to more than the longest stop",
		"idle_replication_slot_timeout is %s: a relay that is stopped for longer loses its slot", row.Text(0))
	return nil
}

// checkFailover says what happens to the slot when a standby takes over. Without
// a physical slot there is no standby that could have it.
func (c *checker) checkFailover() error {
	failover := "false"
	if c.server.ServerVersion >= postgres.FailoverVersion {
		failover = fmt.Sprintf("coalesce((SELECT failover FROM pg_catalog.pg_replication_slots WHERE slot_name = %s), false)", postgres.QuoteLiteral(c.cfg.Slot))
	}
	row, err := c.q.One(`SELECT ` + failover + `, (SELECT count(*) FROM pg_catalog.pg_replication_slots WHERE slot_type = 'physical')`)
	if err != nil {
		return err
	}
	away, err := catalog.ReadAwayStandbys(c.q, c.server.ServerVersion, c.cfg.Slot)
	if err != nil {
		return err
	}
	survives, standbys := row.Bool(0), row.Int("count", 1)
	switch {
	case row.Err != nil:
		return row.Err
	case len(away) > 0:
		c.warn("slot.failover", catalog.HintStandby, "%s: the server sends no row of %s that the standby does not have, so the relay stands still",
			catalog.AwayText(away), postgres.SlotSubject(c.cfg.Slot))
	case standbys == 0:
		c.ok("slot.failover", "no standby is attached through a slot")
	case c.server.ServerVersion < postgres.FailoverVersion:
		c.warn("slot.failover", "before a switchover stop the writers and let the relay catch up, then create the slot on the new primary; or let Patroni keep it as a permanent slot",
			"%s, so there is a standby, and a logical slot does not survive a failover before PostgreSQL 17", wording.Count(standbys, "physical slot"))
	case !survives:
		c.warn("slot.failover", fmt.Sprintf("while the relay is stopped: ALTER_REPLICATION_SLOT %s (FAILOVER true) on a replication connection, or drop the slot when it has caught up and run `cdc-relay setup`", c.cfg.Slot),
			"%s, so there is a standby, and %s was made without failover: it is gone after a failover", wording.Count(standbys, "physical slot"), postgres.SlotSubject(c.cfg.Slot))
	case strings.TrimSpace(c.settings["synchronized_standby_slots"]) == "":
		c.warn("slot.failover", "set synchronized_standby_slots to the standby's physical slot, and on the standby sync_replication_slots = on",
			"%s is kept for a failover, but synchronized_standby_slots is empty: rows may reach Kafka that the standby never had", postgres.SlotSubject(c.cfg.Slot))
	default:
		c.ok("slot.failover", "%s survives a failover to %s", postgres.SlotSubject(c.cfg.Slot), c.settings["synchronized_standby_slots"])
	}
	return nil
}

// checkSynchronous looks for a list of synchronous standbys that means us.
func (c *checker) checkSynchronous() error {
	list := c.settings["synchronous_standby_names"]
	application := c.cfg.ApplicationName
	if application == "" {
		row, err := c.q.One(`SELECT current_setting('application_name')`)
		if err != nil {
			return err
		}
		application = row.Text(0)
	}
	for _, name := range standbyNames(list) {
		if name == "*" || strings.EqualFold(name, application) {
			c.add("postgres.synchronous", advice.Fail, hintSynchronous,
				"synchronous_standby_names is %q, which includes the relay's replication connection (application_name %s): commits would wait for the relay", list, application)
			return nil
		}
	}
	c.ok("postgres.synchronous", "no commit waits for the relay")
	return nil
}

// standbyNames reads the names out of `a, b`, `FIRST 2 (a, b)` and `ANY 1 ("x y")`.
func standbyNames(list string) []string {
	if open := strings.IndexByte(list, '('); open >= 0 {
		list = strings.TrimSuffix(strings.TrimSpace(list[open+1:]), ")")
	}
	var names []string
	for name := range strings.SplitSeq(list, ",") {
		name = strings.TrimSpace(name)
		if quoted := len(name) > 1 && name[0] == '"' && name[len(name)-1] == '"'; quoted {
			name = strings.ReplaceAll(name[1:len(name)-1], `""`, `"`)
		}
		if name != "" {
			names = append(names, name)
		}
	}
	return names
}
