package format

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

// OrRaw is a format's name; the empty one stands for Raw.
func OrRaw(name string) string {
	if name == "" {
		return Raw
	}
	return name
}

// HasSchema reports whether values of a format are made by a schema.
func HasSchema(format string) bool {
	return format == Avro || format == JSONSchema || format == Protobuf
}
