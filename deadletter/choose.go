package deadletter

import (
	"fmt"
	"iter"

	"github.com/cdc-relay/cdc-relay/router/record"
)

// Restored is what a row that has a letter's event id makes now.
type Restored struct {
	Record  *record.Record
	Payload []byte // the payload column as it is

	// Recoded means that another schema than the letter's encoded the value, because the registry does not
	// have the letter's any more.
	Recoded bool

	Err error // why the row makes no record
}

// choice counts the rows with a letter's event id, as they are read one after the other.
type choice struct {
	l *Letter

	rows   int
	last   Restored
	keyed  int      // rows that make the letter's key
	byKey  Restored // the last of them
	fits   int      // of these, such as the letter was written of
	fit    Restored // the last of them
	differ bool     // those that fit make different records
}

// choose takes the row that the letter was written of from all rows that have its event id, or
// says why none is taken. Several rows may have one event id where no unique index prevents it,
// as in a partitioned table: then the letter's hash of its value decides, and nothing else does.
func (l *Letter) choose(rows iter.Seq2[Restored, error]) (Restored, likeness, error) {
	c := choice{l: l}
	for row, err := range rows {
		if err != nil {
			return Restored{}, unknown, err
		}
		c.see(row)
	}
	return c.taken()
}

func (c *choice) see(now Restored) {
	c.rows++
	c.last = now
	if now.Err != nil || !c.l.sameKey(now) {
		return
	}
	c.keyed++
	c.byKey = now
	if c.l.compare(now) != same {
		return
	}
	if c.fits++; c.fits > 1 && digestOf(c.l.completed(now.Record)) != digestOf(c.l.completed(c.fit.Record)) {
		c.differ = true
	}
	c.fit = now
}

func (c *choice) taken() (Restored, likeness, error) {
	if c.rows == 1 {
		if c.last.Err != nil {
			return Restored{}, unknown, c.last.Err
		}
		found, err := c.l.accept(c.last)
		return c.last, found, err
	}
	if c.fits > 0 && !c.differ {
		if c.l.compare(c.fit) != same { // rows after it may share its memory
			return Restored{}, unknown, fmt.Errorf("the row of the letter at partition %d, offset %d changed in memory while others were read: report this as a defect of cdc-relay", c.l.Partition, c.l.Offset)
		}
		return c.fit, same, nil
	}
	if c.keyed == 1 && c.l.keyTells() {
		if found := c.l.compare(c.byKey); found == unknown || found == recoded {
			return c.byKey, found, nil
		}
	}
	which := "none of them with the value that was set aside: restore that row as it was"
	switch {
	case c.keyed > 0 && c.l.compare(c.byKey) == recoded:
		which = "and " + c.l.schemaGone() + ": bring the schema back"
	case c.differ:
		which = "several of them with the value that was set aside, and the rest of their records differs: give each row an id of its own"
	case c.keyed > 0 && c.l.compare(c.byKey) == unknown:
		which = "and nothing in the letter tells which of them was set aside: leave that one alone with its id"
	}
	return Restored{}, unknown, fmt.Errorf("the letter at partition %d, offset %d is not complete, and %d rows have its event id, %s, or discard the letter, and write the event again", c.l.Partition, c.l.Offset, c.rows, which)
}
