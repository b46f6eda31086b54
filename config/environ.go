package config

import (
	"errors"
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/cdc-relay/cdc-relay/config/document"
	"github.com/cdc-relay/cdc-relay/wording"
)

const envPrefix = "CDC_RELAY_"

// plainVariables are what people set by habit. They give way to everything but
// the default, because they may be meant for another program.
var plainVariables = map[string]string{"postgres.url": "POSTGRES_URL", "kafka.brokers": "KAFKA_BROKERS"}

// ownVariables begin with the prefix and are no keys.
var ownVariables = []string{envPrefix + "CONFIG", envPrefix + "REQUIRE"}

// injected matches what Kubernetes puts into every container for a service
// whose name begins with cdc-relay.
var injected = regexp.MustCompile(`_(SERVICE_HOST|SERVICE_PORT(_.*)?|PORT|PORT_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)$`)

func variable(path string) string {
	return envPrefix + strings.ToUpper(strings.ReplaceAll(path, ".", "_"))
}

// loadEnvironment takes up the variables in the order of the keys.
func (l *loader) loadEnvironment() {
	known := slices.Clone(ownVariables)
	eachKey(reflect.TypeFor[settings](), "", func(path string, k key) {
		name := variable(path)
		known = append(known, name)
		if text, ok := l.env[name]; ok && (text != "" || k.empty) {
			l.assign(path, text, origin{source: "env " + name})
		}
		plain := plainVariables[path]
		if text := l.env[plain]; plain != "" && text != "" && !l.cfg.Given(path) {
			l.assign(path, text, origin{source: "env " + plain})
		}
	})
	for _, name := range l.names {
		if !strings.HasPrefix(name, envPrefix) || slices.Contains(known, name) {
			continue
		}
		if !injected.MatchString(name) {
			l.warn("environment variable %s is not a setting and is ignored; %s", name, didYouMeanVariable(name, known))
		}
	}
}

func didYouMeanVariable(name string, known []string) string {
	parts := make([]string, len(known))
	for i, k := range known {
		parts[i] = strings.ToLower(strings.TrimPrefix(k, envPrefix))
	}
	if near, ok := wording.Nearest(strings.TrimPrefix(name, envPrefix), parts); ok {
		return "did you mean " + envPrefix + strings.ToUpper(near) + "?"
	}
	return "settings are " + envPrefix + " and the path of a key, as in " + variable("postgres.url")
}

// flagSource is the origin of what a flag sets.
const flagSource = "--set"

// loadFlag takes up one --set.
func (l *loader) loadFlag(assignment string) {
	path, text, found := strings.Cut(assignment, "=")
	if !found {
		// The whole may be a secret that lost its key.
		l.fail(origin{source: flagSource}, "", "has no =; allowed: key=value, for example postgres.slot=orders")
		return
	}
	l.assign(path, text, origin{source: flagSource})
}

// assign sets one key from text outside the file. The path may leave out the
// number of the only table, and go into a mapping with free names.
func (l *loader) assign(path, text string, at origin) {
	t, err := l.find(path)
	if err != nil {
		l.fail(at, path, err.Error())
		return
	}
	if at.source == flagSource {
		at.assigned = t.shown(path, text)
	}
	if t.entry == "" {
		l.clear(t.path)
	}
	l.cfg.origins[t.path] = at
	switch {
	case t.entry != "":
		l.cfg.origins[join(t.path, t.entry)] = at
		setEntry(t.value, t.entry, text)
	case t.key.typ == textsType:
		err = setTexts(t.value, text)
	case t.key.typ == pairsType || t.key.typ == templatePairsType:
		err = setPairs(t.value, text)
	default:
		err = setText(t.value, t.key, text)
	}
	if err != nil {
		l.fail(at, t.path, err.Error())
	}
}

// clear forgets where the parts of a replaced value came from.
func (l *loader) clear(path string) {
	for known := range l.cfg.origins {
		if strings.HasPrefix(known, path+".") || strings.HasPrefix(known, path+"[") {
			delete(l.cfg.origins, known)
		}
	}
}

// target is the place in the tree that a path names.
type target struct {
	path  string // with the table's number
	key   key
	value reflect.Value
	entry string // name inside a mapping with free names; empty: the whole key
}

// mostShown bounds the text of a value in its place.
const mostShown = 60

// shown is the assignment for errors, without a value that is or may be a secret.
func (t *target) shown(path, text string) string {
	if t.key.hidden() || slices.Contains([]string{"password_command", "debezium", "extensions"}, t.key.name) || strings.Contains(text, "@") {
		text = "***"
	}
	if cut := []rune(text); len(cut) > mostShown {
		text = string(cut[:mostShown]) + "…"
	}
	return flagSource + " " + path + "=" + text
}

