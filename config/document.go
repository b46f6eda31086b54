package config

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
	"unicode/utf8"

	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"
)

type nodeKind int

const (
	nullNode nodeKind = iota
	textNode
	listNode
	mapNode
)

func (k nodeKind) String() string {
	return [...]string{"nothing", "a single value", "a list", "a mapping"}[k]
}

// node is a value of the file with its place. Anchors are resolved.
type node struct {
	kind         nodeKind
	text         string
	line, column int
	lastLine     int // of a text that goes over several lines
	items        []*node
	entries      []entry
}

type entry struct {
	name         string
	line, column int
	value        *node
}

// document is a parsed file. It knows which parts of its lines may not be shown.
type document struct {
	file   string
	lines  []string
	root   *node
	hidden map[int]int // line → first column that is hidden
}

// syntaxError is a place with the parser's word on it.
type syntaxError struct {
	line, column int
	message      string
	parser       bool // the parser's word: the mistake may be further up
}

func (e *syntaxError) Error() string { return e.message }

// parseDocument returns a document also with an error, for the excerpt.
func parseDocument(file string, content []byte) (*document, error) {
	text := strings.TrimPrefix(string(content), "\ufeff")
	d := &document{file: file, lines: strings.Split(text, "\n"), hidden: map[int]int{}}
	if err := checkLimits(text); err != nil {
		return d, err
	}
	root, err := parseYAML(text)
	d.root = root
	if err != nil {
		err = d.blame(err)
	}
	return d, err
}

// parseYAML turns the text into nodes. The parser is foreign code that meets
// whatever a user typed, so a panic of it is an error of the file.
func parseYAML(text string) (root *node, err error) {
	defer func() {
		if recover() != nil {
			root, err = nil, &syntaxError{line: 1, column: 1, message: "cannot be read as YAML"}
		}
	}()
	file, err := parser.ParseBytes([]byte(text), 0, parser.AllowDuplicateMapKey())
	if err != nil {
		return nil, parserError(err)
	}
	c := &converter{anchors: map[string]anchor{}}
	root = &node{line: 1, column: 1, lastLine: 1}
	found := false
	for _, doc := range file.Docs {
		if doc.Body == nil {
			continue
		}
		if found {
			return nil, at(doc.Body, "a second document begins; allowed: one")
		}
		if root, err = c.convert(doc.Body, 0); err != nil {
			return nil, err
		}
		found = true
	}
	return root, nil
}

// parserError keeps message and place of the parser and drops its excerpt,
// which would show secrets.
func parserError(err error) error {
	var known interface {
		GetToken() *token.Token
		GetMessage() string
	}
	if !errors.As(err, &known) || known.GetToken() == nil || known.GetToken().Position == nil {
		return &syntaxError{line: 1, column: 1, message: "cannot be read as YAML"}
	}
	p := known.GetToken().Position
	message := strings.ReplaceAll(known.GetMessage(), "\t", "tab")
	return &syntaxError{line: p.Line, column: p.Column, message: "cannot be read as YAML: " + message + syntaxHint(message), parser: true}
}

// syntaxHint covers what people stumble over in this file.
func syntaxHint(message string) string {
	switch {
	case strings.Contains(message, "must be specified"):
		return "; close what is opened there, and inside { } and [ ] put quotes around values with ${…}"
	case strings.Contains(message, "reserved character"), strings.Contains(message, "directive"), strings.Contains(message, "mapping value is not allowed"):
		return "; put quotes around the value"
	case strings.Contains(message, "'tab'"):
		return "; indent with spaces"
	}
	return ""
}

func at(n ast.Node, message string) error {
	e := &syntaxError{line: 1, column: 1, message: message}
	if tk := n.GetToken(); tk != nil && tk.Position != nil {
		e.line, e.column = tk.Position.Line, tk.Position.Column
	}
	return e
}

type converter struct {
	anchors map[string]anchor
	nodes   int // so far, with what aliases stand for
}

// anchor is a value that aliases stand for, with how many nodes it is.
type anchor struct {
	value *node
	nodes int
}

func (c *converter) convert(n ast.Node, depth int) (*node, error) {
	if depth > maxDepth {
		return nil, at(n, fmt.Sprintf("nested too deeply; allowed: %d levels", maxDepth))
	}
	if c.nodes++; c.nodes > maxNodes {
		return nil, at(n, fmt.Sprintf("aliases make more than %d values of the file; write the values out", maxNodes))
	}
	switch n := n.(type) {
	case nil:
		return &node{}, nil
	case *ast.AnchorNode:
		before := c.nodes
		value, err := c.convert(n.Value, depth+1)
		if err == nil {
			c.anchors[n.Name.GetToken().Value] = anchor{value, c.nodes - before}
		}
		return value, err
	case *ast.AliasNode:
		if found, ok := c.anchors[n.Value.GetToken().Value]; ok {
			c.nodes += found.nodes
			return found.value, nil
		}
		return nil, at(n, "alias without an anchor before it")
	case *ast.TagNode:
		return nil, at(n, "begins with !, which is a tag and not supported; put quotes around the value, or leave the tag out")
	case ast.MapNode:
		return c.convertMap(n, depth)
	case *ast.SequenceNode:
		list := positionOf(n)
		list.kind = listNode
		for _, v := range n.Values {
			item, err := c.convert(v, depth+1)
			if err != nil {
				return nil, err
			}
			list.items = append(list.items, unglue(item))
		}
		return list, nil
	}
	return c.convertScalar(n)
}

