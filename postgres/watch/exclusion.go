package watch

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/cdc-relay/cdc-relay/fault"
	"github.com/cdc-relay/cdc-relay/postgres"
	"github.com/jackc/pgx/v5/pgconn"
)

// exclusionClass is the first of the two numbers of our advisory locks: "cdcr" in ASCII.
// The second is the first four bytes of SHA-256 over system identifier, slash and slot.
const exclusionClass = 0x63646372

// The locks are looked at this often, and an answer is waited for this long. Together it
// is less than the server needs to find that we are gone (tcp_keepalives_idle), so we stop
// before it gives the locks to somebody else.
const (
	exclusionLook   = 2 * time.Second
	exclusionAnswer = 5 * time.Second
)

// Exclusion is an ordinary session that holds an advisory lock for each of some slots, so
// that one process at a time works on what belongs to them. It needs no right but that to
// connect. The locks end with the session, however the process ends.
//
// Advisory locks are a database's own, as slots are: Take refuses a slot of another one.
type Exclusion struct {
	q        postgres.Querier
	system   string
	pid      int
	slots    []string // that are locked
	askEvery time.Duration
}

// OpenExclusion connects; it holds nothing yet. system is the cluster's identifier.
func OpenExclusion(ctx context.Context, cfg postgres.Config, system string) (*Exclusion, error) {
	conn, err := postgres.Connect(ctx, cfg, false)
	if err != nil {
		return nil, err
	}
	x := &Exclusion{q: postgres.Querier{Ctx: ctx, Conn: conn}, system: system, askEvery: exclusionLook}
	// The name is what messages of other processes show of this one.
	row, err := x.q.One(`SELECT pg_catalog.pg_backend_pid(), pg_catalog.set_config('application_name',
		pg_catalog.left(pg_catalog.current_setting('application_name'), 55) || ' redrive', false)`)
	if err != nil {
		x.Close()
		return nil, postgres.Classify("prepare the session for the lock", err)
	}
	x.pid = row.Int("pg_backend_pid", 0)
	return x, row.Err
}

// Close releases everything. It is not for a session that is watched.
func (x *Exclusion) Close() { postgres.EndSession(x.q.Conn) }

// Holds reports whether the slot is locked.
func (x *Exclusion) Holds(slot string) bool { return slices.Contains(x.slots, slot) }

func exclusionSubject(slots ...string) string {
	quoted := make([]string, len(slots))
	for i, slot := range slots {
		quoted[i] = strconv.Quote(slot)
	}
	return "the dead letters of slot " + strings.Join(quoted, ", ")
}

// key is the second number of a slot's lock.
func (x *Exclusion) key(slot string) uint32 {
	sum := sha256.Sum256([]byte(x.system + "/" + slot))
	return binary.BigEndian.Uint32(sum[:])
}

// held is the condition for rows of pg_locks, as l, to be a slot's lock.
func (x *Exclusion) held(slot string) string {
	return fmt.Sprintf(`l.locktype = 'advisory' AND l.granted AND l.objsubid = 2 AND l.classid = %d AND l.objid = '%d'::oid
		AND l.database = (SELECT oid FROM pg_catalog.pg_database WHERE datname = current_database())`, exclusionClass, x.key(slot))
}

// Take locks a slot, which need not exist. While somebody else has it the error is of
// KindBusy and names the owner. It does not wait.
func (x *Exclusion) Take(ctx context.Context, slot string) error {
	x.q.Ctx = ctx
	op, subject := "lock", exclusionSubject(slot)
	if err := x.mayTake(slot); err != nil {
		return err
	}
	row, err := x.q.One(fmt.Sprintf(`SELECT pg_catalog.pg_try_advisory_lock(%d, %d)`, exclusionClass, int32(x.key(slot))))
	if err != nil {
		return postgres.Classify(op+" "+subject, err)
	}
	if !row.Bool(0) {
		return x.busy(slot)
	}
	x.slots = append(x.slots, slot)
	return nil
}

// mayTake refuses where a lock would not keep others away.
func (x *Exclusion) mayTake(slot string) error {
	refuse := func(cause, hint string) error {
		return &fault.Error{Kind: fault.KindRefused, Reason: fault.ReasonConfiguration, Op: "lock", Subject: exclusionSubject(slot), Err: errors.New(cause), Hint: hint}
	}
	row, err := x.q.One(fmt.Sprintf(`SELECT current_database(), coalesce((SELECT s.database FROM pg_catalog.pg_replication_slots s WHERE s.slot_name = %s), current_database()),
		EXISTS (SELECT FROM pg_catalog.pg_locks l WHERE %s AND l.pid = pg_catalog.pg_backend_pid())`, postgres.QuoteLiteral(slot), x.held(slot)))
	switch {
	case err != nil:
		return postgres.Classify("look at the lock on "+exclusionSubject(slot), err)
	case row.Text(0) != row.Text(1):
		return refuse(fmt.Sprintf("the slot belongs to database %q, and this is %q", row.Text(1), row.Text(0)), "correct the database in postgres.url: a lock in another database excludes nobody")
	case row.Bool(2) && !x.Holds(slot):
		return refuse("the server session of this connection already holds another client's lock", "a pooler is in between; connect to the server itself")
	}
	return nil
}

