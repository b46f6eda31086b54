package postgres

import (
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/cdc-relay/cdc-relay/fault"
)

// CheckNames refuses names in cfg that no server takes, and a configuration that names no table.
func CheckNames(cfg Config) error {
	for _, shard := range cfg.Shards() {
		if err := CheckSlotName(shard.Slot); err != nil {
			return err
		}
	}
	var cause string
	switch {
	case cfg.Publication == "":
		cause = "no publication is named"
	case len(cfg.Publication) > 63:
		cause = "the publication's name is longer than 63 bytes"
	case strings.ContainsRune(cfg.Publication, 0):
		cause = "the publication's name has a zero byte"
	case len(cfg.Tables)+len(cfg.Messages) == 0:
		cause = "no table and no message prefix is named"
	default:
		return nil
	}
	return &fault.Error{Kind: fault.KindRefused, Reason: fault.ReasonConfiguration, Op: "check the configuration", Err: errors.New(cause)}
}

var slotName = regexp.MustCompile(`^[a-z0-9_]{1,63}$`)

// CheckSlotName reports whether the server would take name. It is stricter than
// quoting: pglogrepl puts slot names into commands as they are.
func CheckSlotName(name string) error {
	if slotName.MatchString(name) {
		return nil
	}
	return &fault.Error{
		Kind: fault.KindRefused, Reason: fault.ReasonConfiguration, Op: "check", Subject: fmt.Sprintf("slot name %q", name),
		Err: errors.New("not a slot name"), Hint: "1 to 63 of a-z, 0-9 and _",
	}
}

// backfillSuffix ends the name of the slot that a backfill holds until it is complete.
const backfillSuffix = "_backfill"

// BackfillSlot is the name of the slot that stands for the configured ones, of all shards, until
// the rows from before it are sent. Nobody but a backfill streams from it.
func (c Config) BackfillSlot() string { return c.BaseSlot() + backfillSuffix }

// cutoverSuffix ends the name of the slot that a cutover holds until it is complete.
const cutoverSuffix = "_cutover"

// CutoverSlot is the name of the slot that stands for the configured ones, of all shards, until a
// polling publisher has sent its last row.
func (c Config) CutoverSlot() string { return c.BaseSlot() + cutoverSuffix }

// CutoverTrigger is the name of the trigger by which a cutover marks new rows as published.
const CutoverTrigger = "cdc_relay_cutover"

// BaseSlot is the configured name, without the number of a shard.
func (c Config) BaseSlot() string {
	if c.Shard.Divided() {
		return c.Shard.Slot
	}
	return c.Slot
}

// SlotSubject and PublicationSubject are what errors call a slot and a publication.
func SlotSubject(name string) string { return fmt.Sprintf("slot %q", name) }

func PublicationSubject(name string) string { return fmt.Sprintf("publication %q", name) }
