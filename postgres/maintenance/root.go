package maintenance

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/cdc-relay/cdc-relay/fault"
	"github.com/cdc-relay/cdc-relay/postgres"
	"github.com/cdc-relay/cdc-relay/proof"
	"github.com/cdc-relay/cdc-relay/replication/wal"
)

// Root is the connection that removes and makes partitions of a table.
type Root struct{ *Session }

// OpenRoot connects and takes the table's lock. id is the SQL expression of the event id; empty:
// the rows have none.
func OpenRoot(ctx context.Context, cfg postgres.Config, table wal.Table, id string) (*Root, error) {
	s, err := open(ctx, cfg, Work{Table: table, ID: id, Limit: 1}, "p")
	if err != nil {
		return nil, err
	}
	return &Root{s}, nil
}

// Removal is one partition on its way out; *Removal satisfies proof.Part.
type Removal struct {
	*Root
	Partition Partition
	Now, Age  string                      // as for Surveyor.Partitions
	Detach    bool                        // the table stays, with its rows
	Wake      func(context.Context) error // Nudge over another connection
	Confirm   func(context.Context) error // asked last: what forbids the removal now
}

// How long locks are waited for. A writer of a back-dated row holds the root and waits for the
// partition, which the removal holds while it waits for the root: a deadlock. The server looks for
// one when a session has waited for a second (deadlock_timeout), and ends that session's statement.
// So the removal does not wait for the root while anyone waits for the partition, and whoever
// comes later has waited for less than a second when the removal gives up.
const (
	leafLockTimeout = "1s"
	rootLockTimeout = "400ms"
)

// Lock implements proof.Part. Writers of the partition have ended, prepared ones as well, and no
// new one begins; those of other partitions are not touched.
func (r *Removal) Lock(ctx context.Context) error {
	r.q.Ctx = ctx
	p := &r.Partition
	err := r.q.Exec(fmt.Sprintf("BEGIN; SET LOCAL lock_timeout = '%s'; LOCK TABLE ONLY %s IN SHARE MODE", leafLockTimeout, p.Table.SQL()))
	if err != nil {
		return r.stalled("its writers did not end within "+leafLockTimeout, err)
	}
	now, err := partitions(r.q, r.oid, p.OID, r.Now, r.Age)
	if err != nil {
		return postgres.Classify("look at partition "+p.Table.String(), err)
	}
	if len(now) != 1 || now[0] != *p || !now[0].Past {
		return &fault.Error{Kind: fault.KindRetry, Reason: fault.ReasonTableChanged, Op: "remove", Subject: "partition " + p.Table.String(), Err: fmt.Errorf("it was replaced by another table since it was looked at")}
	}
	return nil
}

// Nudge implements proof.Part. A commit record is what moves the end of the WAL, and the
// transaction of this connection is open.
func (r *Removal) Nudge(ctx context.Context) error { return r.Wake(ctx) }

// Holds implements proof.Part.
func (r *Removal) Holds(ctx context.Context, w proof.Waiting) (bool, error) {
	r.q.Ctx = ctx
	if w.All {
		return true, nil
	}
	if r.work.ID == "" {
		return len(w.IDs) > 0 || w.NoID, nil
	}
	condition := fmt.Sprintf("%s = ANY (%s)", r.id(), textArray(w.IDs))
	if w.NoID {
		condition = fmt.Sprintf("(%s IS NULL OR %s)", r.id(), condition)
	}
	rows, err := r.q.All(fmt.Sprintf("SELECT EXISTS (SELECT FROM ONLY %s WHERE %s)", r.Partition.Table.SQL(), condition))
	if err != nil {
		return false, postgres.Classify("look for rows of dead letters in partition "+r.Partition.Table.String(), err)
	}
	return rows[0][0].Text == "t", nil
}

func textArray(ids map[string]struct{}) string {
	quoted := make([]string, 0, len(ids))
	for id := range ids {
		quoted = append(quoted, postgres.QuoteLiteral(id))
	}
	return "ARRAY[" + strings.Join(quoted, ", ") + "]::text[]"
}

// Remove implements proof.Part.
func (r *Removal) Remove(ctx context.Context) error {
	if err := r.Confirm(ctx); err != nil {
		return err
	}
	r.q.Ctx = ctx
	waiting, err := r.q.All(fmt.Sprintf("SELECT FROM pg_catalog.pg_locks WHERE relation = %d AND NOT granted AND database = (SELECT oid FROM pg_catalog.pg_database WHERE datname = pg_catalog.current_database()) LIMIT 1", r.Partition.OID))
	if err != nil {
		return postgres.Classify("look who waits for partition "+r.Partition.Table.String(), err)
	}
	if len(waiting) > 0 {
		return r.busy("others wait for it")
	}
	remove := "DROP TABLE " + r.Partition.Table.SQL()
	if r.Detach {
		remove = fmt.Sprintf("ALTER TABLE %s DETACH PARTITION %s", r.work.Table.SQL(), r.Partition.Table.SQL())
	}
	if err := r.q.Exec(fmt.Sprintf("SET LOCAL lock_timeout = '%s'; %s", rootLockTimeout, remove)); err != nil {
		return r.stalled("others held "+r.work.Table.String()+" for over "+rootLockTimeout, err)
	}
	return postgres.Classify("remove partition "+r.Partition.Table.String(), r.q.Exec("COMMIT"))
}

