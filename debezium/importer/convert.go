package importer

import (
	"fmt"
	"slices"
	"strings"
)

// item is one property under the name that Kafka Connect has for it.
type item struct {
	property
	original string // its name in the input
	file     string
}

// conversion is one run of Convert.
type conversion struct {
	options Options
	in      *source
	worker  *source
	result  Result

	items   []item
	byKey   map[string]int
	done    map[string]bool // keys of items that have their remark
	remarks []Remark
	root    *node

	tables   []captured
	debezium []option   // of every entry of outbox, in order
	blocks   [][]option // what the entries so far add to them, each once

	fallback map[string]string // default of a variable, where the input has one
	unset    map[string]bool   // variables whose default is not copied

	offered *node // what a person may take in place of outbox; nil: there is no such offer

	badAddress bool // a remark refuses a key of postgres.url
}

// option is one line of outbox[].debezium.
type option struct{ key, value, comment string }

func newConversion(in, worker *source, o Options) *conversion {
	c := &conversion{options: o, in: in, worker: worker, byKey: map[string]int{}, done: map[string]bool{}, root: &node{},
		fallback: map[string]string{}, unset: map[string]bool{}}
	c.result.Form = in.form
	c.result.Source = Source{Connector: in.name, Placeholders: map[string]string{}}
	for _, p := range in.props {
		it := item{property: p, original: shownKey(p.key), file: in.file}
		if in.server() {
			it.original = shownKey(in.originalKey(p.key))
			name, ok := c.profile(it)
			if !ok {
				continue
			}
			it.key = serverKey(name)
			it.value = c.expressions(it.key, p.value)
		} else {
			it.value = fullClass(it.key, it.value)
		}
		if first, twice := c.byKey[it.key]; twice {
			c.again(it, c.items[first].property)
			continue
		}
		c.byKey[it.key] = len(c.items)
		c.items = append(c.items, it)
	}
	return c
}

// beside gives remarks to what is not among the keys: the earlier of two equal ones,
// and members of a wrapper.
func (c *conversion) beside() {
	for _, s := range []*source{c.in, c.worker} {
		if s == nil {
			continue
		}
		for _, p := range s.twice {
			last, _ := s.get(p.key)
			c.again(item{property: p, original: shownKey(s.originalKey(p.key)), file: s.file}, last)
		}
	}
	for _, p := range c.in.aside {
		fate, text := NotCarried, "is no member of a connector's JSON, and left out"
		switch p.key {
		case "initial_state":
			fate, text = NotNeeded, "is the state in which Connect starts a new connector"
		case "tasks", "type":
			fate, text = NotNeeded, "is Connect's own answer"
		case "name":
			text = "stands twice; the last one counts"
		}
		c.tell(item{property: p, original: shownKey(p.key), file: c.in.file}, fate, text)
	}
}

// again is the remark of one of two equal keys, the one that does not count.
func (c *conversion) again(it item, counts property) {
	fate := NotCarried
	if it.value == counts.value {
		fate = NotNeeded
	}
	where := fmt.Sprintf("line %d", counts.line)
	if it.line == counts.line {
		where += fmt.Sprintf(", column %d", counts.column)
	}
	c.tell(it, fate, fmt.Sprintf("stands twice; the one in %s counts", where))
}

// tell is a remark that leaves the key to others.
func (c *conversion) tell(it item, fate Fate, text string) {
	c.remarks = append(c.remarks, Remark{Key: it.original, Fate: fate, Text: oneLine(text), File: it.file, Line: it.line})
}

func (s *source) server() bool { return s.form == ServerProperties || s.form == ServerEnvironment }

// run fails only where nothing sensible could be written.
func (c *conversion) run() error {
	if err := c.checkClass(); err != nil {
		return err
	}
	if err := c.readTables(); err != nil {
		return err
	}
	c.postgres()
	c.kafka()
	c.converters()
	if err := c.records(); err != nil {
		return err
	}
	c.relay()
	c.rest()
	c.workerRest()
	c.beside()
	c.writeTables()
	c.offerAvro()
	return nil
}

const postgresConnector = "io.debezium.connector.postgresql.PostgresConnector"

