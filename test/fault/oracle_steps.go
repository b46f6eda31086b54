package main

import (
	"bufio"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/klauspost/compress/zstd"
	"github.com/twmb/franz-go/pkg/kgo"
)

// stepHistory is what became of the rows of a table whose command was killed again and again.
type stepHistory struct {
	*stepCase
	exactly bool // exactly once

	rows     []stepRow // in the order of writing
	gone     []Gone    // rows that were deleted, or marked, and when
	archived map[string]int
	exported map[string][]string // by id, the different texts that files have of it
	broken   []string            // files that are not whole
	records  []*kgo.Record       // of the rows' own topic
	letters  []*kgo.Record
	copies   []*kgo.Record // of the topic that rows are sent to again
	runs     []string      // of replay, that came to their end
	upTo     int64         // id of the last row that they send
	proven   [2]int        // rows, of how many, by the last audit
}

// stepRow is a row as it was written, and what is left of it.
type stepRow struct {
	id, key  string
	bad      bool   // it is rejected
	part     string // partition that it was written into
	there    bool
	marked   bool
	attempts int
	said     bool // that it was rejected
}

var provenLine = regexp.MustCompile(`proven (\d[\d ]*) of (\d[\d ]*)`)

func provenOf(text string) (proven [2]int) {
	if m := provenLine.FindStringSubmatch(text); m != nil {
		for i := range proven {
			proven[i], _ = strconv.Atoi(strings.ReplaceAll(strings.TrimSpace(m[i+1]), " ", ""))
		}
	}
	return proven
}

// file reads a file of exported rows, with code of its own.
func (h *stepHistory) file(name string, file io.Reader) {
	fail := func(format string, args ...any) {
		h.broken = append(h.broken, name+": "+fmt.Sprintf(format, args...))
	}
	z, err := zstd.NewReader(file)
	if err != nil {
		fail("%v", err)
		return
	}
	defer z.Close()
	lines := bufio.NewScanner(z)
	lines.Buffer(nil, 16<<20)
	var all []string
	for lines.Scan() {
		all = append(all, lines.Text())
	}
	var last struct {
		Rows   int
		SHA256 string
	}
	if lines.Err() != nil || len(all) < 2 || json.Unmarshal([]byte(all[len(all)-1]), &last) != nil {
		fail("it has no end: %v", lines.Err())
		return
	}
	rows := all[1 : len(all)-1]
	sum := sha256.Sum256([]byte(strings.Join(append(slices.Clone(rows), ""), "\n")))
	if last.Rows != len(rows) || last.SHA256 != hex.EncodeToString(sum[:]) {
		fail("it has %d rows, and says %d with another sum", len(rows), last.Rows)
		return
	}
	for _, text := range rows {
		var row struct{ ID string }
		if err := json.Unmarshal([]byte(text), &row); err != nil {
			fail("%v", err)
			return
		}
		if !slices.Contains(h.exported[row.ID], text) {
			h.exported[row.ID] = append(h.exported[row.ID], text)
		}
	}
}

// wrong says what does not hold. An empty answer means that everything does.
func (h *stepHistory) wrong() (wrong []string) {
	var found stepFaults
	h.removed(&found)
	h.left(&found)
	h.filed(&found)
	wrong = append(found.lines(), h.broken...)
	wrong = append(wrong, h.sent()...)
	if h.proves && (h.proven[0] != len(h.rows) || h.proven[1] != len(h.rows)) {
		wrong = append(wrong, fmt.Sprintf("the audit has %d proven of %d rows; there are %d", h.proven[0], h.proven[1], len(h.rows)))
	}
	return append(wrong, h.sentAgain()...)
}

// stepFaults are ids of rows, by what is wrong with them.
type stepFaults map[string][]string

func (f stepFaults) lines() (lines []string) {
	for what, ids := range f {
		lines = append(lines, fmt.Sprintf("%s: %d rows, such as %s", what, len(ids), ids[0]))
	}
	slices.Sort(lines)
	return lines
}

func (f *stepFaults) add(what, id string) {
	if *f == nil {
		*f = stepFaults{}
	}
	(*f)[what] = append((*f)[what], id)
}

// removed looks at what was done to rows, and when: not before the brokers had them.
func (h *stepHistory) removed(found *stepFaults) {
	arrived := map[string]time.Time{}
	for _, r := range h.records {
		if id := headerOf(r, "id"); arrived[id].IsZero() || r.Timestamp.Before(arrived[id]) {
			arrived[id] = r.Timestamp
		}
	}
	bad, seen := map[string]bool{}, map[string]bool{}
	for _, row := range h.rows {
		bad[row.id] = row.bad
	}
	for _, g := range h.gone {
		switch at := arrived[g.ID]; {
		case !h.removes() && g.How != "UPDATE", !h.marks() && g.How == "UPDATE":
			found.add(g.How+" by a command that does no such thing", g.ID)
		case bad[g.ID]:
			if h.marks() && !h.marked(g.ID) { // its letter is told, which is no mark
				continue
			}
			found.add("P14: "+g.How+" of a row whose dead letter waits", g.ID)
		case at.IsZero() || at.After(g.At.Add(clockSlack)):
			found.add("P14: "+g.How+" of a row that was not delivered by then", g.ID)
		}
		if seen[g.ID] {
			found.add("done twice", g.ID)
		}
		seen[g.ID] = true
	}
	if !h.again && !h.proves && len(h.gone) == 0 {
		found.add("nothing was done, so nothing is proven", "none")
	}
	for _, row := range h.rows {
		if !row.there && !seen[row.id] {
			found.add("a row is gone, and nobody deleted it", row.id)
		}
	}
}

