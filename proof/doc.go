// Package proof decides which rows of a table are delivered, so that something may be done
// to them: deleted, marked, moved away. It is the only place that does.
//
// F is the confirmed position of a slot, and the server skips what commits before F. The
// proof of a batch, all on one connection to the primary:
//
//  1. A SELECT names rows: place (ctid) and inserting transaction (xmin) of each version, and the
//     file (relfilenode) that the table had just before.
//  2. L is the insert position of the WAL, read afterwards (wal.BeforePageHeader).
//  3. F of every slot is waited for, until F >= L.
//  4. What the brokers keep is read afterwards: positions of the slots, what lies before them,
//     dead letters that wait. Slots that stand where no relay brought them, positions beyond the end
//     of the server's WAL, and rows before a slot of which nothing is known, end the pass. Rows whose
//     letter waits are left out.
//  5. The versions that were named are acted on, and no others.
//
// Why each row is delivered, for the transaction T that wrote it:
//
//   - A commit record is in the WAL before other sessions see the commit, also with
//     synchronous_commit = off and COMMIT PREPARED. So the record of T ends at or before L.
//     That is true of the insert position alone: write and flush position may be behind.
//   - T commits before L <= F, so the server never sends T again, and the relay confirmed F once
//     every row before F was acknowledged, or set aside in a dead letter that was acknowledged.
//   - A snapshot of the server judged that T is committed, so savepoints need no care. Nothing
//     is decided by comparing numbers of transactions: xmin is that of a subtransaction, and
//     wraps. It is only part of a version's name.
//   - A place is used again by a newer transaction alone, and none that began after step 1 is
//     among those that were named. A version that was updated since is another one.
//   - VACUUM FULL and CLUSTER keep the transactions and change the places, in another file. The
//     statement of step 5 holds a lock that keeps the file, and acts on nothing in another one.
//   - After a crash a commit that was visible may be gone and its number be given out again. The
//     connection is gone too, and a batch does not outlive its connection.
//
// That the server sends what commits is true of tables that a publication has. Config.Sent is asked
// before step 5 whether the publication had the table all the time (catalog.PublishedAs), and whether
// a table became a partition with rows of its own, or was unlogged for a while (catalog.Unstreamed).
//
// Each order above is needed, and simulation_test.go has the failure that the other order has.
//
// The package opens no connection: postgres/maintenance is the Session of a server.
package proof
