package wal

import (
	"database/sql/driver"
	"fmt"
	"strconv"
	"strings"
)

// LSN is a position in the write-ahead log: its distance in bytes from the beginning. 0 is
// no position (PostgreSQL's InvalidXLogRecPtr). It is PostgreSQL's pg_lsn, with the text
// form that the server prints and reads.
//
// It is a type of the module, so that what only compares positions links no connection.
type LSN uint64

// String is the form of pg_lsn: two hexadecimal halves, X/X.
func (l LSN) String() string {
	return fmt.Sprintf("%X/%X", uint32(l>>32), uint32(l))
}

// ParseLSN reads the form of pg_lsn and nothing else: two hexadecimal halves of 1 to 8
// digits each.
func ParseLSN(text string) (LSN, error) {
	upper, lower, found := strings.Cut(text, "/")
	high, err := half(upper)
	if err != nil || !found {
		return 0, fmt.Errorf("parse LSN %q: want two hexadecimal numbers, as 16/B374D848", text)
	}
	low, err := half(lower)
	if err != nil {
		return 0, fmt.Errorf("parse LSN %q: want two hexadecimal numbers, as 16/B374D848", text)
	}
	return LSN(high<<32 | low), nil
}

func half(text string) (uint64, error) {
	if len(text) > 8 || strings.ContainsAny(text, "+-_") {
		return 0, strconv.ErrSyntax
	}
	return strconv.ParseUint(text, 16, 32)
}

// Scan implements sql.Scanner.
func (l *LSN) Scan(value any) error {
	var text string
	switch v := value.(type) {
	case string:
		text = v
	case []byte:
		text = string(v)
	default:
		return fmt.Errorf("scan %T as LSN: want its text form", value)
	}
	parsed, err := ParseLSN(text)
	if err != nil {
		return err
	}
	*l = parsed
	return nil
}

// Value implements driver.Valuer.
func (l LSN) Value() (driver.Value, error) { return l.String(), nil }