// busy names the owner as far as our rights show it.
func (x *Exclusion) busy(slot string) error {
	e := &fault.Error{
		Kind: fault.KindBusy, Op: "lock", Subject: exclusionSubject(slot), Err: errors.New("another redrive had them until just now"),
		Hint: "run it again",
	}
	row, err := x.q.One(`SELECT l.pid, coalesce(a.application_name, ''), coalesce(a.usename, ''), coalesce(pg_catalog.host(a.client_addr), ''),
			coalesce(to_char(a.backend_start, 'YYYY-MM-DD HH24:MI:SS') || ' UTC', '')
		FROM pg_catalog.pg_locks l LEFT JOIN pg_catalog.pg_stat_activity a ON a.pid = l.pid WHERE ` + x.held(slot))
	switch {
	case errors.Is(err, postgres.ErrNoRow):
		return e
	case err != nil:
		return postgres.Classify("look who has "+e.Subject, err)
	}
	owner := "pid " + row.Text(0)
	for i, label := range []string{"application_name", "user", "client_addr", "since"} {
		if row.Text(i+1) != "" {
			owner += fmt.Sprintf(", %s %s", label, row.Text(i+1))
		}
	}
	e.Err = fmt.Errorf("another redrive is at them: %s", owner)
	e.Hint = fmt.Sprintf("wait until it has ended, then run this again; if it hangs or its machine is gone, SELECT pg_terminate_backend(%s) ends it: it stops before it sends more", row.Text(0))
	return e
}

// Watch gives a context that ends, with a *fault.Error as its cause, when the locks may be
// lost, be it since they were taken. release ends the watch and the session; the Exclusion
// is of no use afterwards.
func (x *Exclusion) Watch(ctx context.Context) (guarded context.Context, release func()) {
	guarded, cancel := context.WithCancelCause(ctx)
	lose := func(err error) {
		cancel(&fault.Error{
			Kind: fault.KindRetry, Reason: fault.ReasonNetwork, Op: "keep the lock on", Subject: exclusionSubject(x.slots...),
			Err: fmt.Errorf("its session is lost: %w", err), Hint: "another redrive may be working on them by now",
		})
	}
	if err := x.checkHeld(ctx); err != nil {
		lose(err)
	}
	watching, stop := context.WithCancel(context.WithoutCancel(ctx))
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if err := x.watch(watching); err != nil {
			lose(err)
		}
	}()
	return guarded, func() {
		stop()
		<-ended
		cancel(nil)
		x.Close()
	}
}

// watch returns why the locks may be lost, or nil when ctx ended.
func (x *Exclusion) watch(ctx context.Context) error {
	for ctx.Err() == nil {
		err := x.listen(ctx)
		if err == nil {
			err = x.checkHeld(ctx)
		}
		if err != nil && ctx.Err() == nil {
			return err
		}
	}
	return nil
}

// listen waits until it is time for another look; that the server ends the session comes
// at once.
func (x *Exclusion) listen(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, x.askEvery)
	defer cancel()
	var err error
	for err == nil {
		err = x.q.Conn.WaitForNotification(ctx)
	}
	if pgconn.Timeout(err) && !x.q.Conn.IsClosed() {
		err = nil
	}
	return err
}

// checkHeld asks whether this is our session and has its locks.
func (x *Exclusion) checkHeld(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, exclusionAnswer)
	defer cancel()
	x.q.Ctx = ctx
	row, err := x.q.One(fmt.Sprintf(`SELECT pg_catalog.pg_backend_pid(), pg_catalog.count(*) FROM pg_catalog.pg_locks l
		WHERE l.locktype = 'advisory' AND l.granted AND l.objsubid = 2 AND l.classid = %d AND l.pid = pg_catalog.pg_backend_pid()`, exclusionClass))
	if pgconn.Timeout(err) {
		return fmt.Errorf("the server did not answer within %s: %w", exclusionAnswer, err)
	} else if err != nil {
		return err
	}
	if row.Int("pg_backend_pid", 0) != x.pid || row.Int("count", 1) < len(x.slots) {
		return errors.New("statements run in another server session, which does not hold the locks: a pooler is in between")
	}
	return row.Err
}
