package test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestArchitecture_NamesOnItsPagesExist: where a page about the source writes Type.Member or
// package.Name, there is one. Words with a dot that are neither are left alone.
func TestArchitecture_NamesOnItsPagesExist(t *testing.T) {
	members := namesByOwner(t)
	pages := []string{"ARCHITECTURE.md", "checkpoint/doc.go", "relay/doc.go", "relay/delivery/doc.go", "replication/doc.go", "router/doc.go", "sink/doc.go", "sink/kafka/doc.go"}
	decisions, err := filepath.Glob(filepath.Join(root, "docs/adr/0*.md"))
	if err != nil || len(decisions) == 0 {
		t.Fatalf("no decision records: %v", err)
	}
	for _, path := range decisions {
		pages = append(pages, "docs/adr/"+filepath.Base(path))
	}
	dotted := regexp.MustCompile("(^|[ `(])([A-Za-z]+)\\.([A-Za-z]+)($|[ `),;:.])")
	found := 0
	for _, page := range pages {
		for line := range strings.Lines(read(t, page)) {
			for _, m := range dotted.FindAllStringSubmatch(line, -1) {
				owner, name := m[2], m[3]
				of, known := members[owner]
				switch {
				case !known, name == "go", name == "md": // a file
				case owner+"."+name == "producer.id", of["package"] && !ast.IsExported(name): // a key of Kafka, or of the configuration
				case !of[name]:
					t.Errorf("%s names %s.%s, which is not in the source", page, owner, name)
				default:
					found++
				}
			}
		}
	}
	if found < 40 {
		t.Errorf("found %d names: does this test still find them?", found)
	}
}

// namesByOwner are the names of the source by their owner: a type's fields and methods, and a package's
// declarations. Types of one name share an entry.
func namesByOwner(t *testing.T) map[string]map[string]bool {
	t.Helper()
	members := make(map[string]map[string]bool)
	add := func(owner string, names ...*ast.Ident) {
		if members[owner] == nil {
			members[owner] = make(map[string]bool)
		}
		for _, name := range names {
			members[owner][name.Name] = true
		}
	}
	sources(t, func(folder, path string) {
		if strings.HasPrefix(folder, "test") || strings.HasPrefix(folder, "examples") {
			return
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		add(file.Name.Name, ast.NewIdent("package")) // a keyword, so no name of the source
		for _, d := range file.Decls {
			switch d := d.(type) {
			case *ast.FuncDecl:
				if d.Recv == nil {
					add(file.Name.Name, d.Name)
				} else {
					add(typeName(d.Recv.List[0].Type), d.Name)
				}
			case *ast.GenDecl:
				for _, s := range d.Specs {
					switch s := s.(type) {
					case *ast.ValueSpec:
						add(file.Name.Name, s.Names...)
					case *ast.TypeSpec:
						add(file.Name.Name, s.Name)
						addFields(add, s)
					}
				}
			}
		}
	})
	return members
}

func addFields(add func(owner string, names ...*ast.Ident), s *ast.TypeSpec) {
	var list *ast.FieldList
	switch of := s.Type.(type) {
	case *ast.StructType:
		list = of.Fields
	case *ast.InterfaceType:
		list = of.Methods
	default:
		return
	}
	add(s.Name.Name)
	for _, f := range list.List {
		add(s.Name.Name, f.Names...)
	}
}

// typeName is that of a method's receiver.
func typeName(of ast.Expr) string {
	switch of := of.(type) {
	case *ast.StarExpr:
		return typeName(of.X)
	case *ast.IndexExpr:
		return typeName(of.X)
	case *ast.Ident:
		return of.Name
	}
	return ""
}
