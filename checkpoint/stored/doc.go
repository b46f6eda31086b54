// Package stored has the records of the checkpoint topic: their keys, their formats, and which rows a
// position covers. Every version reads what earlier ones wrote; the formats only grow, and a record
// of a later format is refused (recordVersion).
package stored
