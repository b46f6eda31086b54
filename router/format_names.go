package router

// Formats of key and value.
const (
	FormatRaw        = "raw"
	FormatJSONString = "json_string"
	FormatEnvelope   = "envelope"
	FormatMerged     = "merged"

	FormatCloudEvents       = "cloudevents"        // CloudEvents 1.0.2, structured content mode
	FormatCloudEventsBinary = "cloudevents_binary" // the same in binary content mode
	FormatEventuate         = "eventuate"          // the message object of Eventuate Tram
)
