package config

import (
	"errors"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/cdc-relay/cdc-relay/config/document"
	"github.com/cdc-relay/cdc-relay/wording"
)

// applyDefaults sets every key below v that has a default.
func (l *loader) applyDefaults(v reflect.Value) {
	keys := keysOf(v.Type())
	for _, k := range keys {
		if k.section() {
			l.applyDefaults(v.Field(k.index))
		} else if k.def != "" {
			if err := setText(v.Field(k.index), k, k.def); err != nil {
				panic(fmt.Sprintf("default of %s: %v", k.name, err)) //nolint:forbidigo // a tag of our own is wrong; every test would see it
			}
		}
	}
}

// bindStruct takes up a mapping. A key without a value keeps its default.
func (l *loader) bindStruct(n *document.Node, v reflect.Value, path string) {
	if n.Kind == document.Null {
		return
	}
	if n.Kind != document.Map {
		l.cfg.doc.Hide(n)
		l.fail(l.at(n.Line, n.Column), path, fmt.Sprintf("is %v; allowed: keys, one a line, indented below it", n.Kind))
		return
	}
	keys := keysOf(v.Type())
	// Values that may not be shown are hidden before the first message about
	// this mapping, because they may stand on the same line.
	for _, e := range n.Entries {
		if k, ok := findKey(keys, e.Name); !ok || k.hidden() || mayHoldCredentials(e.Value) {
			l.cfg.doc.Hide(e.Value)
		}
	}
	seen := map[string]int{}
	for _, e := range n.Entries {
		path, at := join(path, e.Name), l.at(e.Line, e.Column)
		if first, twice := seen[e.Name]; twice {
			l.cfg.doc.Hide(e.Value)
			l.fail(at, path, fmt.Sprintf("is given twice, first in line %d", first))
			continue
		}
		seen[e.Name] = e.Line
		k, ok := findKey(keys, e.Name)
		if !ok {
			l.fail(at, path, unknownKey(e.Name, keys))
			continue
		}
		l.bindKey(e, k, v.Field(k.index), path)
	}
}

// hasUserinfo says of a URL that it may have a password in it, where none belongs.
func hasUserinfo(text string) bool {
	_, rest, isURL := strings.Cut(text, "://")
	return isURL && strings.Contains(rest, "@")
}

// mayHoldCredentials says of a value that something stands before an @ in it, as a password does
// in an address, or behind the ? of a URL, as a token does. It is decided before the value is
// understood, so it takes any text.
func mayHoldCredentials(n *document.Node) bool {
	_, rest, isURL := strings.Cut(n.Text, "://")
	return strings.Contains(n.Text, "@") || isURL && strings.Contains(rest, "?") || slices.ContainsFunc(n.Items, mayHoldCredentials)
}

// withoutCredentials is an address as a message may quote it.
func withoutCredentials(address string) string {
	if i := strings.LastIndexByte(address, '@'); i >= 0 {
		return masked + address[i:]
	}
	return address
}

func unknownKey(name string, keys []key) string {
	names := make([]string, len(keys))
	for i, k := range keys {
		names[i] = k.name
	}
	return "unknown key; " + wording.DidYouMean(name, names)
}

func (l *loader) bindKey(e document.Entry, k key, v reflect.Value, path string) {
	at := l.at(e.Value.Line, e.Value.Column)
	switch {
	case e.Value.Kind == document.Null:
		l.cfg.blank[path] = l.at(e.Line, e.Column)
	case k.section():
		l.cfg.origins[path] = l.at(e.Line, e.Column)
		l.bindStruct(e.Value, v, path)
	case k.typ == outboxType:
		l.cfg.origins[path] = l.at(e.Line, e.Column)
		l.bindOutbox(e.Value, path)
	case k.typ == textsType:
		l.bindTexts(e.Value, v, path)
	case k.typ == pairsType || k.typ == templatePairsType:
		l.bindPairs(e.Value, k, v, path)
	case e.Value.Kind != document.Text:
		l.cfg.doc.Hide(e.Value)
		l.fail(at, path, fmt.Sprintf("is %v; allowed: %s", e.Value.Kind, form(k)))
	default:
		if l.skips(k, path, e.Value.Text) {
			return
		}
		text, ok := l.text(e.Value, k.typ == templateType, path)
		if !ok {
			return
		}
		l.cfg.origins[path] = at
		if err := setText(v, k, text); err != nil {
			l.fail(at, path, err.Error())
		}
	}
}

func (l *loader) bindOutbox(n *document.Node, path string) {
	if n.Kind != document.List {
		l.cfg.doc.Hide(n)
		l.fail(l.at(n.Line, n.Column), path, fmt.Sprintf("is %v; allowed: a list, each entry beginning with `- table:` or `- message_prefix:`", n.Kind))
		return
	}
	for i, item := range n.Items {
		path := fmt.Sprintf("%s[%d]", path, i)
		v := l.addOutbox()
		l.cfg.origins[path] = l.at(item.Line, item.Column)
		l.bindStruct(item, v, path)
	}
}

// addOutbox appends a table with the defaults and returns it.
func (l *loader) addOutbox() reflect.Value {
	s := &l.cfg.settings
	s.Outbox = append(s.Outbox, outboxSettings{})
	v := reflect.ValueOf(&s.Outbox[len(s.Outbox)-1]).Elem()
	l.applyDefaults(v)
	return v
}

