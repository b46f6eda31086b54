package outbox

import (
	"crypto/sha256"
	"encoding/hex"
	"strconv"
)

// Key makes an idempotency key: the first 32 hexadecimal digits of the SHA-256 of the parts,
// each written as its length in bytes, a colon, the part and a comma ("5:order,"). Parts do
// not run into each other: Key("a:b", "c") and Key("a", "b:c") differ.
//
// The parts name the occurrence: the aggregate, what happened to it, and the command or
// version that made it happen. The content alone makes a bad key: two honest events may be
// equal, and a timestamp in the content makes each retry another event.
func Key(parts ...string) string {
	b := make([]byte, 0, 128)
	for _, p := range parts {
		b = strconv.AppendInt(b, int64(len(p)), 10)
		b = append(b, ':')
		b = append(b, p...)
		b = append(b, ',')
	}
	return digest(b)
}

func digest(b []byte) string {
	sum := sha256.Sum256(b)
	var text [32]byte
	hex.Encode(text[:], sum[:16])
	return string(text[:])
}
