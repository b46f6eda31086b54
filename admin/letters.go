package admin

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
)

// LetterTools are what the console does with dead letters, by what the commands do.
type LetterTools struct {
	Topic string

	// Read gives all letters of the topic, in any order.
	Read func(context.Context) (*LetterList, error)

	// Show gives one letter; nil: the topic does not have it. Without values it has no key, no
	// value and no header value.
	Show func(ctx context.Context, at Place, values bool) (*ShownLetter, error)

	// Plan finds out what would be done, and changes nothing.
	Plan func(context.Context, LetterFilter) (*Plan, error)

	// Act re-drives or discards what a plan has. It calls begun once it is alone with the letters
	// and they are those of the plan, and nothing was changed before. It ends between two keys
	// once halted says so.
	Act func(ctx context.Context, p *Plan, discard bool, begun func(), progress func(Progress), halted func() bool) error
}

// LetterList is what was read of the topic.
type LetterList struct {
	Letters []Letter
	Foreign int // records of somebody else
}

// Letter is one dead letter, without anything of its row but the event id.
type Letter struct {
	Partition int32     `json:"partition"`
	Offset    int64     `json:"offset"`
	Time      time.Time `json:"time"`
	Reason    string    `json:"reason"`
	Table     string    `json:"table"`
	Topic     string    `json:"topic"`
	LSN       string    `json:"lsn"`
	Seq       uint64    `json:"seq"`
	Source    string    `json:"source"`
	EventID   string    `json:"event_id"`
	Bytes     int64     `json:"value_bytes"`
	Missing   []string  `json:"missing,omitempty"`
	State     string    `json:"state"` // waiting, sent or discarded
}

// ShownLetter is a letter with what its record has.
type ShownLetter struct {
	Letter
	Message string   `json:"message"`
	Headers []string `json:"header_names"`
	Record  any      `json:"record"` // null without values
}

// Place is where a letter lies in the topic.
type Place struct {
	Partition int32 `json:"partition"`
	Offset    int64 `json:"offset"`
}

// LetterFilter selects letters that wait; a zero field selects all.
type LetterFilter struct {
	Reason string    `json:"reason,omitempty"`
	Table  string    `json:"table,omitempty"`
	Topic  string    `json:"topic,omitempty"`
	Since  time.Time `json:"since,omitzero"`
	Places []Place   `json:"letters,omitempty"`
}

// Failure is why a tool did not do what it was to do, with the status of the answer.
type Failure struct {
	Code    int
	Problem string // its name for programs
	Err     error
}

func (e *Failure) Error() string { return e.Err.Error() }
func (e *Failure) Unwrap() error { return e.Err }

// fail answers with what a tool says.
func fail(w http.ResponseWriter, err error) {
	if f, ok := errors.AsType[*Failure](err); ok {
		problem(w, f.Code, f.Problem, err.Error())
		return
	}
	problem(w, http.StatusServiceUnavailable, "not_answered", err.Error())
}

// noLetters answers where there are none. It reports whether it did.
func (a *api) noLetters(w http.ResponseWriter) bool {
	if a.console.tools.Letters != nil {
		return false
	}
	problem(w, http.StatusNotFound, "no_dead_letters", "this relay has no dead-letter topic: relay.on_reject is not dead_letter")
	return true
}

// The states of letters, and that of all.
var letterStates = []string{"waiting", "sent", "discarded", "all"}

const (
	usualLetters = 100
	mostLetters  = 500
)

// counted is how many letters share something.
type counted struct {
	Name  string `json:"name"`
	Count int    `json:"count"`
}

