package router

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/cdc-relay/cdc-relay/advice"
	"github.com/cdc-relay/cdc-relay/router/column"
	"github.com/cdc-relay/cdc-relay/router/format"
	"github.com/cdc-relay/cdc-relay/router/preset"
	"github.com/cdc-relay/cdc-relay/router/record"
	"github.com/cdc-relay/cdc-relay/router/schemas"
	"github.com/cdc-relay/cdc-relay/router/template"
	"github.com/cdc-relay/cdc-relay/wording"
)

// mapping is a Mapping whose parts are parsed; it knows no table yet.
type mapping struct {
	Mapping
	preset  *preset.Preset       // nil looks at the columns
	topic   *template.Template   // nil takes the preset's
	regex   *regexp.Regexp       // anchored; nil without topic_regex
	headers []*template.Template // parallel to Mapping.Headers; nil where the source is a column
	pin     *pin                 // what the first Pin decided; nil before it

	connector Connector      // nil without one
	schemas   *schemas.Table // nil without any
}

// newMapping parses m and reports everything that is wrong with it whatever the
// table looks like.
func newMapping(m Mapping, index int) (*mapping, error) {
	if m.Path == "" {
		m.Path = fmt.Sprintf("outbox[%d]", index)
	}
	p := &mapping{Mapping: m}
	if m.Connector != nil {
		return p, nil
	}
	var errs []error
	fail := func(key string, format string, args ...any) {
		errs = append(errs, p.configError(key, fmt.Errorf(format, args...)))
	}
	if m.Preset != "" && m.Preset != preset.Auto {
		p.preset = preset.ByName(m.Preset)
		switch why := preset.RefusedName(m.Preset); {
		case p.preset != nil:
		case why != nil:
			fail("preset", "there is no preset for %w", why)
		default:
			fail("preset", "there is no preset %q; %s", m.Preset, wording.DidYouMean(m.Preset, preset.Names()))
		}
	}
	if m.Key != "" && !slices.Contains(format.Keys, m.Key) {
		fail("key", "there is no key format %q; use one of %s", m.Key, strings.Join(format.Keys, ", "))
	}
	if m.Value != "" && !slices.Contains(format.Values(), m.Value) {
		fail("value", "there is no value format %q; use one of %s", m.Value, strings.Join(format.Values(), ", "))
	}
	for r := range preset.RoleCount {
		if err := column.CheckSpec(m.Columns.column(r)); err != nil {
			fail("columns."+r.String(), "%w", err)
		}
	}
	if err := column.CheckSpec(m.Partition); err != nil {
		fail("partition", "%w", err)
	}
	errs = append(errs, p.parseTopic()...)
	errs = append(errs, p.parseHeaders()...)
	errs = append(errs, p.checkFields()...)
	if m.Schema.Check || format.HasSchema(m.Value) {
		var err error
		if p.schemas, err = schemas.New(m.Schema); err != nil {
			errs = append(errs, p.configError("schema", err))
		}
	}
	switch {
	case m.CloudEventsSource == "":
	case !format.IsCloudEvents(m.Value):
		errs = append(errs, p.configError("cloudevents_source", advice.Give(fmt.Errorf("only value formats %s and %s have a source", format.CloudEvents, format.CloudEventsBinary), "set value to one of them, or leave this out")))
	case !format.IsURIReference(m.CloudEventsSource):
		fail("cloudevents_source", "%q is no URI reference; write one such as /shop/orders", m.CloudEventsSource)
	}
	return p, errors.Join(errs...)
}

func (m *mapping) configError(key string, err error) error {
	return &ConfigError{Path: m.Path + "." + key, Err: err}
}

func (m *mapping) parseTopic() (errs []error) {
	var err error
	if m.TopicRegex != "" {
		if _, err = regexp.Compile(m.TopicRegex); err != nil {
			errs = append(errs, m.configError("topic_regex", template.RegexError(m.TopicRegex, err)))
		} else if m.regex, err = regexp.Compile(anchored(m.TopicRegex)); err != nil {
			errs = append(errs, m.configError("topic_regex", err))
		}
	}
	if m.Topic == "" {
		if m.regex != nil && m.regex.SubexpIndex(preset.RoutedByValue) < 0 {
			errs = append(errs, m.configError("topic_regex", errNoGroupForPreset))
		}
		return errs
	}
	if m.topic, err = template.Parse(m.Topic); err != nil {
		return append(errs, m.configError("topic", fmt.Errorf("topic template %w", err)))
	}
	for _, p := range m.topic.Parts {
		literal := p.Literal
		for _, f := range p.Filters {
			switch f.Name {
			case "default":
				literal = f.Text
			case "topic":
				literal = ""
			}
		}
		if err := record.CheckTopicCharacters([]byte(literal)); err != nil {
			errs = append(errs, m.configError("topic", fmt.Errorf("%q cannot be part of a topic's name: a name %w", literal, err)))
		}
	}
	if len(m.topic.Names()) == 0 && len(errs) == 0 {
		if err := record.CheckTopicName([]byte(m.topic.Parts[0].Literal)); err != nil {
			errs = append(errs, m.configError("topic", fmt.Errorf("%q is not a topic: a name %w", m.Topic, err)))
		}
	}
	if m.regex != nil && slices.Contains(m.topic.Names(), preset.RoutedByValue) && m.regex.SubexpIndex(preset.RoutedByValue) < 0 {
		errs = append(errs, m.configError("topic", errNoGroup))
	}
	return errs
}

