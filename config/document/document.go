package document

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

// Kind is what a node is.
type Kind int

// The kinds of nodes.
const (
	Null Kind = iota
	Text
	List
	Map
)

func (k Kind) String() string {
	return [...]string{"nothing", "a single value", "a list", "a mapping"}[k]
}

// Node is a value of the file with its place. Anchors are resolved.
type Node struct {
	Kind         Kind
	Text         string
	Line, Column int
	LastLine     int // of a text that goes over several lines
	Items        []*Node
	Entries      []Entry
}

// Entry is one key of a mapping.
type Entry struct {
	Name         string
	Line, Column int
	Value        *Node
}

// Keys is what a document has to know of the configuration's keys.
type Keys struct {
	Tree     *Branch                // of all keys
	Harmless func(name string) bool // no key of this name, anywhere in the tree, holds a secret
}

// Masked replaces what may not be shown.
const Masked = "***"

// Document is a parsed file. It knows which parts of its lines may not be shown.
type Document struct {
	keys   Keys
	file   string
	lines  []string
	Root   *Node
	hidden map[int]int // line → first column that is hidden
}

// SyntaxError is a place with the parser's word on it.
type SyntaxError struct {
	Line, Column int
	Message      string
	parser       bool // the parser's word: the mistake may be further up
}

func (e *SyntaxError) Error() string { return e.Message }

// Parse reads a file. It returns a document also with an error, for the excerpt.
func Parse(file string, content []byte, keys Keys) (*Document, error) {
	text := strings.TrimPrefix(string(content), "\ufeff")
	d := &Document{keys: keys, file: file, lines: strings.Split(text, "\n"), hidden: map[int]int{}}
	if err := checkEncoding(text); err != nil {
		return d, err
	}
	if err := checkLimits(text); err != nil {
		return d, err
	}
	root, err := ParseYAML(text)
	d.Root = root
	if err != nil {
		err = d.blame(err)
	}
	return d, err
}

// checkEncoding refuses UTF-16, as some editors and shells write it: each letter has a zero byte beside it.
func checkEncoding(text string) error {
	half := len(text) > 1 && (text[0] == 0) != (text[1] == 0)
	if half || strings.HasPrefix(text, "\xff\xfe") || strings.HasPrefix(text, "\xfe\xff") {
		return &SyntaxError{Line: 1, Column: 1, Message: "the file is UTF-16; allowed: UTF-8. Save it as UTF-8 (in PowerShell: Set-Content -Encoding utf8)"}
	}
	return nil
}

// ParseYAML turns the text into nodes. The parser is foreign code that meets
// whatever a user typed, so a panic of it is an error of the file.
func ParseYAML(text string) (root *Node, err error) {
	defer func() {
		if recover() != nil {
			root, err = nil, &SyntaxError{Line: 1, Column: 1, Message: "cannot be read as YAML"}
		}
	}()
	file, err := parser.ParseBytes([]byte(text), 0, parser.AllowDuplicateMapKey())
	if err != nil {
		return nil, parserError(err)
	}
	c := &converter{anchors: map[string]anchor{}}
	root = &Node{Line: 1, Column: 1, LastLine: 1}
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
		return &SyntaxError{Line: 1, Column: 1, Message: "cannot be read as YAML"}
	}
	p := known.GetToken().Position
	message := strings.ReplaceAll(known.GetMessage(), "\t", "tab")
	return &SyntaxError{Line: p.Line, Column: p.Column, Message: "cannot be read as YAML: " + message + syntaxHint(message), parser: true}
}

// syntaxHint covers what people stumble over in this file.
func syntaxHint(message string) string {
	switch {
	case strings.Contains(message, "must be specified"):
		return "; close the open quote or bracket, and inside { } and [ ] put quotes around values with ${…}"
	case strings.Contains(message, "reserved character"), strings.Contains(message, "directive"), strings.Contains(message, "mapping value is not allowed"):
		return "; put quotes around the value"
	case strings.Contains(message, "'tab'"):
		return "; indent with spaces"
	}
	return ""
}

func at(n ast.Node, message string) error {
	e := &SyntaxError{Line: 1, Column: 1, Message: message}
	if tk := n.GetToken(); tk != nil && tk.Position != nil {
		e.Line, e.Column = tk.Position.Line, tk.Position.Column
	}
	return e
}

type converter struct {
	anchors map[string]anchor
	nodes   int // so far, with what aliases stand for
}

// anchor is a value that aliases stand for, with how many nodes it is.
type anchor struct {
	value *Node
	nodes int
}

