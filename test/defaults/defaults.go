// Package defaults holds what comments say of defaults against the values that fields have.
package defaults

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"
)

// Compare reads the comments of a struct in a Go file and holds each "Defaults to VALUE"
// against the field of filled, a value of that struct with its defaults set. VALUE is a
// duration, a size such as 8 MiB, a number, a quoted text, or a name that names explains; what
// begins with "the" is a rule and left out. A comment that begins with "A and B" is of two
// fields and has two values.
//
// It returns how many defaults it compared: a test that expects some notices when the
// comments are written in another way.
func Compare(t testing.TB, file, structName string, filled any, names map[string]any) (compared int) {
	t.Helper()
	fields := reflect.ValueOf(filled)
	for field, text := range said(t, file, structName) {
		want, err := parse(text, names)
		if err != nil {
			t.Errorf("%s.%s: %v", structName, field, err)
			continue
		}
		compared++
		if got := fields.FieldByName(field).Interface(); fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("%s.%s: the comment says %s, and it is %v", structName, field, text, got)
		}
	}
	return compared
}

var (
	statement = regexp.MustCompile(`\b[Dd]efaults?(?: to)? ([^,;]+?)(?:\.(?:\s|$)|$)`)
	pair      = regexp.MustCompile(`^(\w+) and (\w+) `)
)

// said are the texts of defaults by field.
func said(t testing.TB, file, structName string) map[string]string {
	t.Helper()
	parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ParseComments)
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]string{}
	ast.Inspect(parsed, func(n ast.Node) bool {
		spec, ok := n.(*ast.TypeSpec)
		if !ok || spec.Name.Name != structName {
			return true
		}
		body, ok := spec.Type.(*ast.StructType)
		if !ok {
			return true
		}
		for _, field := range body.Fields.List {
			if len(field.Names) > 0 {
				note(found, field)
			}
		}
		return false
	})
	return found
}

func note(found map[string]string, field *ast.Field) {
	text := strings.Join(strings.Fields(field.Doc.Text()+" "+field.Comment.Text()), " ")
	m := statement.FindStringSubmatch(text)
	if m == nil || strings.HasPrefix(m[1], "the ") {
		return
	}
	fields := []string{field.Names[0].Name}
	if len(field.Names) > 1 {
		fields = append(fields, field.Names[1].Name)
	} else if both := pair.FindStringSubmatch(text); both != nil {
		fields = both[1:]
	}
	values := strings.Split(m[1], " and ")
	for i, name := range fields {
		found[name] = values[min(i, len(values)-1)]
	}
}

var size = regexp.MustCompile(`^(\d+) (KiB|MiB)$`)

func parse(text string, names map[string]any) (any, error) {
	if v, ok := names[text]; ok {
		return v, nil
	}
	if d, err := time.ParseDuration(text); err == nil {
		return d, nil
	}
	if n, err := strconv.Atoi(text); err == nil {
		return n, nil
	}
	if s, err := strconv.Unquote(text); err == nil {
		return s, nil
	}
	if m := size.FindStringSubmatch(text); m != nil {
		n, err := strconv.Atoi(m[1])
		return n << map[string]int{"KiB": 10, "MiB": 20}[m[2]], err
	}
	return nil, fmt.Errorf("the comment's default %q is no value that is understood; quote a text", text)
}
