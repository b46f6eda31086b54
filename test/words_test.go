package test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode"
)

// glossary are the words that docs/glossary.md explains.
func glossary(t *testing.T) []string {
	t.Helper()
	var words []string
	for _, row := range regexp.MustCompile(`(?m)^\| ([^|]+) \| [^|]+ \|$`).FindAllStringSubmatch(read(t, "docs/glossary.md"), -1) {
		if row[1] != "Word" {
			words = append(words, row[1])
		}
	}
	if len(words) < 25 {
		t.Fatalf("docs/glossary.md explains %d words only", len(words))
	}
	return words
}

// A word that no page uses needs no explanation.
func TestGlossary_ExplainsWordsThatPagesUse(t *testing.T) {
	var pages strings.Builder
	for _, page := range documents(t) {
		if page != "docs/glossary.md" {
			pages.WriteString(strings.ToLower(read(t, page)))
		}
	}
	words := glossary(t)
	if !slices.IsSortedFunc(words, func(a, b string) int { return strings.Compare(strings.ToLower(a), strings.ToLower(b)) }) {
		t.Error("docs/glossary.md is not in alphabetical order")
	}
	for _, word := range words {
		if !regexp.MustCompile(`\b` + regexp.QuoteMeta(strings.ToLower(word)) + `s?\b`).MatchString(pages.String()) {
			t.Errorf("no page uses %q, which docs/glossary.md explains", word)
		}
	}
}

// replaced are words of the source that the field has others for, and those others. A
// name has one where one of its words is it: guilty and theGuilty, not guiltyish.
var replaced = map[string]string{
	"haste": "flush delay", "hasten": "flush delay", "breather": "flush delay", "eager": "flush delay",
	"doze": "SO_RCVLOWAT, read pause", "loud": "read pause",
	"tenure": "producer session", "parcel": "transaction batch", "flight": "in-flight batch",
	"lane": "partition queue", "wish": "explicit partition",
	"court": "bisect", "convict": "rejected record", "guilty": "rejected record", "innocent": "neighbour",
	"condemned": "rejected record", "sentence": "rejected record",
	"heirs": "child tables", "phantoms": "records without a row", "twin": "second relay", "witness": "comparison", "intent": "promised position",
}

// replacedWhole are names that say too little by themselves; within a longer name their
// words are everybody's.
var replacedWhole = map[string]string{
	"board": "status", "hard": "delivery context", "piece": "send", "mark": "record context", "Mark": "position",
	"Look": "what is looked up", "Stand": "what is looked up", "Find": "what is looked up", "Newest": "what is looked up", "Unused": "what is looked up", "Cast": "what is looked up",
}

// oneMeaning are verbs that name a function in one package at most.
var oneMeaning = []string{"keep", "settle", "fill", "place", "look", "judge", "hold"}

// TestWords_OfTheSourceAreThoseOfTheField: names are the field's words.
func TestWords_OfTheSourceAreThoseOfTheField(t *testing.T) {
	found := oldNames(t)
	for _, name := range slices.Sorted(maps.Keys(found)) {
		t.Errorf("%s (%s): the field says %s", name, found[name].at, found[name].better)
	}
}

type oldName struct{ at, better string }

