package importer

import (
	"regexp"
	"slices"
	"strings"
)

// Complaint is what the relay's own loader has against a line of the YAML.
type Complaint struct {
	Key     string // outbox[0].debezium.transforms.outbox.type, kafka.brokers
	Message string // holds no secret
}

// check turns what the loader refuses into remarks of the keys that it came from.
// A key with a louder remark keeps that.
func (c *conversion) check() {
	if c.options.Check == nil {
		return
	}
	seen := map[string]bool{}
	for _, complaint := range c.options.Check(c.render()) {
		key := complaint.Key
		if _, option, ok := strings.Cut(key, "].debezium."); ok {
			key = option
		} else if _, member, ok := strings.Cut(key, "]."); ok {
			key = "outbox[]." + member
		}
		if !seen[key+"\x00"+complaint.Message] {
			seen[key+"\x00"+complaint.Message] = true
			c.complain(key, oneLine(complaint.Message))
		}
	}
}

// listed is the end of a key that names one of a list.
var listed = regexp.MustCompile(`\[\d+\]$`)

func (c *conversion) complain(key, message string) {
	key = listed.ReplaceAllString(key, "") // kafka.brokers[1] comes from the one key that holds the list
	if key == "postgres.url" && c.badAddress {
		return // a key of it has been told
	}
	name := key
	if it, ok := c.get(key); ok {
		name = it.original
	}
	fate := NotCarried
	if key == "postgres.slot" || key == "postgres.publication" { // the server takes what the relay takes
		fate = Refused
	}
	told := false
	parts := c.parts(key, message)
	for i := range c.remarks {
		r := &c.remarks[i]
		if r.Line == 0 || r.Key != name && r.Text != key || len(parts) > 0 && !slices.Contains(parts, r.Key) {
			continue
		}
		switch r.Fate {
		case Carried:
			r.Fate, r.Text, told = fate, "the relay refuses it: "+message, true
		case ToDo, NotCarried, Refused:
			told = true
		default:
		}
	}
	if !told {
		c.missing(key, NotCarried, "the relay refuses it: %s", message)
	}
}

// parts are the keys that a message about the URL names; none: it may be about any.
func (c *conversion) parts(key, message string) []string {
	var named []string
	if key != "postgres.url" {
		return nil
	}
	for _, part := range []string{"sslmode", "sslrootcert", "sslcert", "sslkey"} {
		if it, ok := c.get("database." + part); ok && strings.Contains(message, part+" ") {
			named = append(named, it.original)
		}
	}
	return named
}
