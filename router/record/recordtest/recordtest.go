// Package recordtest writes records as text for golden files.
package recordtest

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"strings"
	"time"

	"github.com/cdc-relay/cdc-relay/router/record"
)

// Show returns a record's parts, one on each line.
func Show(rec record.Record) string {
	var s strings.Builder
	fmt.Fprintf(&s, "topic     %s\nkey       %s\nvalue     %s\n", rec.Topic, Bytes(rec.Key), Bytes(rec.Value))
	for _, h := range rec.Headers {
		fmt.Fprintf(&s, "header    %s = %s\n", h.Key, Bytes(h.Value))
	}
	if !rec.Timestamp.IsZero() {
		fmt.Fprintf(&s, "timestamp %s\n", rec.Timestamp.Format(time.RFC3339Nano))
	}
	if rec.Partition != record.AutoPartition {
		fmt.Fprintf(&s, "partition %d\n", rec.Partition)
	}
	return s.String()
}

// Bytes returns text as it is, and other bytes in hexadecimal. It tells nil from empty.
func Bytes(b []byte) string {
	switch {
	case b == nil:
		return "null"
	case len(b) == 0:
		return "empty"
	case bytes.ContainsFunc(b, func(r rune) bool { return r < ' ' || r == 0xFFFD }):
		return "bytes " + hex.EncodeToString(b)
	}
	return string(b)
}
