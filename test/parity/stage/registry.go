package stage

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/sr"

	"github.com/cdc-relay/cdc-relay/sandbox"
	"github.com/cdc-relay/cdc-relay/test/parity/golden"
)

// registryHost is what a case has in place of the registry's address.
const registryHost = "http://registry:8080/apis/registry/v2"

// converted has a case with a schema registry run with one: a new registry for each, so that schemas
// have the same numbers in every run.
func (c *Connect) converted(ctx context.Context, g *golden.Case) error {
	if err := c.closeRegistry(); err != nil || !bytes.Contains(g.Connector, []byte(registryHost)) {
		return err
	}
	java, _, err := sandbox.FindJava(ctx)
	if err != nil {
		return err
	}
	program, err := sandbox.FetchRegistry(ctx, c.log)
	if err != nil {
		return err
	}
	if c.plugins, err = sandbox.FetchAvroConverter(ctx, c.log); err != nil {
		return err
	}
	c.registry, err = sandbox.StartRegistry(ctx, sandbox.RegistryOptions{Java: java, Program: program})
	return err
}

func (c *Connect) closeRegistry() error {
	if c.registry == nil {
		return nil
	}
	defer func() { c.registry = nil }()
	return c.registry.Close()
}

// settings are the properties of a case's worker.
func (c *Connect) settings(g *golden.Case) string {
	if c.registry == nil {
		return string(g.Worker)
	}
	return string(g.Worker) + "\nplugin.path=" + c.plugins + "\n"
}

// connector is a case's connector.json for the servers at hand.
func (c *Connect) connector(g *golden.Case, name string) ([]byte, error) {
	text, err := c.lane.Connector(g, name)
	if err != nil || c.registry == nil {
		return text, err
	}
	return bytes.ReplaceAll(text, []byte(registryHost), []byte(c.registry.NativeURL())), nil
}

// schemas are all that the registry has, as in expected-schemas.jsonl; nothing without one.
func (c *Connect) schemas(ctx context.Context) ([]byte, error) {
	if c.registry == nil {
		return nil, nil
	}
	client, err := sr.NewClient(sr.URLs(c.registry.URL()), sr.HTTPClient(&http.Client{Timeout: time.Minute}))
	if err != nil {
		return nil, err
	}
	subjects, err := client.Subjects(ctx)
	if err != nil {
		return nil, fmt.Errorf("ask the registry: %w", err)
	}
	var lines bytes.Buffer
	encoder := json.NewEncoder(&lines)
	encoder.SetEscapeHTML(false)
	for _, subject := range subjects {
		versions, err := client.SubjectVersions(ctx, subject)
		if err != nil {
			return nil, fmt.Errorf("ask the registry: %w", err)
		}
		for _, version := range versions {
			s, err := client.SchemaByVersion(ctx, subject, version)
			if err != nil {
				return nil, fmt.Errorf("ask the registry: %w", err)
			}
			if !json.Valid([]byte(s.Schema.Schema)) {
				return nil, errors.New("the registry has a schema that is no JSON: " + strings.TrimSpace(s.Schema.Schema))
			}
			if err := encoder.Encode(golden.Registered{Subject: s.Subject, Version: s.Version, ID: s.ID, Text: json.RawMessage(s.Schema.Schema)}); err != nil {
				return nil, err
			}
		}
	}
	return lines.Bytes(), nil
}