var errNoGroup = advice.Give(errors.New("the topic uses ${routedByValue}, and topic_regex has no group (?<routedByValue>…)"), "name a group routedByValue, or leave ${routedByValue} out")

var errNoGroupForPreset = advice.Give(errors.New("it has no group (?<routedByValue>…), of which the preset's topic is made"), "name a group routedByValue, or set topic")

// anchored makes expr match whole values only, as Java's matches does. The group
// is there so that an alternation does not escape the anchors.
func anchored(expr string) string { return `\A(?:` + expr + `)\z` }

func (m *mapping) parseHeaders() (errs []error) {
	m.headers = make([]*template.Template, len(m.Headers))
	for i, h := range m.Headers {
		key := "headers." + h.Name
		switch {
		case h.Name == "":
			errs = append(errs, m.configError("headers", advice.Give(errors.New("a header has no name"), "write name: column")))
		case strings.HasPrefix(h.Name, record.OwnPrefix):
			errs = append(errs, m.configError(key, advice.Give(errors.New("names that begin with "+record.OwnPrefix+" are those of position headers and dead letters"), "choose another name")))
		case format.IsCloudEvents(m.Value) && format.IsEventHeader(h.Name):
			errs = append(errs, m.configError(key, advice.Give(fmt.Errorf("value format %s sets this header itself", m.Value), "leave it out")))
		case strings.TrimSpace(h.Source) == "":
			errs = append(errs, m.configError(key, advice.Give(errors.New("names neither a column nor a template"), "write one, as in tenant: tenant_id")))
		case template.Is(h.Source):
			var err error
			if m.headers[i], err = template.Parse(h.Source); err != nil {
				errs = append(errs, m.configError(key, fmt.Errorf("header template %w", err)))
			}
		default:
			if err := column.CheckSpec(h.Source); err != nil {
				errs = append(errs, m.configError(key, err))
			}
		}
	}
	return errs
}

// payloadField is the member that an envelope keeps for the payload.
const payloadField = "payload"

func (m *mapping) checkFields() (errs []error) {
	if takers := format.WithFields(); len(m.ValueFields) > 0 && !slices.Contains(takers, m.Value) {
		last := len(takers) - 1
		return []error{m.configError("value_fields", advice.Give(fmt.Errorf("only value formats %s and %s take up fields", strings.Join(takers[:last], ", "), takers[last]), "set value to one of them, or leave this out"))}
	}
	seen := map[string]bool{}
	for _, f := range m.ValueFields {
		key := "value_fields." + f.Name
		switch {
		case f.Name == "":
			errs = append(errs, m.configError("value_fields", advice.Give(errors.New("a field has no name"), "write name: column")))
		case format.IsCloudEvents(m.Value) && (!format.ExtensionName.MatchString(f.Name) || slices.Contains(format.EventAttributes, f.Name)):
			errs = append(errs, m.configError(key, fmt.Errorf("an extension attribute is named with 1 to 20 lower-case letters and digits, and not %s", strings.Join(format.EventAttributes, ", "))))
		case m.Value == format.Envelope && f.Name == payloadField:
			errs = append(errs, m.configError(key, advice.Give(errors.New("the envelope keeps this member for the payload"), "choose another name")))
		case seen[f.Name]:
			errs = append(errs, m.configError(key, advice.Give(errors.New("is set twice"), "leave one out")))
		case f.Column == "":
			errs = append(errs, m.configError(key, advice.Give(errors.New("names no column"), "write one, as in type: event_type")))
		default:
			if err := column.CheckSpec(f.Column); err != nil {
				errs = append(errs, m.configError(key, err))
			}
		}
		seen[f.Name] = true
	}
	return errs
}
