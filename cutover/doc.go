// Package cutover changes over from a publisher that polls the table to a relay.
//
// With MarkNew the publisher runs on, as part of applications that cannot all be stopped:
//
//  1. A slot named as the configured one with the ending _cutover is made.
//  2. One transaction locks the tables against writers, makes a trigger that has each new row
//     be marked as published, and keeps the end of the WAL, the cut X, as the trigger's comment.
//     What committed to the tables before is without a mark, and commits before X, because the
//     lock waits for every writer. What commits later has a mark, and commits after X.
//  3. The publisher, which asks for rows without a mark, sends the rest. That is waited for, and
//     then for as long as a publisher without locks may still send what it read.
//  4. The slot is moved to X and copied to the configured name, or names of shards. Then the
//     first positions are written, and what is known of the rows before. The slot of the cutover
//     is dropped last.
//
// So each row has one sender: before X the publisher, after X the relay. Nobody streams from the
// configured slot before the publisher has sent its last row, because it does not exist: of each
// key the publisher's rows come first. Slots, trigger and comment tell the next call how far the
// last one came (state). A crash of the server may take the slot back before X, and leaves the copies.
//
// With Stopped the publisher has ended: what it left is backfilled.
//
// The way back from MarkNew is the same in the other direction (Back): a relay delivers what the slot has, one
// transaction locks the tables, the slot is waited for up to the end of the WAL, the relay ends,
// and the trigger goes. What committed before is delivered, the rest is the publisher's.
package cutover
