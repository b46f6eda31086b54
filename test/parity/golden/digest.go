package golden

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"hash"
)

// Digest stands for the records of a large case; the file holds the first and the
// last few.
type Digest struct {
	Records int    `json:"records"`
	SHA256  string `json:"sha256"`
}

// digestEnds is how many records at each end a file keeps.
const digestEnds = 5

// DigestOf is over all records in order: the key, then the value, each as its
// length in four bytes and its bytes; null has the length ffffffff.
func DigestOf(records []Record) Digest {
	h := sha256.New()
	for _, r := range records {
		add(h, r.Key)
		add(h, r.Value)
	}
	return Digest{Records: len(records), SHA256: hex.EncodeToString(h.Sum(nil))}
}

func add(h hash.Hash, b Bytes) {
	var length [4]byte
	binary.BigEndian.PutUint32(length[:], uint32(len(b.Raw)))
	if b.Null {
		length = [4]byte{0xff, 0xff, 0xff, 0xff}
	}
	h.Write(length[:])
	h.Write(b.Raw)
}

// Ends are the records that a file keeps of a large case.
func Ends(records []Record) []Record {
	if len(records) <= 2*digestEnds {
		return records
	}
	return append(append([]Record(nil), records[:digestEnds]...), records[len(records)-digestEnds:]...)
}
