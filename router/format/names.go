package format

import "slices"

// Formats of key and value.
const (
	Raw        = "raw"
	JSONString = "json_string"
	Envelope   = "envelope"
	Merged     = "merged"

	CloudEvents       = "cloudevents"        // CloudEvents 1.0.2, structured content mode
	CloudEventsBinary = "cloudevents_binary" // the same in binary content mode
	Eventuate         = "eventuate"          // the message object of Eventuate Tram

	// By a schema of a registry.
	Avro       = "avro"
	JSONSchema = "json_schema"
	Protobuf   = "protobuf"
)

// Keys are the formats of a key.
var Keys = []string{Raw, JSONString}

// valueFormat is one format of a value.
type valueFormat struct {
	name   string
	fields bool // takes up columns (value_fields)
	schema bool // made by a schema of a registry; Content.Value writes the others
}

// values are in the order in which messages name them.
var values = []valueFormat{
	{name: Raw},
	{name: JSONString},
	{name: Envelope, fields: true},
	{name: Merged, fields: true},
	{name: CloudEvents, fields: true},
	{name: CloudEventsBinary, fields: true},
	{name: Eventuate},
	{name: Avro, schema: true},
	{name: JSONSchema, schema: true},
	{name: Protobuf, schema: true},
}

// Values are the formats of a value.
func Values() []string { return named(func(valueFormat) bool { return true }) }

// WithFields are the formats whose values take up columns.
func WithFields() []string { return named(func(v valueFormat) bool { return v.fields }) }

// HasSchema reports whether values of a format are made by a schema.
func HasSchema(format string) bool {
	return slices.ContainsFunc(values, func(v valueFormat) bool { return v.schema && v.name == format })
}

func named(is func(valueFormat) bool) (names []string) {
	for _, v := range values {
		if is(v) {
			names = append(names, v.name)
		}
	}
	return names
}

// OrRaw is a format's name; the empty one stands for Raw.
func OrRaw(name string) string {
	if name == "" {
		return Raw
	}
	return name
}