// letters lists them, the newest first.
func (a *api) letters(w http.ResponseWriter, r *http.Request) {
	if a.noLetters(w) {
		return
	}
	query, ok := letterQuery(w, r)
	if !ok {
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), patience)
	defer cancel()
	read, err := a.console.desk.read(ctx, a.now, a.console.tools.Letters.Read)
	if err != nil {
		fail(w, err)
		return
	}
	shown, matched, next, found := query.page(read.letters)
	if !found {
		problem(w, http.StatusGone, "letter_gone", fmt.Sprintf("after: the letter at %d/%d is not in the topic any more; begin again without after", query.after.Partition, query.after.Offset))
		return
	}
	waiting := 0
	for i := range read.letters {
		if read.letters[i].State == "waiting" {
			waiting++
		}
	}
	answerJSON(w, map[string]any{
		"topic": a.console.tools.Letters.Topic, "read_at": read.at.UTC(), "total": len(read.letters), "waiting": waiting, "foreign": read.foreign,
		"matched": len(matched), "letters": shown, "next": next,
		"reasons": tally(matched, func(l *Letter) string { return l.Reason }),
		"tables":  tally(matched, func(l *Letter) string { return l.Table }),
		"topics":  tally(matched, func(l *Letter) string { return l.Topic }),
	})
}

// asked is what a list of letters was asked for.
type asked struct {
	LetterFilter
	state string
	after *Place
	limit int
}

// letterQuery reads the query, or answers what is wrong with it.
func letterQuery(w http.ResponseWriter, r *http.Request) (q asked, ok bool) {
	query := r.URL.Query()
	wrong := func(reason, name, allowed string) (asked, bool) {
		problem(w, http.StatusBadRequest, reason, name+": "+strconv.Quote(cut(query.Get(name)))+" is not allowed; allowed: "+allowed)
		return q, false
	}
	q = asked{state: "waiting", limit: usualLetters}
	q.Reason, q.Table, q.Topic = query.Get("reason"), query.Get("table"), query.Get("topic")
	if query.Has("state") {
		if q.state = query.Get("state"); !slices.Contains(letterStates, q.state) {
			return wrong("unknown_state", "state", strings.Join(letterStates, ", "))
		}
	}
	if query.Has("since") {
		var err error
		if q.Since, err = time.Parse(time.RFC3339, query.Get("since")); err != nil {
			return wrong("unknown_time", "since", "a time such as 2030-01-31T14:00:00Z")
		}
	}
	if query.Has("limit") {
		n, err := strconv.Atoi(query.Get("limit"))
		if err != nil || n < 1 || n > mostLetters {
			return wrong("unknown_limit", "limit", "1 to "+strconv.Itoa(mostLetters))
		}
		q.limit = n
	}
	if query.Has("after") {
		partition, offset, _ := strings.Cut(query.Get("after"), "/")
		at, ok := placeOf(partition, offset)
		if !ok {
			return wrong("unknown_cursor", "after", "next of the page before, such as 3/17")
		}
		q.after = &at
	}
	return q, true
}

// cut shortens what is repeated to whoever sent it.
func cut(text string) string {
	if len(text) > 100 {
		return text[:100] + "…"
	}
	return text
}

func placeOf(partition, offset string) (at Place, ok bool) {
	p, err := strconv.ParseInt(partition, 10, 32)
	o, err2 := strconv.ParseInt(offset, 10, 64)
	return Place{int32(p), o}, err == nil && err2 == nil && p >= 0 && o >= 0
}

// page takes from letters, newest first, those that match, and of them those of one page.
func (q *asked) page(all []Letter) (shown, matched []Letter, next *string, found bool) {
	from := -1
	matched, shown = []Letter{}, []Letter{}
	for _, l := range all {
		at := q.after != nil && l.Partition == q.after.Partition && l.Offset == q.after.Offset
		if q.matches(&l) {
			matched = append(matched, l)
		}
		if at {
			from = len(matched)
		}
	}
	if q.after == nil {
		from = 0
	} else if from < 0 {
		return nil, nil, nil, false
	}
	shown = append(shown, matched[from:min(len(matched), from+q.limit)]...)
	if from+len(shown) < len(matched) {
		last := &shown[len(shown)-1]
		text := fmt.Sprintf("%d/%d", last.Partition, last.Offset)
		next = &text
	}
	return shown, matched, next, true
}

