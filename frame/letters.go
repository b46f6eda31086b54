package frame

import (
	"fmt"
	"time"

	"github.com/cdc-relay/cdc-relay/wording"
)

// LetterList is what the relay says of its dead letters.
type LetterList struct {
	Topic   string    `json:"topic"`
	ReadAt  time.Time `json:"read_at"`
	Total   int       `json:"total"`
	Waiting int       `json:"waiting"`
	Letters []Letter  `json:"letters"` // that wait, the newest first
	Reasons []Counted `json:"reasons"`

	Failure string `json:"-"` // why nothing is known of them; empty: something is
}

// Letter is one dead letter. It has nothing of its row but the event id.
type Letter struct {
	Partition int32     `json:"partition"`
	Offset    int64     `json:"offset"`
	Time      time.Time `json:"time"`
	Reason    string    `json:"reason"`
	Table     string    `json:"table"`
	Topic     string    `json:"topic"`
	EventID   string    `json:"event_id"`
	Bytes     int64     `json:"value_bytes"`
}

// Counted is how many letters share a reason.
type Counted struct {
	Name  string `json:"name"`
	Count int    `json:"count"`
}

// letters are those that wait, and what to do about them.
func (f *frame) letters() {
	l := f.m.Letters
	switch {
	case l == nil:
		f.add("  Asking for the dead letters.")
		return
	case l.Failure != "":
		for _, line := range wrap(wording.Printable(l.Failure), f.width-2, 4) {
			f.add("  " + line)
		}
		return
	}
	f.row("waiting", fmt.Sprintf("%d of %s in %s, read %s ago", l.Waiting, wording.Count(l.Total, "letter"), wording.Printable(l.Topic), duration(max(0, f.m.Now.Sub(l.ReadAt).Seconds()))))
	label := "by reason"
	for _, one := range l.Reasons {
		f.row(label, fmt.Sprintf("%6d  %s", one.Count, wording.Printable(one.Name)))
		label = ""
	}
	if l.Waiting == 0 {
		f.add("  No letter waits.")
		return
	}
	label = "do"
	for _, line := range fold("cdc-relay deadletter redrive --all", f.width-13, ` \`) {
		f.row(label, line)
		label = ""
	}
	f.row("", "shows what would be sent; --yes sends it")
	f.add("")
	for i := range l.Letters {
		f.letter(&l.Letters[i])
	}
	if left := l.Waiting - len(l.Letters); left > 0 {
		f.add(fmt.Sprintf("  and %d more", left))
	}
}

// twoLines is the width below which a letter has a line more.
const twoLines = 100

func (f *frame) letter(l *Letter) {
	to := wording.Printable(l.Topic)
	if to == "" {
		to = "no topic"
	}
	about := cut(wording.Printable(l.Table), 40) + " → " + cut(to, 40)
	if l.Bytes > 0 {
		about += ", " + wording.Bytes(l.Bytes)
	}
	if l.EventID != "" {
		about += ", event " + cut(wording.Printable(l.EventID), 40)
	}
	place := fmt.Sprintf("  %-8s %s  %s", fmt.Sprintf("%d/%d", l.Partition, l.Offset), l.Time.UTC().Format("01-02 15:04:05"), f.paint(yellow, wording.Printable(l.Reason)))
	if f.width < twoLines {
		f.add(place)
		f.add("           " + about)
		return
	}
	f.add(place + "  " + about)
}
