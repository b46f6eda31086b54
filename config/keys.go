package config

import (
	"reflect"
	"slices"
	"strings"
	"sync"

	"github.com/cdc-relay/cdc-relay/config/document"
)

// key is one entry of the tree of settings.
type key struct {
	name  string
	index int // field of its struct
	typ   reflect.Type
	desc  string
	def   string
	enum  []string
	empty bool // an empty environment variable counts
}

var (
	secretType        = reflect.TypeFor[secret]()
	dsnType           = reflect.TypeFor[dsn]()
	durationType      = reflect.TypeFor[duration]()
	ageType           = reflect.TypeFor[age]()
	sizeType          = reflect.TypeFor[size]()
	templateType      = reflect.TypeFor[template]()
	pairsType         = reflect.TypeFor[pairs]()
	templatePairsType = reflect.TypeFor[templatePairs]()
	textsType         = reflect.TypeFor[[]string]()
	outboxType        = reflect.TypeFor[[]outboxSettings]()
)

var knownKeys sync.Map // of a struct's type: its []key

// keysOf lists the keys of a struct in the order of the file. The list is shared.
func keysOf(t reflect.Type) (keys []key) {
	if known, ok := knownKeys.Load(t); ok {
		return known.([]key)
	}
	defer func() { knownKeys.Store(t, keys) }()
	for i := range t.NumField() {
		f := t.Field(i)
		keys = append(keys, key{
			name: f.Tag.Get("yaml"), index: i, typ: f.Type,
			desc: f.Tag.Get("desc"), def: f.Tag.Get("default"),
			enum:  splitList(f.Tag.Get("enum")),
			empty: f.Tag.Get("empty") == "ok",
		})
	}
	return keys
}

func (k key) section() bool { return k.typ.Kind() == reflect.Struct }

// hidden reports whether the value must not be shown.
func (k key) hidden() bool { return k.typ == secretType || k.typ == dsnType }

func findKey(keys []key, name string) (key, bool) {
	i := slices.IndexFunc(keys, func(k key) bool { return k.name == name })
	if i < 0 {
		return key{}, false
	}
	return keys[i], true
}

// eachKey visits every key below t that is no section; the path of a table's
// key is outbox.<key>.
func eachKey(t reflect.Type, prefix string, visit func(path string, k key)) {
	keys := keysOf(t)
	for _, k := range keys {
		path := join(prefix, k.name)
		switch {
		case k.section():
			eachKey(k.typ, path, visit)
		case k.typ == outboxType:
			eachKey(k.typ.Elem(), path, visit)
		default:
			visit(path, k)
		}
	}
}

func join(prefix, name string) string {
	if prefix == "" {
		return name
	}
	return prefix + "." + name
}

func splitList(s string) []string {
	if s == "" {
		return nil
	}
	return strings.Split(s, ",")
}

// harmless reports whether no key of that name holds something to hide, wherever in
// the tree it stands.
func harmless(name string) bool {
	known, hidden := false, false
	eachKey(reflect.TypeFor[settings](), "", func(path string, k key) {
		for part := range strings.SplitSeq(path, ".") {
			known = known || part == name
		}
		hidden = hidden || k.name == name && k.hidden()
	})
	return known && !hidden
}

// documentKeys is the tree of keys as the file's parser takes it.
func documentKeys() document.Keys {
	return document.Keys{Tree: branchOf(reflect.TypeFor[settings]()), Harmless: harmless}
}

func branchOf(t reflect.Type) *document.Branch {
	b := &document.Branch{Keys: map[string]*document.Branch{}}
	keys := keysOf(t)
	for _, k := range keys {
		switch {
		case k.section():
			b.Keys[k.name] = branchOf(k.typ)
		case k.typ == outboxType:
			b.Keys[k.name] = &document.Branch{List: branchOf(k.typ.Elem())}
		case k.typ == textsType:
			b.Keys[k.name] = &document.Branch{List: &document.Branch{}}
		default:
			b.Keys[k.name] = &document.Branch{Free: k.typ == pairsType || k.typ == templatePairsType}
		}
	}
	return b
}