// bindTexts takes a list, or a text with commas, which is what one variable can hold.
func (l *loader) bindTexts(n *document.Node, v reflect.Value, path string) {
	l.cfg.origins[path] = l.at(n.Line, n.Column)
	var texts []string
	switch n.Kind {
	case document.Text:
		if text, ok := l.text(n, false, path); ok {
			texts = splitTexts(text)
		}
	case document.List:
		for i, item := range n.Items {
			path := fmt.Sprintf("%s[%d]", path, i)
			l.cfg.origins[path] = l.at(item.Line, item.Column)
			if item.Kind != document.Text {
				l.cfg.doc.Hide(item)
				l.fail(l.at(item.Line, item.Column), path, fmt.Sprintf("is %v; allowed: text", item.Kind))
				continue
			}
			if text, ok := l.text(item, false, path); ok {
				texts = append(texts, text)
			}
		}
	default:
		l.cfg.doc.Hide(n)
		l.fail(l.at(n.Line, n.Column), path, fmt.Sprintf("is %v; allowed: a list of texts", n.Kind))
	}
	v.Set(reflect.ValueOf(texts))
}

func (l *loader) bindPairs(n *document.Node, k key, v reflect.Value, path string) {
	if n.Kind != document.Map {
		l.cfg.doc.Hide(n)
		l.fail(l.at(n.Line, n.Column), path, fmt.Sprintf("is %v; allowed: %s", n.Kind, form(k)))
		return
	}
	l.cfg.origins[path] = l.at(n.Line, n.Column)
	list := make([]pair, 0, len(n.Entries))
	given := make(map[string]bool, len(n.Entries))
	for _, e := range n.Entries {
		path, at := join(path, e.Name), l.at(e.Line, e.Column)
		if given[e.Name] {
			l.fail(at, path, "is given twice")
			continue
		}
		if e.Value.Kind > document.Text {
			l.fail(l.at(e.Value.Line, e.Value.Column), path, fmt.Sprintf("is %v; allowed: text", e.Value.Kind))
			continue
		}
		l.cfg.origins[path] = l.at(e.Value.Line, e.Value.Column)
		if text, ok := l.text(e.Value, k.typ == templatePairsType, path); ok {
			list, given[e.Name] = append(list, pair{e.Name, text}), true
		}
	}
	v.Set(reflect.ValueOf(list).Convert(v.Type()))
}

// text is the node's text, expanded unless its ${…} belong to the router.
func (l *loader) text(n *document.Node, verbatim bool, path string) (string, bool) {
	if verbatim {
		return n.Text, true
	}
	text, err := l.expand.expand(n.Text)
	if err != nil {
		l.fail(l.at(n.Line, n.Column), path, err.Error())
		return "", false
	}
	return text, true
}

// skips leaves a secret out that nobody will ask for and that is not to be had.
// Marked as failed, it is not said to be missing.
func (l *loader) skips(k key, path, text string) bool {
	if !l.unread || !k.hidden() || strings.HasPrefix(path, "http.") {
		return false
	}
	if _, err := l.expand.expand(text); err == nil {
		return false
	}
	l.markFailed(path)
	return true
}

func (l *loader) at(line, column int) origin {
	return origin{source: l.cfg.Path, line: line, column: column}
}

// setText reads a value of one word. Errors quote the text, so a type that may
// not be shown never fails.
func setText(v reflect.Value, k key, text string) error {
	if len(k.enum) > 0 {
		return setEnum(v, k, text)
	}
	switch k.typ {
	case durationType:
		d, err := parseDuration(text)
		v.SetInt(int64(d))
		return err
	case ageType:
		a, err := parseAge(text)
		v.SetInt(int64(a))
		return err
	case sizeType:
		s, err := parseSize(text)
		v.SetInt(int64(s))
		return err
	}
	switch k.typ.Kind() {
	case reflect.String:
		v.SetString(text)
	case reflect.Bool:
		if text != "true" && text != "false" {
			return fmt.Errorf("%q is not allowed; allowed: %s", text, form(k))
		}
		v.SetBool(text == "true")
	case reflect.Int:
		i, err := strconv.ParseInt(text, 10, 32)
		if err != nil {
			return fmt.Errorf("%q is not allowed; allowed: %s", text, form(k))
		}
		v.SetInt(i)
	case reflect.Float64:
		f, err := strconv.ParseFloat(text, 64)
		if err != nil || math.IsNaN(f) || math.IsInf(f, 0) {
			return fmt.Errorf("%q is not allowed; allowed: %s", text, form(k))
		}
		v.SetFloat(f)
	default:
		return errors.New("cannot be set from text")
	}
	return nil
}

func setEnum(v reflect.Value, k key, text string) error {
	allowed := strings.Join(k.enum, ", ")
	if text == "" && k.def == "" || slices.Contains(k.enum, text) {
		v.SetString(text)
		return nil
	}
	return fmt.Errorf("%q is not allowed; allowed: %s", text, allowed)
}

// form says in words what a key takes.
func form(k key) string {
	switch {
	case len(k.enum) > 0:
		return strings.Join(k.enum, ", ")
	case k.typ == durationType:
		return durationForm
	case k.typ == ageType:
		return ageForm
	case k.typ == sizeType:
		return sizeForm
	case k.typ == textsType:
		return "a list of texts"
	case k.typ == pairsType, k.typ == templatePairsType:
		return "names with one text each"
	case k.typ.Kind() == reflect.Bool:
		return "true, false"
	case k.typ.Kind() == reflect.Int:
		return "a whole number"
	case k.typ.Kind() == reflect.Float64:
		return "a number such as 0.05"
	}
	return "text"
}

func splitTexts(text string) []string {
	var texts []string
	for part := range strings.SplitSeq(text, ",") {
		if part = strings.TrimSpace(part); part != "" {
			texts = append(texts, part)
		}
	}
	return texts
}
