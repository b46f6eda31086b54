package provision

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/cdc-relay/cdc-relay/fault"
	"github.com/cdc-relay/cdc-relay/postgres"
	"github.com/cdc-relay/cdc-relay/postgres/catalog"
	"github.com/cdc-relay/cdc-relay/postgres/incomplete"
	"github.com/cdc-relay/cdc-relay/replication/wal"
	"github.com/jackc/pgx/v5/pgconn"
)

// SlotState is a slot as a backfill finds it.
type SlotState struct {
	catalog.SlotInfo
	Name   string
	Exists bool
	Err    error // why it is of no use, apart from its owner; nil for a slot that does not exist
}

// ReadSlots reads slots by their names.
func ReadSlots(q postgres.Querier, version int, names ...string) ([]SlotState, error) {
	states := make([]SlotState, len(names))
	for i, name := range names {
		states[i].Name = name
		slot, err := catalog.ReadSlot(q, version, name)
		if postgres.Reason(err) == fault.ReasonSlotMissing {
			continue
		}
		if err != nil {
			return nil, err
		}
		states[i].Exists, states[i].SlotInfo, states[i].Err = true, slot.SlotInfo, slot.Usable(name)
	}
	return states, nil
}

// Exported is a slot that was just made, with the snapshot of its creation.
type Exported struct {
	Point    wal.LSN // whatever commits before is in the snapshot, the rest in the slot
	Snapshot string  // to be imported before Close
	conn     *pgconn.PgConn
}

// Close ends the connection that exports the snapshot. Who imported it keeps it.
func (e *Exported) Close() { postgres.CloseQuietly(e.conn) }

// exportTries is how often a snapshot is asked for. The server counts every transaction and subtransaction that was
// rolled back while it waited for open ones, and has room for some hundreds of them ("initial slot snapshot too large").
const exportTries = 5

// ExportSlot makes a slot and exports the snapshot of its creation. It waits for the transactions that
// are open, for each until the timeout.
func ExportSlot(ctx context.Context, cfg postgres.Config, name string, timeout time.Duration) (*Exported, error) {
	for try := 1; ; try++ {
		made, err := exportOnce(ctx, cfg, name, timeout)
		if e, ok := errors.AsType[*pgconn.PgError](err); !ok || e.Code != "40001" {
			return made, err
		}
		if try == exportTries {
			return nil, &fault.Error{
				Kind: fault.KindRetry, Reason: fault.ReasonServerError, Op: "create", Subject: postgres.SlotSubject(name), Err: err,
				Hint: "the server waits for open transactions, and too many others were rolled back meanwhile, of which savepoints count as well; run the command again while there are fewer long transactions or fewer of these",
			}
		}
	}
}

func exportOnce(ctx context.Context, cfg postgres.Config, name string, timeout time.Duration) (*Exported, error) {
	q, server, err := postgres.OpenServer(ctx, cfg, true)
	if err != nil {
		return nil, err
	}
	made, err := exportSlot(q, server, name, timeout)
	if err != nil {
		postgres.CloseQuietly(q.Conn)
		return nil, err
	}
	return made, nil
}

func exportSlot(q postgres.Querier, server *postgres.Server, name string, timeout time.Duration) (*Exported, error) {
	if err := server.CheckDecoding(q); err != nil {
		return nil, err
	}
	// A command of the replication protocol is no statement: statement_timeout does not end it.
	if err := q.Exec(fmt.Sprintf("SET lock_timeout = %d", timeout.Milliseconds())); err != nil {
		return nil, postgres.Classify("create "+postgres.SlotSubject(name), err)
	}
	row, err := q.One(exportSlotCommand(name, server.ServerVersion))
	if err != nil {
		return nil, slotFailure(q, name, err, timeout, "the command again",
			"the role needs REPLICATION: `cdc-relay sql --for backfill` prints the grants")
	}
	point := row.LSN("consistent_point", 1)
	if row.Err != nil {
		return nil, row.Err
	}
	return &Exported{Point: point, Snapshot: row.Text(2), conn: q.Conn}, nil
}

// exportSlotCommand is for a replication connection.
func exportSlotCommand(name string, version int) string {
	options := "EXPORT_SNAPSHOT"
	switch {
	case version >= postgres.FailoverVersion:
		options = "(SNAPSHOT 'export', FAILOVER true)"
	case version >= 150000:
		options = "(SNAPSHOT 'export')"
	}
	return fmt.Sprintf("CREATE_REPLICATION_SLOT %s LOGICAL pgoutput %s", wal.QuoteIdentifier(name), options)
}

// CopySlot makes a slot that begins where another one stands. The warning, if not empty, says
// what the copy lacks.
func CopySlot(q postgres.Querier, cfg postgres.Config, version int, source, name string) (warning string, err error) {
	if err := q.Exec(copySlot(source, name)); err != nil {
		return "", postgres.PermissionHint(postgres.Classify("create "+postgres.SlotSubject(name), err), "run it as a role with REPLICATION")
	}
	return copyFailover(q, cfg, version, source, name), nil
}

// DropSlot drops a slot that nobody streams from.
func DropSlot(q postgres.Querier, name string) error {
	return postgres.PermissionHint(postgres.Classify("drop "+postgres.SlotSubject(name), q.Exec(DropSlotSQL(name))), "run it as a role with REPLICATION")
}

// slotFailure describes the failure to make a slot.
func slotFailure(q postgres.Querier, name string, err error, timeout time.Duration, again, permission string) error {
	var pg *pgconn.PgError
	if !errors.As(err, &pg) || pg.Code != "57014" && pg.Code != "55P03" {
		return postgres.PermissionHint(postgres.Classify("create "+postgres.SlotSubject(name), err), permission)
	}
	return &fault.Error{
		Kind: fault.KindRefused, Reason: fault.ReasonTimeout, Op: "create", Subject: postgres.SlotSubject(name),
		Err:  errors.New(catalog.GaveUp(timeout, catalog.Blockers(q))),
		Hint: "end them, or wait, and run " + again,
	}
}

// refuseWhileIncomplete refuses a slot while a backfill or a cutover is not complete: the new slot would
// begin later than theirs, and the rows in between would be in neither.
func (s *setup) refuseWhileIncomplete(name string) error {
	slot, err := incomplete.First(s.q, s.cfg)
	if err != nil || slot == nil {
		return err
	}
	return &fault.Error{
		Kind: fault.KindRefused, Reason: fault.ReasonSlotMissing, Op: "create", Subject: postgres.SlotSubject(name),
		Err: errors.New(slot.Text()), Hint: slot.Hint(),
	}
}