var tableNumber = regexp.MustCompile(`^outbox(?:\[(\d+)\]|\.(\d+))(?:\.|$)`)

func (l *loader) find(path string) (target, error) {
	v, done, rest := reflect.ValueOf(&l.cfg.settings).Elem(), "", path
	for {
		keys := keysOf(v.Type())
		if m := tableNumber.FindStringSubmatch(rest); m != nil && done == "" {
			rest = "outbox." + rest[len(m[0]):]
			element, at, err := l.table(m[1] + m[2])
			if err != nil {
				return target{}, err
			}
			v, done, rest = element, at, strings.TrimPrefix(rest, "outbox.")
			continue
		}
		name, below, deeper := strings.Cut(rest, ".")
		k, ok := findKey(keys, name)
		if !ok {
			return target{}, errors.New(unknownPath(done, name, keys))
		}
		done = join(done, name)
		switch {
		case k.typ == outboxType && deeper:
			element, at, err := l.table("")
			if err != nil {
				return target{}, err
			}
			v, done, rest = element, at, below
		case k.section() && deeper:
			v, rest = v.Field(k.index), below
		case k.section() || k.typ == outboxType:
			return target{}, errors.New("is a section; name one of its keys")
		case !deeper:
			return target{path: done, key: k, value: v.Field(k.index)}, nil
		case k.typ == pairsType || k.typ == templatePairsType:
			return target{path: done, key: k, value: v.Field(k.index), entry: below}, nil
		default:
			return target{}, fmt.Errorf("unknown key; %s has no keys below it", done)
		}
	}
}

// unknownPath says what was meant by a name below done: one that is near, or a key of
// that name elsewhere.
func unknownPath(done, name string, keys []key) string {
	name, _, _ = strings.Cut(name, "[")
	names := make([]string, len(keys))
	for i, k := range keys {
		names[i] = k.name
	}
	if near, ok := wording.Nearest(name, names); ok {
		return "unknown key; did you mean " + join(done, near) + "?"
	}
	if paths := Named(name); len(paths) > 0 {
		return "unknown key; did you mean " + strings.Join(paths, " or ") + "?"
	}
	return unknownKey(name, keys)
}

// table finds a table by its number; the empty number is the only one. The
// number after the last one makes a new table.
func (l *loader) table(number string) (reflect.Value, string, error) {
	count := len(l.cfg.settings.Outbox)
	i := 0
	if number != "" {
		var err error
		if i, err = strconv.Atoi(number); err != nil || i > count {
			return reflect.Value{}, "", fmt.Errorf("there is no table %s; there are %d, counted from 0", number, count)
		}
	} else if count > 1 {
		return reflect.Value{}, "", fmt.Errorf("there are %d tables; name one, as in outbox[0]", count)
	}
	path := fmt.Sprintf("outbox[%d]", i)
	if i == count {
		return l.addOutbox(), path, nil
	}
	return reflect.ValueOf(&l.cfg.settings.Outbox[i]).Elem(), path, nil
}

func setTexts(v reflect.Value, text string) error {
	texts := splitTexts(text)
	if strings.HasPrefix(text, "[") {
		n, err := document.ParseYAML(text)
		if err != nil || n.Kind != document.List {
			return errors.New("is not a list; allowed: a,b or [a, b]")
		}
		texts = nil
		for _, item := range n.Items {
			if item.Kind != document.Text {
				return errors.New("is not a list of texts; allowed: a,b or [a, b]")
			}
			texts = append(texts, item.Text)
		}
	}
	v.Set(reflect.ValueOf(texts))
	return nil
}

func setPairs(v reflect.Value, text string) error {
	var list []pair
	for _, part := range splitTexts(text) {
		name, value, found := strings.Cut(part, "=")
		if !found {
			return errors.New("is not a list of pairs; allowed: name=value,name=value")
		}
		list = append(list, pair{strings.TrimSpace(name), strings.TrimSpace(value)})
	}
	v.Set(reflect.ValueOf(list).Convert(v.Type()))
	return nil
}

// setEntry replaces or appends one entry.
func setEntry(v reflect.Value, name, text string) {
	list := slices.Clone(v.Convert(reflect.TypeFor[[]pair]()).Interface().([]pair))
	i := slices.IndexFunc(list, func(p pair) bool { return p.Name == name })
	if i < 0 {
		list = append(list, pair{name, text})
	} else {
		list[i].Value = text
	}
	v.Set(reflect.ValueOf(list).Convert(v.Type()))
}
