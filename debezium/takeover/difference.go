package takeover

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/cdc-relay/cdc-relay/config"
	"github.com/cdc-relay/cdc-relay/debezium"
	"github.com/cdc-relay/cdc-relay/debezium/options"
	"github.com/cdc-relay/cdc-relay/relay"
	"github.com/cdc-relay/cdc-relay/router"
	"github.com/cdc-relay/cdc-relay/wording"
)

// differences says what the configuration's debezium: blocks have otherwise than
// the connector. Tables without such a block are not compared.
func (c *Takeover) differences() ([]string, error) {
	theirs, err := c.connectorMappings()
	if err != nil {
		return nil, err
	}
	var list, told []string
	for _, their := range theirs {
		ours := c.settings.Router.Mappings
		i := slices.IndexFunc(ours, func(m router.Mapping) bool { return m.Table == their.Table })
		switch {
		case i >= 0 && ours[i].Connector != nil:
			for _, d := range settingDifferences(settingsOf(their), settingsOf(ours[i])) {
				if !slices.Contains(told, d) || their.Table != "" { // messages share the block of a table, as a rule
					list = append(list, subjectOf(their)+": "+d)
				}
				told = append(told, d)
			}
		case i < 0 && their.Table == "":
			list = append(list, "logical messages: the connector sends them, the configuration has no message_prefix with debezium")
		}
	}
	return list, nil
}

// connectorMappings are what import makes of the connector.
func (c *Takeover) connectorMappings() ([]router.Mapping, error) {
	settings, err := c.connectorSettings()
	return settings.Router.Mappings, err
}

// connectorSettings are those of the import, without what the environment or --set say
// about the relay.
func (c *Takeover) connectorSettings() (relay.Config, error) {
	const path = "import"
	imported, err := config.Load(config.Options{
		Path:    path,
		Partial: true, WithoutSecrets: true,
		Environ: slices.DeleteFunc(slices.Clone(c.options.Environ), func(v string) bool { return strings.HasPrefix(v, "CDC_RELAY_") }),
		ReadFile: func(name string) ([]byte, error) {
			if name != path {
				return nil, fmt.Errorf("%s is not read", name)
			}
			return c.imported.YAML, nil
		},
	})
	if err != nil {
		return relay.Config{}, err
	}
	return imported.Relay(), nil
}

func subjectOf(m router.Mapping) string {
	if m.Table == "" {
		return "logical messages"
	}
	return m.Table
}

// settingsOf are the settings in a mapping's block debezium.
func settingsOf(m router.Mapping) debezium.Config {
	settings, _ := m.Connector.(debezium.Config)
	return settings
}

// settingDifferences compares two blocks. A setting that only one of them writes out
// is compared with Debezium's default.
func settingDifferences(theirs, ours []debezium.Setting) []string {
	var list []string
	for _, their := range theirs {
		our, ok := settingOf(ours, their.Name)
		if !ok && !isDefault(their) {
			list = append(list, fmt.Sprintf("%s: connector %s, configuration none", settingName(their.Name), settingValue(their)))
		} else if ok && strings.TrimSpace(our.Value) != strings.TrimSpace(their.Value) {
			list = append(list, fmt.Sprintf("%s: connector %s, configuration %s", settingName(their.Name), settingValue(their), settingValue(our)))
		}
	}
	for _, our := range ours {
		if _, ok := settingOf(theirs, our.Name); !ok && !isDefault(our) {
			list = append(list, fmt.Sprintf("%s: connector none, configuration %s", settingName(our.Name), settingValue(our)))
		}
	}
	return list
}

// isDefault reports whether a setting says what Debezium does without it.
func isDefault(s debezium.Setting) bool {
	o, known := options.Lookup(options.ScopeConnector, "", s.Name)
	if parts := strings.SplitN(s.Name, ".", 3); parts[0] == "transforms" && len(parts) == 3 {
		o, known = options.Lookup(options.ScopeEventRouter, "", parts[2])
	}
	return known && o.Default != "" && strings.EqualFold(strings.TrimSpace(s.Value), o.Default)
}

func settingOf(list []debezium.Setting, name string) (debezium.Setting, bool) {
	for _, s := range list {
		if s.Name == name {
			return s, true
		}
	}
	return debezium.Setting{}, false
}

// salted is a name that holds a secret: column.mask.hash.SHA-256.with.salt.SALT.
var salted = regexp.MustCompile(`(\.with\.salt\.).*`)

func settingName(name string) string { return salted.ReplaceAllString(name, "$1…") }

func settingValue(s debezium.Setting) string {
	if wording.Secretive.MatchString(s.Name) {
		return "a value that is not shown"
	}
	return fmt.Sprintf("%q", s.Value)
}
