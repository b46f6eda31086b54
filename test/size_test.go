package test

import (
	"bytes"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Lines of a package without its tests, lines of a function, and fields of a struct, that a
// reader can hold.
const (
	maxPackageLines  = 2000
	maxFunctionLines = 70
	maxStructFields  = 20
)

// large are the packages over the limit, each with its reason.
var large = map[string]string{
	"deadletter":        "letters, markers, parked keys and the redrive are one format, and one model checks them together",
	"admin":             "one address: probes, console and API share sessions, roles, limits and the list of routes; the page itself is in web/",
	"backfill":          "one way of sending rows of a table, and the two commands that take it; progress and what the relay is handed have packages",
	"cmd/cdc-relay":     "all commands in one package main: flags, help and printing of each",
	"config":            "one tree of keys: reading it from three places and checking its values share each type; the text of the file is in config/document",
	"inbox/kafkainbox":  "one loop: a partition's rounds, its progress and what ends them; users read its API alone",
	"debezium/importer": "one translation: the six forms of a connector's file are read into one list of keys, whose places every remark names",
	"outbox":            "what a service writes events with: shapes, checks and statements share their roles; users read its API alone",
	"relay/status":      "one file for each thing that is shown: how it is found out, its value and its sentence",
	"sandbox":           "servers for tests and the demo; never shipped",
	"test/bench":        "the contestants of the benchmarks; never shipped",
	"test/fault":        "the fault programme; never shipped",
}

// wide are the structs over the limit, each with its reason.
var wide = map[string]string{
	"debezium.connector":           "the compiled options of one mapping",
	"inbox/kafkainbox.Config":      "one field for each setting",
	"metrics.Metrics":              "one field for each metric",
	"metrics.statusCollector":      "one field for each metric",
	"relay.Config":                 "one field for each setting",
	"relay.Relay":                  "what lasts from session to session, grouped by its owner",
	"relay/status.Monitor":         "one field for each part of what is shown",
	"relay/status.Status":          "the body of /api/v1/status",
	"replication.Stream":           "the connection, what was said on it and when",
	"replication/pgoutput.Decoder": "the state of one stream",
	"sink/kafka.Sink":              "the client, its queues and the Sends that are under way",
	"sink/kafkatx.producerSession": "one transactional producer",
}

// sources visits the packages' files without tests, by folder.
func sources(t *testing.T, visit func(folder, path string)) {
	t.Helper()
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if name := d.Name(); d.IsDir() && path != root && (strings.HasPrefix(name, ".") || name == "testdata") {
			return filepath.SkipDir
		}
		if strings.HasSuffix(path, ".go") && !strings.HasSuffix(path, "_test.go") {
			folder, err := filepath.Rel(root, filepath.Dir(path))
			if err != nil {
				return err
			}
			visit(filepath.ToSlash(folder), path)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestArchitecture_PackagesAreOfASizeToRead(t *testing.T) {
	lines := make(map[string]int)
	sources(t, func(folder, path string) {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		lines[folder] += bytes.Count(text, []byte("\n"))
	})
	for folder, n := range lines {
		if _, known := large[folder]; n > maxPackageLines && !known {
			t.Errorf("%s has %d lines: divide it, or say in this test why not", folder, n)
		}
	}
	for folder := range large {
		if lines[folder] <= maxPackageLines {
			t.Errorf("%s has %d lines and needs no reason any more", folder, lines[folder])
		}
	}
}

func TestArchitecture_StructsAreOfASizeToRead(t *testing.T) {
	fields := make(map[string]int)
	sources(t, func(folder, path string) {
		if strings.HasPrefix(folder, "test") {
			return
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(file, func(n ast.Node) bool {
			if spec, ok := n.(*ast.TypeSpec); ok {
				if s, ok := spec.Type.(*ast.StructType); ok {
					for _, f := range s.Fields.List {
						fields[folder+"."+spec.Name.Name] += max(1, len(f.Names))
					}
				}
			}
			return true
		})
	})
	for name, n := range fields {
		if _, known := wide[name]; n > maxStructFields && !known {
			t.Errorf("%s has %d fields: group them, or say in this test why not", name, n)
		}
	}
	for name := range wide {
		if fields[name] <= maxStructFields {
			t.Errorf("%s has %d fields and needs no reason any more", name, fields[name])
		}
	}
}

func TestArchitecture_FunctionsAreOfASizeToRead(t *testing.T) {
	sources(t, func(folder, path string) {
		set := token.NewFileSet()
		file, err := parser.ParseFile(set, path, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range file.Decls {
			f, ok := d.(*ast.FuncDecl)
			if !ok {
				continue
			}
			if n := set.Position(f.End()).Line - set.Position(f.Pos()).Line + 1; n > maxFunctionLines {
				t.Errorf("%s: %s has %d lines: divide it", folder, f.Name.Name, n)
			}
		}
	})
}