// unglue gives back host:port, which the parser takes for a mapping of one key
// in a list inside braces, although no space follows the colon.
func unglue(n *node) *node {
	if n.kind != mapNode || len(n.entries) != 1 {
		return n
	}
	e := n.entries[0]
	glued := e.value.line == e.line && e.value.column == e.column+utf8.RuneCountInString(e.name)+1
	if e.value.kind != textNode || !glued {
		return n
	}
	return &node{kind: textNode, text: e.name + ":" + e.value.text, line: e.line, column: e.column, lastLine: e.value.lastLine}
}

func (c *converter) convertScalar(n ast.Node) (*node, error) {
	out := positionOf(n)
	out.kind = textNode
	switch n := n.(type) {
	case *ast.NullNode:
		out.kind = nullNode
	case *ast.StringNode:
		out.text = n.Value
	case *ast.LiteralNode:
		out.text = n.Value.Value
		out.lastLine = out.line + strings.Count(n.Value.GetToken().Origin, "\n") + 1
	case *ast.IntegerNode, *ast.FloatNode, *ast.BoolNode, *ast.InfinityNode, *ast.NanNode:
		out.text = n.GetToken().Value
	default:
		return nil, at(n, "is not allowed here")
	}
	return out, nil
}

func (c *converter) convertMap(n ast.MapNode, depth int) (*node, error) {
	out := &node{kind: mapNode}
	if whole, ok := n.(ast.Node); ok {
		out = positionOf(whole)
		out.kind = mapNode
	}
	for it := n.MapRange(); it.Next(); {
		name, err := keyText(it.Key())
		if err != nil {
			return nil, err
		}
		value, err := c.convert(it.Value(), depth+1)
		if err != nil {
			return nil, err
		}
		p := it.Key().GetToken().Position
		out.entries = append(out.entries, entry{name: name, line: p.Line, column: p.Column, value: value})
	}
	if len(out.entries) > 0 { // the node's own token is the colon
		out.line, out.column = out.entries[0].line, out.entries[0].column
	}
	return out, nil
}

func keyText(n ast.Node) (string, error) {
	switch n := n.(type) {
	case *ast.MergeKeyNode:
		return "", at(n, "merge keys are not supported; write the keys out")
	case *ast.MappingKeyNode:
		return keyText(n.Value)
	case *ast.StringNode:
		return n.Value, nil
	case *ast.IntegerNode, *ast.FloatNode, *ast.BoolNode, *ast.NullNode, *ast.InfinityNode, *ast.NanNode:
		return n.GetToken().Value, nil
	}
	return "", at(n, "a key must be plain text")
}

func positionOf(n ast.Node) *node {
	out := &node{}
	if tk := n.GetToken(); tk != nil && tk.Position != nil {
		out.line, out.column = tk.Position.Line, tk.Position.Column
		out.lastLine = out.line + strings.Count(strings.TrimSpace(tk.Origin), "\n")
	}
	return out
}

// hide keeps a value out of every excerpt.
func (d *document) hide(n *node) {
	if n.kind == nullNode {
		return
	}
	if column, ok := d.hidden[n.line]; !ok || n.column < column {
		d.hidden[n.line] = n.column
	}
	for line := n.line + 1; line <= n.lastLine; line++ {
		d.hidden[line] = 1
	}
	for _, item := range n.items {
		d.hide(item)
	}
	for _, e := range n.entries {
		d.hide(e.value)
	}
}

var keyOfLine = regexp.MustCompile(`^[\s\-?{\[]*["']?([a-z_]+)["']?\s*:`)

// excerpt is the line as it may be shown. Values of secrets and of unknown keys
// are cut off; without a root nothing is known about the values, so a line shows
// only when it begins with a key that holds no secret.
func (d *document) excerpt(line int) string {
	if line < 1 || line > len(d.lines) {
		return ""
	}
	text := strings.TrimRight(d.lines[line-1], "\r\t ")
	if d.root == nil {
		m := keyOfLine.FindStringSubmatch(text)
		if m == nil || !harmless(m[1]) || strings.Count(text, ":") > 1 {
			return ""
		}
	}
	if column, ok := d.hidden[line]; ok {
		runes := []rune(text)
		if column == 1 {
			return ""
		}
		text = string(runes[:min(column-1, len(runes))]) + masked
	}
	if len(text) > 200 || !printable(text) {
		return ""
	}
	return text
}

func printable(text string) bool {
	return !strings.ContainsFunc(text, func(r rune) bool { return r < ' ' && r != '\t' || r == 0x7f || r == 0xfffd })
}
