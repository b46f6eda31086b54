package transform

import (
	"github.com/cdc-relay/cdc-relay/debezium/connect/expand"
)

// expander is table.expand.json.payload.
type expander struct{ *expand.Expander }

func newExpander(root string, nullBytes, emptyArrays bool) *expander {
	return &expander{expand.New(expand.Options{Root: root, NullBytes: nullBytes, EmptyAsString: emptyArrays})}
}

// expand gives what goes on: the struct, or the text as it was. Poison is a text
// under a schema that it does not have: what a converter will say of it, if it
// looks at schemas, is better said in words.
func (e *expander) expand(f Field) (out Field, poison error) {
	x := e.Expand(f.Schema, f.Value)
	if x.Outcome == expand.Poison {
		poison = x.Reason
	}
	return Field{x.Schema, x.Value}, poison
}
