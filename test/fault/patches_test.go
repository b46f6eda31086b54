package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
)

// Patches are source text. One that names a place which has moved, or that no longer
// compiles, fails here and not only in the hour of the whole programme.
func TestPatches_FollowTheSource(t *testing.T) {
	c := newCompiler(t)
	for _, m := range mutants {
		if err := c.check(m.patches, nil); err != nil {
			t.Errorf("mutant %s: %v", m.name, err)
		}
	}
	merged, extra, err := failpointPatches()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.check(merged, extra); err != nil {
		t.Errorf("failpoints: %v", err)
	}
}

func TestPatches_ThatDoNotCompileAreFound(t *testing.T) {
	c := newCompiler(t)
	for _, replacement := range []string{"func newSession(undefined, ", "import \"fmt\"\n\nfunc newSession("} {
		if c.check([]patch{{"relay/session.go", "func newSession(", replacement}}, nil) == nil {
			t.Errorf("%q compiles", replacement)
		}
	}
}

// compiler checks the types of changed packages, against the compiled ones beside them.
type compiler struct {
	root     string
	packages []goPackage // each behind what it imports
	exports  map[string]string
}

type goPackage struct {
	ImportPath, Dir, Export string
	GoFiles, Imports        []string
}

func newCompiler(t *testing.T) *compiler {
	t.Helper()
	root, err := moduleDir(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	list := exec.CommandContext(t.Context(), "go", "list", "-export", "-deps", "-json=ImportPath,Dir,Export,GoFiles,Imports", "./cmd/cdc-relay")
	list.Dir = root
	var problems bytes.Buffer
	list.Stderr = &problems
	out, err := list.Output()
	if err != nil {
		t.Fatalf("go list: %v\n%s", err, &problems)
	}
	c := &compiler{root: root, exports: map[string]string{}}
	for decoder := json.NewDecoder(bytes.NewReader(out)); ; {
		var p goPackage
		if err := decoder.Decode(&p); errors.Is(err, io.EOF) {
			return c
		} else if err != nil {
			t.Fatal(err)
		}
		c.packages = append(c.packages, p)
		c.exports[p.ImportPath] = p.Export
	}
}

// check fails at a place that the source does not have once, and at what does not compile.
func (c *compiler) check(patches []patch, extra map[string]string) error {
	texts, err := patched(c.root, patches, extra)
	if err != nil {
		return err
	}
	folders := map[string]bool{}
	for name := range texts {
		folders[filepath.Join(c.root, filepath.Dir(name))] = true
	}
	files := token.NewFileSet()
	imports := &changedFirst{changed: map[string]*types.Package{}, compiled: importer.ForCompiler(files, "gc", func(path string) (io.ReadCloser, error) {
		return os.Open(c.exports[path])
	})}
	for _, p := range c.packages {
		above := slices.ContainsFunc(p.Imports, func(path string) bool { return imports.changed[path] != nil })
		if !folders[p.Dir] && (!above || len(folders) == 0) { // a type of a changed package is another type
			continue
		}
		delete(folders, p.Dir)
		parsed, err := c.parse(files, p, texts)
		if err != nil {
			return err
		}
		config := types.Config{Importer: imports}
		if imports.changed[p.ImportPath], err = config.Check(p.ImportPath, files, parsed, nil); err != nil {
			return err
		}
	}
	for folder := range folders {
		return fmt.Errorf("%s is no part of the relay", folder)
	}
	return nil
}

func (c *compiler) parse(files *token.FileSet, p goPackage, texts map[string]string) (parsed []*ast.File, err error) {
	names := slices.Clone(p.GoFiles)
	for name := range texts { // added ones
		if filepath.Join(c.root, filepath.Dir(name)) == p.Dir && !slices.Contains(names, filepath.Base(name)) {
			names = append(names, filepath.Base(name))
		}
	}
	for _, name := range names {
		path := filepath.Join(p.Dir, name)
		below, err := filepath.Rel(c.root, path)
		if err != nil {
			return nil, err
		}
		var text any // nil: parse what is on disk
		if changed, ok := texts[below]; ok {
			text = changed
		}
		file, err := parser.ParseFile(files, path, text, parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		parsed = append(parsed, file)
	}
	return parsed, nil
}

// changedFirst imports packages that were checked before, and compiled ones else.
type changedFirst struct {
	changed  map[string]*types.Package
	compiled types.Importer
}

func (i *changedFirst) Import(path string) (*types.Package, error) {
	if p := i.changed[path]; p != nil {
		return p, nil
	}
	return i.compiled.Import(path)
}
