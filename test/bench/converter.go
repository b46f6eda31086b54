package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"time"

	"github.com/twmb/avro"
	"github.com/twmb/franz-go/pkg/sr"

	"github.com/cdc-relay/cdc-relay/sandbox"
)

// debeziumAvro is debezium-warm with values in Avro, by schemas that Apicurio's converter infers and
// registers with an Apicurio registry.
const debeziumAvro = "debezium-avro"

// needConverter fetches the converter and starts the registry, once.
func needConverter(ctx context.Context, b *bench) error {
	if err := needDebezium(ctx, b); err != nil || b.registry != nil {
		return err
	}
	var err error
	if b.converter, err = sandbox.FetchAvroConverter(ctx, os.Stderr); err != nil {
		return err
	}
	program, err := sandbox.FetchRegistry(ctx, os.Stderr)
	if err != nil {
		return err
	}
	b.registry, err = sandbox.StartRegistry(ctx, sandbox.RegistryOptions{Java: b.java, Program: program})
	return err
}

// converting is what a connector has beside the one without a registry. The payload becomes a schema
// of its own, which the converter registers, and the number of the schema is that of the API which
// consumers ask.
func (b *bench) converting() map[string]string {
	const option = "value.converter.apicurio.registry."
	return map[string]string{
		"transforms.outbox.table.expand.json.payload": "true",
		"value.converter":          sandbox.AvroConverter,
		option + "url":             b.registry.NativeURL(),
		option + "auto-register":   "true",
		option + "as-confluent":    "true",
		option + "use-id":          "contentId",
		option + "headers.enabled": "false",
	}
}

// registeredDecoder reads bodies by the schemas that are registered below their numbers.
func registeredDecoder(b *bench) (func(uint32, []byte) (ordered, error), error) {
	return decoderBy(b.registry.URL())
}

func decoderBy(registry string) (func(uint32, []byte) (ordered, error), error) {
	client, err := sr.NewClient(sr.URLs(registry), sr.HTTPClient(&http.Client{Timeout: time.Minute}))
	if err != nil {
		return nil, err
	}
	known := map[uint32]*avro.Schema{}
	return func(id uint32, body []byte) (o ordered, err error) {
		if known[id] == nil {
			found, err := client.SchemaByID(context.Background(), int(id))
			if err != nil {
				return o, fmt.Errorf("ask the registry for schema %d: %w", id, err)
			}
			if known[id], err = avro.Parse(found.Schema); err != nil {
				return o, fmt.Errorf("schema %d: %w", id, err)
			}
		}
		var v any
		rest, err := known[id].Decode(body, &v)
		if err == nil && len(rest) > 0 {
			err = errBody
		}
		if err != nil {
			return o, err
		}
		text, err := json.Marshal(v)
		if err != nil {
			return o, err
		}
		return o, json.Unmarshal(text, &o)
	}, nil
}