func (q *asked) matches(l *Letter) bool {
	return (q.state == "all" || q.state == l.State) && (q.Reason == "" || q.Reason == l.Reason) && (q.Table == "" || q.Table == l.Table) &&
		(q.Topic == "" || q.Topic == l.Topic) && (q.Since.IsZero() || !l.Time.Before(q.Since))
}

// tally counts letters, the most frequent first, twenty at most.
func tally(all []Letter, of func(*Letter) string) []counted {
	byName := map[string]int{}
	for i := range all {
		byName[of(&all[i])]++
	}
	list := []counted{}
	for name, n := range byName {
		list = append(list, counted{name, n})
	}
	slices.SortFunc(list, func(a, b counted) int { return cmp.Or(cmp.Compare(b.Count, a.Count), strings.Compare(a.Name, b.Name)) })
	return list[:min(len(list), 20)]
}

// letter shows one; its values to operators alone, and only where they may be shown.
func (a *api) letter(w http.ResponseWriter, r *http.Request) {
	if a.noLetters(w) {
		return
	}
	at, ok := placeOf(r.PathValue("partition"), r.PathValue("offset"))
	if !ok {
		problem(w, http.StatusBadRequest, "unknown_place", "a letter is at /api/v1/dead-letters/PARTITION/OFFSET, two numbers from 0 on")
		return
	}
	values, who, ok := a.values(w, r)
	if !ok {
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), patience)
	defer cancel()
	found, err := a.console.tools.Letters.Show(ctx, at, values)
	if values {
		a.audit(r, who, "show_values", fmt.Sprintf("letter %d/%d", at.Partition, at.Offset), 1, outcomeOf(err, found == nil))
	}
	switch {
	case err != nil:
		fail(w, err)
	case found == nil:
		problem(w, http.StatusGone, "letter_gone", fmt.Sprintf("there is no dead letter at partition %d, offset %d any more, or there never was", at.Partition, at.Offset))
	default:
		if !values {
			found.Record = nil
		}
		answerJSON(w, found)
	}
}

// values reports whether a request asks for keys and values, which operators alone see, where they may be shown.
// It answers if they may not.
func (a *api) values(w http.ResponseWriter, r *http.Request) (values bool, who asker, ok bool) {
	switch text := r.URL.Query().Get("values"); text {
	case "true":
		values = true
	case "", "false":
	default:
		problem(w, http.StatusBadRequest, "unknown_value", "values: "+strconv.Quote(cut(text))+" is not allowed; allowed: true, false")
		return false, who, false
	}
	who, _ = a.who(r)
	switch {
	case values && !a.cfg.Payloads:
		problem(w, http.StatusForbidden, "payloads_off", "values are not shown: set http.console.payloads: true and http.console.operator_token_file, and start the relay again")
		return false, who, false
	case values && who.role < operator:
		problem(w, http.StatusForbidden, "operator_needed", "values need the operator token: sign in with the content of http.console.operator_token_file")
		return false, who, false
	}
	return values, who, true
}

func outcomeOf(err error, gone bool) string {
	switch {
	case err != nil:
		return "failed"
	case gone:
		return "gone"
	}
	return "done"
}

// retry has the relay try again now.
func (a *api) retry(w http.ResponseWriter, r *http.Request) {
	if a.console.tools.Retry == nil {
		problem(w, http.StatusNotFound, "no_retry", "this program cannot be asked to try again")
		return
	}
	if a.tooMany(w) {
		return
	}
	who, _ := a.who(r)
	cut := a.console.tools.Retry()
	a.audit(r, who, "retry", "", 0, map[bool]string{true: "tried", false: "nothing waited"}[cut])
	answerJSON(w, map[string]bool{"tried": cut})
}