// oldNames are the names that the source declares and that have a better word. They stand
// without their package, so that code may move.
func oldNames(t *testing.T) map[string]oldName {
	t.Helper()
	found := map[string]oldName{}
	verbs := map[string]map[string]string{} // verb → package → place
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() && path != root && (strings.HasPrefix(entry.Name(), ".") || entry.Name() == "testdata" || path == filepath.Join(root, "test") || path == filepath.Join(root, "examples")) {
			return fs.SkipDir
		}
		if !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return nil
		}
		set := token.NewFileSet()
		file, err := parser.ParseFile(set, path, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		folder, _ := filepath.Rel(root, filepath.Dir(path))
		for _, ident := range declarations(file) {
			if better := betterWord(ident.Name); better != "" {
				found[ident.Name] = oldName{set.Position(ident.Pos()).String(), better}
			}
		}
		for _, declaration := range file.Decls {
			if f, ok := declaration.(*ast.FuncDecl); ok && slices.Contains(oneMeaning, strings.ToLower(f.Name.Name)) {
				verb := strings.ToLower(f.Name.Name)
				if verbs[verb] == nil {
					verbs[verb] = map[string]string{}
				}
				verbs[verb][filepath.ToSlash(folder)+" func "+f.Name.Name] = set.Position(f.Pos()).String()
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for verb, places := range verbs {
		for name, at := range places {
			if len(places) > 1 {
				_, name, _ = strings.Cut(name, " ")
				found[name] = oldName{at, "one meaning of " + verb + ", in one package"}
			}
		}
	}
	return found
}

// declarations are the names that a file declares: functions, types, fields, parameters,
// constants and variables.
func declarations(file *ast.File) (names []*ast.Ident) {
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncDecl:
			names = append(names, n.Name)
		case *ast.TypeSpec:
			names = append(names, n.Name)
		case *ast.ValueSpec:
			names = append(names, n.Names...)
		case *ast.Field:
			names = append(names, n.Names...)
		case *ast.AssignStmt:
			if n.Tok == token.DEFINE {
				for _, left := range n.Lhs {
					if ident, ok := left.(*ast.Ident); ok {
						names = append(names, ident)
					}
				}
			}
		}
		return true
	})
	return names
}

func betterWord(name string) string {
	if better, ok := replacedWhole[name]; ok {
		return better
	}
	for _, word := range wordsOf(name) {
		if better, ok := replaced[word]; ok {
			return better
		}
	}
	return ""
}

// wordsOf divides a name at its capitals: inFlightBytes is in, flight, bytes. Then it
// puts the one pair together that the field writes so: in flight is no flight.
func wordsOf(name string) []string {
	var words []string
	begin := 0
	for i, r := range name {
		if i > begin && (unicode.IsUpper(r) || r == '_') {
			words = append(words, strings.ToLower(name[begin:i]))
			begin = i
		}
	}
	words = append(words, strings.ToLower(name[begin:]))
	for i := 1; i < len(words); i++ {
		if words[i-1] == "in" && words[i] == "flight" {
			words[i] = "in-flight"
		}
	}
	return words
}

// riddles are phrases that a reader has to decode, in pages and in what the program prints. Write
// subject, verb, object.
var riddles = regexp.MustCompile(`(?i)what becomes of|in the place of|\b(made|begins?|starts?|opens?) anew\b|\bcomes? again\b|\b(is|are) told (of|by|with|that)\b|\blets? go of\b|\ba second's\b`)

func TestWords_SentencesAreReadOnce(t *testing.T) {
	for _, page := range documents(t) {
		for i, line := range strings.Split(read(t, page), "\n") {
			if found := riddles.FindString(line); found != "" {
				t.Errorf("%s:%d: %q: say it plainly", page, i+1, found)
			}
		}
	}
	sources(t, func(folder, path string) {
		if strings.HasPrefix(folder, "test") || strings.HasPrefix(folder, "demo") || strings.HasPrefix(folder, "sandbox") {
			return
		}
		set := token.NewFileSet()
		file, err := parser.ParseFile(set, path, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(file, func(n ast.Node) bool {
			if text, ok := n.(*ast.BasicLit); ok && text.Kind == token.STRING {
				if found := riddles.FindString(text.Value); found != "" {
					t.Errorf("%s: %q: say it plainly", set.Position(text.Pos()), found)
				}
			}
			return true
		})
	})
}

func TestWords_AreFoundWithinNames(t *testing.T) {
	for name, bad := range map[string]bool{
		"guilty": true, "theGuilty": true, "GuiltyRecord": true, "guiltyish": false, "inFlight": false, "InFlightBytes": false, "flight": true, "Flights": false, "board": true, "dashboard": false,
		"onBoard": false, "hard": true, "hardLimit": false, "Look": true, "look": false, "lookUp": false, "intent": true, "intentOf": true, "planeOf": false, "twin": true,
	} {
		if got := betterWord(name) != ""; got != bad {
			t.Errorf("%s is an old word: %t, want %t", name, got, bad)
		}
	}
}