func (h *stepHistory) marked(id string) bool {
	i := slices.IndexFunc(h.rows, func(r stepRow) bool { return r.id == id })
	return i >= 0 && h.rows[i].marked
}

// left looks at what is left of rows: the command was done in the end.
func (h *stepHistory) left(found *stepFaults) {
	held := h.held()
	for _, row := range h.rows {
		switch {
		case row.there && h.removes() && !held[row.id]:
			found.add("a row is due, and was left", row.id)
		case row.there && h.marks() && row.marked == row.bad:
			found.add(fmt.Sprintf("marked: %t, rejected: %t", row.marked, row.bad), row.id)
		}
		wanted := 0
		if row.bad && h.rejects {
			wanted = 1
		}
		if row.there && (row.attempts != wanted || row.said != (wanted == 1)) {
			found.add(fmt.Sprintf("says %d times that it was rejected, and not %d", row.attempts, wanted), row.id)
		}
	}
}

// held are the rows that stay: those of dead letters, and with them their partitions. Rows of the
// present are not due in a partition.
func (h *stepHistory) held() map[string]bool {
	parts, held := map[string]bool{}, map[string]bool{}
	for _, row := range h.rows {
		if row.bad {
			parts[row.part] = true
		}
	}
	for _, row := range h.rows {
		held[row.id] = row.bad || h.partitions && (parts[row.part] || !strings.Contains(row.part, "_old_"))
	}
	return held
}

// filed looks at the archive and the files.
func (h *stepHistory) filed(found *stepFaults) {
	for _, row := range h.rows {
		switch n := h.archived[row.id]; {
		case h.archive && !row.there && n != 1:
			found.add(fmt.Sprintf("deleted, and %d times in the archive", n), row.id)
		case n > 0 && row.there:
			found.add("in the table and in the archive", row.id)
		}
		switch texts := h.exported[row.id]; {
		case h.files && !row.there && len(texts) == 0:
			found.add("P14: deleted, and in no file", row.id)
		case len(texts) > 1:
			found.add("exported with two contents", row.id)
		}
	}
}

// sent holds the records against the rows, those that were sent again apart.
func (h *stepHistory) sent() []string {
	var rows []oldRow
	letters := map[string]int{}
	for _, r := range h.letters {
		letters[headerOf(r, "id")]++
	}
	var wrong []string
	for _, row := range h.rows {
		if !row.bad {
			rows = append(rows, oldRow{row.id, row.key})
		} else if letters[row.id] == 0 {
			wrong = append(wrong, "a row that is rejected has no dead letter: "+row.id)
		}
	}
	records := h.records
	if !h.alone { // of whole keys, the records that were sent again belong to the order
		records = slices.DeleteFunc(slices.Clone(records), func(r *kgo.Record) bool { return headerOf(r, replayHeader) != "" })
	}
	return append(wrong, judgeOld(rows, records, h.exactly && !h.alone)...)
}

const replayHeader = "cdc-relay-replay"

// sentAgain looks at the records of the runs that came to their end.
func (h *stepHistory) sentAgain() (wrong []string) {
	if !h.again {
		return nil
	}
	records := h.records
	if h.toTopic {
		records = h.copies
		for _, r := range h.records {
			if headerOf(r, replayHeader) != "" {
				return []string{"a record that was sent again is in the rows' own topic"}
			}
		}
	}
	var chosen []oldRow
	for _, row := range h.rows {
		if n, err := strconv.ParseInt(row.id, 10, 64); err == nil && n <= h.upTo {
			chosen = append(chosen, oldRow{row.id, row.key})
		}
	}
	if len(h.runs) == 0 || len(chosen) == 0 {
		return []string{"nothing was sent again, so nothing is proven"}
	}
	for _, run := range h.runs {
		var of []*kgo.Record
		for _, r := range records {
			if headerOf(r, replayHeader) == run && (!h.alone || slices.ContainsFunc(chosen, func(c oldRow) bool { return c.id == headerOf(r, "id") })) {
				of = append(of, r)
			}
		}
		for _, text := range judgeOld(chosen, of, h.exactly) {
			wrong = append(wrong, "run "+run+": "+text)
		}
	}
	return wrong
}

func headerOf(r *kgo.Record, key string) string {
	for _, h := range r.Headers {
		if h.Key == key {
			return string(h.Value)
		}
	}
	return ""
}
