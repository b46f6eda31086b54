package importer

import "strings"

// serverKey gives a key of Debezium Server the name that Kafka Connect has for it.
// Keys that have none keep theirs.
func serverKey(key string) string {
	for _, rule := range []struct{ prefix, instead string }{
		{"debezium.source.", ""},
		{"debezium.transforms", "transforms"},
		{"debezium.predicates", "predicates"},
		{"debezium.sink.kafka.producer.", "producer.override."},
	} {
		rest, ok := strings.CutPrefix(key, rule.prefix)
		if ok && (rest != "" || rule.instead == "transforms" || rule.instead == "predicates") && !strings.HasPrefix(rest, "offset.storage") {
			return rule.instead + rest
		}
	}
	return key
}

// profile removes Quarkus' %prod. from a key. counts is false for keys of other profiles, and for
// a key that %prod. overrides.
func (c *conversion) profile(it item) (name string, counts bool) {
	if !strings.HasPrefix(it.key, "%") {
		over, ok := c.in.get("%prod." + it.key)
		if ok {
			c.again(it, over)
		}
		return it.key, !ok
	}
	name, found := strings.CutPrefix(it.key, "%prod.")
	if !found {
		c.tell(it, NotNeeded, "is of another of Quarkus' profiles than prod, in which Debezium Server runs")
	}
	return name, found
}

// originalKey is the name in the file: of a variable, its own.
func (s *source) originalKey(key string) string {
	if s.form == ServerEnvironment {
		return strings.ToUpper(strings.ReplaceAll(key, ".", "_"))
	}
	return key
}

// The classes that debezium.format.* stand for.
var formats = map[string]string{
	"json":          jsonConverter,
	"jsonbytearray": jsonConverter,
	"simplestring":  stringConverter,
	"binary":        binaryDataConverter,
}
