// Package tape reads JSON for encoders that go along a schema: a list of its values, without a tree.
// It also says where a payload does not fit its schema.
package tape