func (c *converter) convert(n ast.Node, depth int) (*Node, error) {
	if depth > maxDepth {
		return nil, at(n, fmt.Sprintf("nested too deeply; allowed: %d levels", maxDepth))
	}
	if c.nodes++; c.nodes > maxNodes {
		return nil, at(n, fmt.Sprintf("aliases make more than %d values of the file; write the values out", maxNodes))
	}
	switch n := n.(type) {
	case nil:
		return &Node{}, nil
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
		return nil, at(n, "begins with !, a tag, which is not supported; put quotes around the value, or remove the tag")
	case ast.MapNode:
		return c.convertMap(n, depth)
	case *ast.SequenceNode:
		list := positionOf(n)
		list.Kind = List
		for _, v := range n.Values {
			item, err := c.convert(v, depth+1)
			if err != nil {
				return nil, err
			}
			list.Items = append(list.Items, unglue(item))
		}
		return list, nil
	}
	return c.convertScalar(n)
}

// unglue gives back host:port, which the parser takes for a mapping of one key
// in a list inside braces, although no space follows the colon.
func unglue(n *Node) *Node {
	if n.Kind != Map || len(n.Entries) != 1 {
		return n
	}
	e := n.Entries[0]
	glued := e.Value.Line == e.Line && e.Value.Column == e.Column+utf8.RuneCountInString(e.Name)+1
	if e.Value.Kind != Text || !glued {
		return n
	}
	return &Node{Kind: Text, Text: e.Name + ":" + e.Value.Text, Line: e.Line, Column: e.Column, LastLine: e.Value.LastLine}
}

func (c *converter) convertScalar(n ast.Node) (*Node, error) {
	out := positionOf(n)
	out.Kind = Text
	switch n := n.(type) {
	case *ast.NullNode:
		out.Kind = Null
	case *ast.StringNode:
		out.Text = n.Value
	case *ast.LiteralNode:
		out.Text = n.Value.Value
		out.LastLine = out.Line + strings.Count(n.Value.GetToken().Origin, "\n") + 1
	case *ast.IntegerNode, *ast.FloatNode, *ast.BoolNode, *ast.InfinityNode, *ast.NanNode:
		out.Text = n.GetToken().Value
	default:
		return nil, at(n, "is not allowed here")
	}
	return out, nil
}

func (c *converter) convertMap(n ast.MapNode, depth int) (*Node, error) {
	out := &Node{Kind: Map}
	if whole, ok := n.(ast.Node); ok {
		out = positionOf(whole)
		out.Kind = Map
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
		out.Entries = append(out.Entries, Entry{Name: name, Line: p.Line, Column: p.Column, Value: value})
	}
	if len(out.Entries) > 0 { // the node's own token is the colon
		out.Line, out.Column = out.Entries[0].Line, out.Entries[0].Column
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

func positionOf(n ast.Node) *Node {
	out := &Node{}
	if tk := n.GetToken(); tk != nil && tk.Position != nil {
		out.Line, out.Column = tk.Position.Line, tk.Position.Column
		out.LastLine = out.Line + strings.Count(strings.TrimSpace(tk.Origin), "\n")
	}
	return out
}

// Hide keeps a value out of every excerpt.
func (d *Document) Hide(n *Node) {
	if n.Kind == Null {
		return
	}
	if column, ok := d.hidden[n.Line]; !ok || n.Column < column {
		d.hidden[n.Line] = n.Column
	}
	for line := n.Line + 1; line <= n.LastLine; line++ {
		d.hidden[line] = 1
	}
	for _, item := range n.Items {
		d.Hide(item)
	}
	for _, e := range n.Entries {
		d.Hide(e.Value)
	}
}

var keyOfLine = regexp.MustCompile(`^[\s\-?{\[]*["']?([a-z_]+)["']?\s*:`)

// beforeAt is a value with something before an @, as a password is in an address.
var beforeAt = regexp.MustCompile(`:[\s"'\[{]*[^\s"'\[{@].*@`)

// Excerpt is the line as it may be shown. Values of secrets and of unknown keys
// are cut off; without a root nothing is known about the values, so a line shows
// only when it begins with a key that holds no secret.
func (d *Document) Excerpt(line int) string {
	if line < 1 || line > len(d.lines) {
		return ""
	}
	text := strings.TrimRight(d.lines[line-1], "\r\t ")
	if d.Root == nil {
		m := keyOfLine.FindStringSubmatch(text)
		if m == nil || beforeAt.MatchString(text) || !d.keys.Harmless(m[1]) || strings.Count(text, ":") > 1 {
			return ""
		}
	}
	if column, ok := d.hidden[line]; ok {
		runes := []rune(text)
		if column == 1 {
			return ""
		}
		text = string(runes[:min(column-1, len(runes))]) + Masked
	}
	if len(text) > 200 || !Printable(text) {
		return ""
	}
	return text
}

// Printable reports whether a text can stand in one line of a message.
func Printable(text string) bool {
	return !strings.ContainsFunc(text, func(r rune) bool { return r < ' ' && r != '\t' || r == 0x7f || r == 0xfffd })
}
