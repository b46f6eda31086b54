package outbox

import (
	"crypto/rand"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"time"
)

// UUID is an event's id. Other libraries' UUIDs convert: UUID(google.UUID).
type UUID [16]byte

// NewUUID makes a UUID of version 7: 48 bits of milliseconds, 12 bits of their fraction
// and 62 random bits. Ids made one after the other sort by time, so that an index grows at
// its end. The order of events is the order of commits, not that of their ids.
func NewUUID() UUID {
	var u UUID
	_, _ = rand.Read(u[8:]) // never fails
	stamp(&u, time.Now())
	return u
}

func stamp(u *UUID, at time.Time) {
	ms := at.UnixMilli()
	fraction := at.Sub(time.UnixMilli(ms)) // below a millisecond
	binary.BigEndian.PutUint64(u[:8], uint64(ms)<<16|0x7000|uint64(fraction)<<12/uint64(time.Millisecond))
	u[8] = u[8]&0x3f | 0x80
}

// ParseUUID reads the form with four hyphens.
func ParseUUID(s string) (UUID, error) {
	var u UUID
	if len(s) != 36 || s[8] != '-' || s[13] != '-' || s[18] != '-' || s[23] != '-' {
		return UUID{}, errUUID
	}
	var digits [32]byte
	n := copy(digits[:], s[:8])
	n += copy(digits[n:], s[9:13])
	n += copy(digits[n:], s[14:18])
	n += copy(digits[n:], s[19:23])
	copy(digits[n:], s[24:])
	if _, err := hex.Decode(u[:], digits[:]); err != nil {
		return UUID{}, errUUID
	}
	return u, nil
}

var errUUID = errors.New("no UUID; write it as 32 hexadecimal digits with four hyphens")

// String is the form with four hyphens, in lower case, as PostgreSQL prints it.
func (u UUID) String() string {
	var s [36]byte
	hex.Encode(s[:8], u[:4])
	hex.Encode(s[9:13], u[4:6])
	hex.Encode(s[14:18], u[6:8])
	hex.Encode(s[19:23], u[8:10])
	hex.Encode(s[24:], u[10:])
	s[8], s[13], s[18], s[23] = '-', '-', '-', '-'
	return string(s[:])
}
