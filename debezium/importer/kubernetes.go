package importer

import (
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"
)

// readKubernetes reads a Strimzi resource of one kind; a file may hold others
// beside it.
func readKubernetes(file, text, kind string) (*source, error) {
	parsed, err := parser.ParseBytes([]byte(text), 0)
	if err != nil {
		return nil, yamlError(file, err)
	}
	var found *source
	for _, doc := range parsed.Docs {
		root, ok := doc.Body.(ast.MapNode)
		if !ok {
			continue
		}
		if k, _ := yamlText(member(root, "kind")); k != kind {
			continue
		}
		if found != nil {
			return nil, yamlFail(file, doc.Body, fmt.Sprintf("is a second %s; give one a file", kind))
		}
		r := &yamlReader{file: file, out: newSource(file, Strimzi)}
		if err := r.resource(root, kind); err != nil {
			return nil, err
		}
		found = r.out
	}
	if found == nil {
		return nil, &Error{File: file, Line: 1, Message: fmt.Sprintf("holds no %s", kind)}
	}
	return found, nil
}

var kafkaConnect = regexp.MustCompile(`(?m)^["']?kind["']?\s*:\s*["']?KafkaConnect["']?\s*$`)

// besides reads the KafkaConnect that stands in one file with the connector; nil: none
// does.
func besides(file string, input []byte) (*source, error) {
	if !kafkaConnect.Match(input) {
		return nil, nil
	}
	text, err := decode(file, input)
	if err != nil {
		return nil, err
	}
	return readKubernetes(file, text, "KafkaConnect")
}

type yamlReader struct {
	file string
	out  *source

	hasTLS, sasl  bool
	tlsAt, authAt ast.Node
}

func (r *yamlReader) resource(root ast.MapNode, kind string) error {
	spec, ok := member(root, "spec").(ast.MapNode)
	if !ok {
		return &Error{File: r.file, Line: 1, Message: fmt.Sprintf("%s has no spec", kind)}
	}
	if metadata, ok := member(root, "metadata").(ast.MapNode); ok {
		r.out.name, _ = yamlText(member(metadata, "name"))
	}
	for it := spec.MapRange(); it.Next(); {
		key, ok := yamlText(it.Key())
		if !ok {
			return yamlFail(r.file, it.Key(), "a key must be text")
		}
		names := map[string]string{"class": "connector.class", "tasksMax": "tasks.max", "bootstrapServers": "bootstrap.servers", "groupId": "group.id", "offsetStorageTopic": "offset.storage.topic"}
		switch {
		case key == "config":
			if err := r.config(it.Value(), ""); err != nil {
				return err
			}
		case names[key] != "":
			value, ok := yamlText(it.Value())
			if !ok {
				return yamlFail(r.file, it.Value(), "spec."+key+" is not a single value")
			}
			if err := r.add(names[key], value, it.Key()); err != nil {
				return err
			}
		case kind == "KafkaConnect" && key == "tls":
			if err := r.tls(it.Value(), it.Key()); err != nil {
				return err
			}
		case kind == "KafkaConnect" && key == "authentication":
			r.authAt = it.Key()
			if err := r.authentication(it.Value(), it.Key()); err != nil {
				return err
			}
		default:
			if err := r.add("spec."+key, "", it.Key()); err != nil {
				return err
			}
		}
	}
	return r.protocol()
}

// config takes nested mappings too: people write `database: {hostname: …}`, and
// Strimzi passes on what is flat.
func (r *yamlReader) config(n ast.Node, prefix string) error {
	if strings.Count(prefix, ".") > 32 {
		return yamlFail(r.file, n, "is nested too deeply")
	}
	mapping, ok := n.(ast.MapNode)
	if !ok {
		return yamlFail(r.file, n, "spec.config is not a mapping")
	}
	for it := mapping.MapRange(); it.Next(); {
		key, ok := yamlText(it.Key())
		if !ok {
			return yamlFail(r.file, it.Key(), "a key must be text")
		}
		if _, nested := it.Value().(ast.MapNode); nested {
			return yamlFail(r.file, it.Key(), fmt.Sprintf("spec.config: %s%s is a mapping; write flat keys, as Strimzi needs them", prefix, key))
		}
		value, ok := yamlText(it.Value())
		if !ok {
			return yamlFail(r.file, it.Key(), fmt.Sprintf("spec.config: %s%s is not a single value", prefix, key))
		}
		if err := r.add(prefix+key, value, it.Key()); err != nil {
			return err
		}
	}
	return nil
}

func (r *yamlReader) add(key, value string, at ast.Node) error {
	p := property{key: key, value: value, line: 1, column: 1}
	if tk := at.GetToken(); tk != nil && tk.Position != nil {
		p.line, p.column = tk.Position.Line, tk.Position.Column
	}
	return r.out.add(p)
}

func member(m ast.MapNode, name string) ast.Node {
	for it := m.MapRange(); it.Next(); {
		if key, ok := yamlText(it.Key()); ok && key == name {
			return it.Value()
		}
	}
	return nil
}

func yamlText(n ast.Node) (string, bool) {
	switch n := n.(type) {
	case *ast.StringNode:
		return n.Value, true
	case *ast.LiteralNode:
		return n.Value.Value, true
	case *ast.MappingKeyNode:
		return yamlText(n.Value)
	case *ast.IntegerNode, *ast.FloatNode, *ast.BoolNode:
		return n.GetToken().Value, true
	case *ast.NullNode:
		return "", true
	}
	return "", false
}

func yamlFail(file string, n ast.Node, message string) error {
	e := &Error{File: file, Message: message}
	if n != nil {
		if tk := n.GetToken(); tk != nil && tk.Position != nil {
			e.Line, e.Column = tk.Position.Line, tk.Position.Column
		}
	}
	return e
}

// yamlError keeps message and place and drops the excerpt, which may show secrets.
func yamlError(file string, err error) error {
	var known interface {
		GetToken() *token.Token
		GetMessage() string
	}
	if !errors.As(err, &known) || known.GetToken() == nil || known.GetToken().Position == nil {
		return &Error{File: file, Line: 1, Message: "cannot be read as YAML"}
	}
	p := known.GetToken().Position
	return &Error{File: file, Line: p.Line, Column: p.Column, Message: "cannot be read as YAML: " + known.GetMessage()}
}
