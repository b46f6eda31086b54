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
)