func (c *conversion) checkClass() error {
	class, ok := c.take("connector.class")
	switch {
	case !ok:
		return &Error{File: c.in.file, Line: 1, Message: "connector.class is missing; only " + postgresConnector + " is imported"}
	case class.value == "PostgresConnector", class.value == "Postgres":
		c.remark(class, Refused, "Debezium looks for a class of this name and fails; it is %s. The relay reads PostgreSQL", postgresConnector)
		return nil
	case class.value == postgresConnector:
		c.remark(class, Implied, "the relay reads PostgreSQL")
		return nil
	case class.value == "":
		return &Error{File: class.file, Line: class.line, Column: class.column, Key: class.original, Message: "is empty; only " + postgresConnector + " is imported"}
	}
	message := fmt.Sprintf("%q is another connector; only %s is imported", class.value, postgresConnector)
	if strings.HasPrefix(class.value, "PostgresCdcSource") {
		message += "; this one is Confluent Cloud's, with keys of its own: write those of Debezium's own connector"
	}
	return &Error{File: class.file, Line: class.line, Column: class.column, Key: class.original, Message: message}
}

// get looks at a key without deciding its fate.
func (c *conversion) get(key string) (item, bool) {
	i, ok := c.byKey[key]
	if !ok {
		return item{}, false
	}
	return c.items[i], true
}

// take is get for a key whose remark the caller makes.
func (c *conversion) take(key string) (item, bool) {
	it, ok := c.get(key)
	if ok {
		c.done[key] = true
	}
	return it, ok
}

func (c *conversion) value(key string) string {
	it, _ := c.get(key)
	return it.value
}

func (c *conversion) flag(key string) bool {
	return strings.EqualFold(strings.TrimSpace(c.value(key)), "true")
}

// with gives the items under a prefix, in the order of the input.
func (c *conversion) with(prefix string) []item {
	var found []item
	for _, it := range c.items {
		if strings.HasPrefix(it.key, prefix) {
			found = append(found, it)
		}
	}
	return found
}

func (c *conversion) remark(it item, fate Fate, format string, args ...any) {
	c.done[it.key] = true
	c.remarks = append(c.remarks, Remark{Key: it.original, Fate: fate, Text: oneLine(fmt.Sprintf(format, args...)), File: it.file, Line: it.line})
}

// missing is a remark about a key that the input lacks.
func (c *conversion) missing(key string, fate Fate, format string, args ...any) {
	c.remarks = append(c.remarks, Remark{Key: key, Fate: fate, Text: oneLine(fmt.Sprintf(format, args...)), File: c.in.file})
}

// rank puts the connector's own keys first, then the worker's, then what is missing.
func (c *conversion) rank(r Remark) int {
	switch {
	case r.Line == 0:
		return 2
	case r.File == c.in.file:
		return 0
	}
	return 1
}

// indexOf tells keys of one line apart.
func (c *conversion) indexOf(r Remark) int {
	return slices.IndexFunc(c.items, func(it item) bool { return it.original == r.Key })
}

// rest gives every key that nobody has taken its fate from the list of options.
func (c *conversion) rest() {
	for _, it := range c.items {
		if c.done[it.key] {
			continue
		}
		fate, text := c.fateOf(it)
		c.remark(it, fate, "%s", text)
	}
}

// render writes the file: first what a person has to do, then the configuration,
// then what happened to every key.
func (c *conversion) render() []byte {
	var b strings.Builder
	writeComment(&b, "", fmt.Sprintf("Imported from %s (%s).", oneLine(c.in.file), c.in.form))
	c.summary(&b)
	for _, section := range []string{"postgres", "outbox", "kafka", "relay", "tracing", "pipeline"} {
		n := c.root.find(section)
		if n == nil {
			continue
		}
		b.WriteString("\n")
		n.write(&b, "")
	}
	c.writeOffer(&b)
	b.WriteString("\n# What became of each key:\n")
	for _, r := range c.remarks {
		where := ""
		if r.Line > 0 {
			where = fmt.Sprintf(" (%s:%d)", oneLine(r.File), r.Line)
		}
		writeComment(&b, "", fmt.Sprintf("%s%s: %s: %s", oneLine(r.Key), where, r.Fate, r.Text))
	}
	return []byte(b.String())
}

func (c *conversion) summary(b *strings.Builder) {
	for _, group := range []struct {
		fate  Fate
		title string
	}{
		{Refused, "Debezium refuses this as it is written"},
		{ToDo, "To do before the first run"},
		{NotCarried, "Not carried over"},
		{Offered, "Offered, and to be checked"},
	} {
		lines := slices.DeleteFunc(slices.Clone(c.remarks), func(r Remark) bool { return r.Fate != group.fate })
		if len(lines) == 0 {
			continue
		}
		writeComment(b, "", "")
		writeComment(b, "", group.title+":")
		for _, r := range lines {
			writeComment(b, "", fmt.Sprintf("- %s: %s", oneLine(r.Key), r.Text))
		}
	}
}
