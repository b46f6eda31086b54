// Package handover ends a backfill or a cutover: the slot that stood for the configured ones until
// then is copied to their names, and what is known of the rows before is written. It also has what
// both do with their slot meanwhile.
package handover
