package wal

import "errors"

// ErrReadPast ends a stream that had to drop rows because nobody took them for long. What was handed
// out before is whole and in order, and the connection works until it is closed. The next
// session begins at the confirmed position and reads the dropped rows.
var ErrReadPast = errors.New("rows were read and dropped because nothing was delivered for long; the next session reads them again")
