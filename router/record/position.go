package record

import (
	"strconv"
	"time"

	"github.com/cdc-relay/cdc-relay/replication/wal"
)

// The position headers, a duplicate key that needs no event id. They stand after
// all others.
const (
	HeaderLSN        = "cdc-relay-lsn"         // end of the commit record; of a message outside any transaction, its own position
	HeaderSeq        = "cdc-relay-seq"         // ordinal in the transaction, from 1; 0 outside any
	HeaderCommitTime = "cdc-relay-commit-time" // RFC 3339, UTC; null outside any transaction
)

// HeaderReplay is on a record that was sent again on purpose, and names the run.
const HeaderReplay = "cdc-relay-replay"

// HeaderBackfill is on a record of an old row that was sent beside a running relay, possibly after
// newer ones of its key, and names the run.
const HeaderBackfill = "cdc-relay-backfill"

// maxLSN is the length of the longest position: FFFFFFFF/FFFFFFFF.
const maxLSN = 17

// AddPositions gives the records of row the position headers, the position itself
// still open.
func AddPositions(b *Buffer, records []Record, row *wal.Row) {
	if row.Txn == nil {
		return
	}
	seq := row.Ordinal
	var at []byte
	if row.Outside() {
		seq = 0 // its position may be the end of a commit, whose rows count from 1
	} else {
		at = b.Claim(row.Txn.Time.UTC().AppendFormat(b.Tail(40), time.RFC3339Nano))
	}
	ordinal := b.Claim(strconv.AppendUint(b.Tail(20), seq, 10))
	for i := range records {
		for _, h := range records[i].Headers {
			b.Header(h.Key, h.Value)
		}
		b.Header(HeaderLSN, b.Claim(b.Tail(maxLSN)[:maxLSN]))
		b.Header(HeaderSeq, ordinal)
		b.Header(HeaderCommitTime, at)
		records[i].Headers = b.TakeHeaders()
	}
}

// FillPosition fills in the position of a record that was routed with position headers,
// and reports whether it is known: it is not while the commit has not been read.
// Filling it in again changes nothing.
func FillPosition(r *Record) bool {
	at := r.Row.Txn.End
	if r.Row.Outside() {
		at = r.Row.Txn.Commit
	}
	if at == 0 {
		return false
	}
	PlaceAt(r, at)
	return true
}

// PlaceAt fills in a position as FillPosition does, another one than the row's transaction has. A record
// without position headers stays as it is.
func PlaceAt(r *Record, at wal.LSN) {
	for i := len(r.Headers) - 1; i >= 0; i-- {
		if h := &r.Headers[i]; h.Key == HeaderLSN {
			h.Value = appendLSN(h.Value[:0], at)
			return
		}
	}
}

func appendLSN(dst []byte, lsn wal.LSN) []byte {
	const digits = "0123456789ABCDEF"
	hex := func(n uint32) {
		shift := 28
		for shift > 0 && n>>shift == 0 {
			shift -= 4
		}
		for ; shift >= 0; shift -= 4 {
			dst = append(dst, digits[n>>shift&15])
		}
	}
	hex(uint32(lsn >> 32))
	dst = append(dst, '/')
	hex(uint32(lsn))
	return dst
}
