// Package incomplete knows the slots of backfills and cutovers that are not complete, and the lock of those
// that are under way.
package incomplete

import (
	"fmt"
	"hash/fnv"

	"github.com/cdc-relay/cdc-relay/fault"
	"github.com/cdc-relay/cdc-relay/postgres"
)

// Slot is that of a backfill or a cutover that is not complete.
type Slot struct {
	Name    string
	Cutover bool
}

// First looks for one; nil: there is none.
func First(q postgres.Querier, cfg postgres.Config) (*Slot, error) {
	all, err := All(q, cfg)
	if err != nil || len(all) == 0 {
		return nil, err
	}
	return &all[0], nil
}

// All are those that exist.
func All(q postgres.Querier, cfg postgres.Config) (all []Slot, err error) {
	for _, slot := range []Slot{{cfg.BackfillSlot(), false}, {cfg.CutoverSlot(), true}} {
		rows, err := q.All("SELECT FROM pg_catalog.pg_replication_slots WHERE slot_name = " + postgres.QuoteLiteral(slot.Name))
		if err != nil {
			return nil, postgres.Classify("look for "+postgres.SlotSubject(slot.Name), err)
		}
		if len(rows) > 0 {
			all = append(all, slot)
		}
	}
	return all, nil
}

// What names the command that makes the slot.
func (s *Slot) What() string {
	if s.Cutover {
		return "cutover"
	}
	return "backfill"
}

// Text says what is there.
func (s *Slot) Text() string {
	return fmt.Sprintf("a %s is under way or was interrupted (%s), and makes the slot when it is complete", s.What(), postgres.SlotSubject(s.Name))
}

// Command completes it.
func (s *Slot) Command() string {
	if s.Cutover {
		return "cdc-relay cutover --mark-new --yes"
	}
	return "cdc-relay backfill --yes"
}

// Hint is the next step.
func (s *Slot) Hint() string {
	if s.Cutover {
		return fmt.Sprintf("let `%s` complete it", s.Command())
	}
	return fmt.Sprintf("let `%s` complete it; to do without its rows (of one with --online also those that were written since), run `cdc-relay teardown --yes`, which drops %s, and `cdc-relay setup`", s.Command(), postgres.SlotSubject(s.Name))
}

// lockClass is the first of the two numbers of the advisory lock: "cdcb" in ASCII. The second is
// a hash of the slot's name.
const lockClass = 0x63646362

// Lock keeps every backfill, cutover and replay with the slot away for as long as the connection
// lives. While somebody else has the lock the error is of KindBusy.
func Lock(q postgres.Querier, cfg postgres.Config) error {
	name := cfg.BackfillSlot()
	hash := fnv.New32a()
	_, _ = hash.Write([]byte(name)) // it never fails
	key := int32(hash.Sum32())
	row, err := q.One(fmt.Sprintf(`SELECT pg_catalog.pg_try_advisory_lock(%d, %d), coalesce((SELECT pg_catalog.string_agg(l.pid::text, ', ') FROM pg_catalog.pg_locks l
		WHERE l.locktype = 'advisory' AND l.granted AND l.objsubid = 2 AND l.classid = %d AND l.objid = '%d'::oid
			AND l.database = (SELECT oid FROM pg_catalog.pg_database WHERE datname = current_database())), '')`, lockClass, key, lockClass, uint32(key)))
	if err != nil {
		return postgres.Classify("lock the backfill or cutover of "+postgres.SlotSubject(name), err)
	}
	if row.Bool(0) {
		return nil
	}
	return &fault.Error{
		Kind: fault.KindBusy, Reason: fault.ReasonSlotInUse, Op: "lock the backfill or cutover of", Subject: postgres.SlotSubject(name),
		Err: fmt.Errorf("another session holds the lock: pid %s", row.Text(1)), Hint: "wait until it has ended",
	}
}