// Release implements proof.Part. A connection that is lost has released everything.
func (r *Removal) Release() { _ = r.q.Exec("ROLLBACK") }

func (r *Removal) stalled(cause string, err error) error {
	err = postgres.PermissionHint(postgres.Classify("remove partition "+r.Partition.Table.String(), err), "make the maintenance role the table's owner, or a member of that role")
	if postgres.Reason(err) != fault.ReasonLockTimeout {
		return err
	}
	return r.busy(cause)
}

func (r *Removal) busy(cause string) error {
	return &fault.Error{Kind: fault.KindRetry, Reason: fault.ReasonPartitionBusy, Op: "remove", Subject: "partition " + r.Partition.Table.String(), Err: fmt.Errorf("%s", cause), Hint: "it is tried again; a long transaction or a prepared one that keeps it is in pg_locks"}
}

// Clock is the server's time.
func (r *Root) Clock(ctx context.Context) (time.Time, error) {
	r.q.Ctx = ctx
	row, err := r.q.One("SELECT (extract(epoch FROM pg_catalog.now()) * 1000000)::bigint")
	if err != nil {
		return time.Time{}, postgres.Classify("read the time", err)
	}
	return time.UnixMicro(*row.Bigint("now", 0)).UTC(), row.Err
}

// rowsInDefault reports whether the default partition has rows of the new partition's range.
func rowsInDefault(err error) bool { return postgres.SQLState(err) == "23514" }

// Create makes a partition with the rights that the root has, in a transaction of its own. Others
// read and write meanwhile.
func (r *Root) Create(ctx context.Context, name, from, to string) error {
	r.q.Ctx = ctx
	leaf := wal.Table{Schema: r.work.Table.Schema, Name: name}
	op := "make partition " + leaf.String()
	grants, err := r.grants(leaf)
	if err != nil {
		return postgres.Classify(op, err)
	}
	err = r.q.Exec(fmt.Sprintf(`BEGIN; SET LOCAL lock_timeout = '%s'; CREATE TABLE %[2]s (LIKE %[3]s INCLUDING DEFAULTS INCLUDING CONSTRAINTS INCLUDING GENERATED INCLUDING STORAGE INCLUDING COMPRESSION);
		%[4]s ALTER TABLE %[3]s ATTACH PARTITION %[2]s FOR VALUES FROM (%[5]s) TO (%[6]s); COMMIT`,
		rootLockTimeout, leaf.SQL(), r.work.Table.SQL(), grants, postgres.QuoteLiteral(from), postgres.QuoteLiteral(to)))
	if err == nil {
		return nil
	}
	_ = r.q.Exec("ROLLBACK") // a lost connection rolls back too
	e := postgres.PermissionHint(postgres.Classify(op, err), "have the maintenance role own the table, or be a member of its owner, and CREATE on the schema")
	switch {
	case postgres.Reason(e) == fault.ReasonLockTimeout:
		return &fault.Error{Kind: fault.KindRetry, Reason: fault.ReasonPartitionBusy, Op: op, Err: fmt.Errorf("others held %s for over %s", r.work.Table, rootLockTimeout), Hint: "it is tried again"}
	case rowsInDefault(err):
		return &fault.Error{Kind: fault.KindRefused, Reason: fault.ReasonConfiguration, Op: op, Err: fmt.Errorf("the default partition has rows from %s to %s", from, to), Hint: "move them into the new partition by hand, in one transaction with its creation"}
	}
	return e
}

// grants give a new partition the owner, the rights and the replica identity of the root.
func (r *Root) grants(leaf wal.Table) (string, error) {
	rows, err := r.q.All(fmt.Sprintf(`SELECT pg_catalog.format('ALTER TABLE %%s OWNER TO %%I;', %[2]s, pg_catalog.pg_get_userbyid(c.relowner)) FROM pg_catalog.pg_class c WHERE c.oid = %[1]d AND pg_catalog.pg_get_userbyid(c.relowner) <> current_user
		UNION ALL SELECT pg_catalog.format('ALTER TABLE %%s REPLICA IDENTITY %%s;', %[2]s, CASE c.relreplident WHEN 'f' THEN 'FULL' ELSE 'NOTHING' END) FROM pg_catalog.pg_class c WHERE c.oid = %[1]d AND c.relreplident IN ('f', 'n')
		UNION ALL SELECT pg_catalog.format('GRANT %%s ON %%s TO %%s;', g.privilege_type, %[2]s, CASE g.grantee WHEN 0 THEN 'PUBLIC' ELSE g.grantee::regrole::text END) FROM pg_catalog.pg_class c, pg_catalog.aclexplode(c.relacl) g WHERE c.oid = %[1]d AND g.grantee <> c.relowner
		UNION ALL SELECT pg_catalog.format('GRANT %%s (%%I) ON %%s TO %%s;', g.privilege_type, a.attname, %[2]s, CASE g.grantee WHEN 0 THEN 'PUBLIC' ELSE g.grantee::regrole::text END) FROM pg_catalog.pg_attribute a, pg_catalog.aclexplode(a.attacl) g WHERE a.attrelid = %[1]d AND NOT a.attisdropped`,
		r.oid, postgres.QuoteLiteral(leaf.SQL())))
	var all strings.Builder
	for _, row := range rows {
		all.WriteString(row[0].Text + " ")
	}
	return all.String(), err
}
