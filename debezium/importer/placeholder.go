package importer

import (
	"cmp"
	"fmt"
	"path"
	"regexp"
	"strings"
)

// reference is a ${provider:path:key} or ${provider:key} that a config provider of Connect
// resolves. A ${…} without a colon is no reference.
type reference struct {
	text     string // as it stands there
	provider string
	path     string
	key      string
}

var referenceForm = regexp.MustCompile(`\$\{([^}:$]+):(?:([^}]*):)?([^}]*)\}`)

func references(value string) []reference {
	var found []reference
	for _, m := range referenceForm.FindAllStringSubmatch(value, -1) {
		found = append(found, reference{m[0], m[1], m[2], m[3]})
	}
	return found
}

// Kinds of config providers, by the last part of their class.
var providerKinds = map[string]string{
	"FileConfigProvider": "file", "EnvVarConfigProvider": "env", "DirectoryConfigProvider": "dir",
	"KubernetesSecretConfigProvider": "secrets", "KubernetesConfigMapConfigProvider": "configmaps",
}

// providerKind asks the worker's settings, then takes the usual names.
func (c *conversion) providerKind(name string) string {
	if c.in.server() && name == "env" {
		return name
	}
	if class, ok := c.worker.get("config.providers." + name + ".class"); ok {
		if kind := providerKinds[class.value[strings.LastIndexByte(class.value, '.')+1:]]; kind != "" {
			return kind
		}
		return "other"
	}
	switch name {
	case "file", "env", "secrets", "configmaps":
		return name
	case "dir", "directory":
		return "dir"
	}
	return "other"
}

// resolve replaces Connect's references by ours. todo has one sentence for each value that a
// person has to supply. variable is the name for a new variable.
func (c *conversion) resolve(value, variable string) (ours string, todo []string) {
	ours = value
	for i, ref := range references(value) {
		name := variable
		if i > 0 {
			name = fmt.Sprintf("%s_%d", variable, i+1)
		}
		var replacement string
		switch kind := c.providerKind(ref.provider); {
		case kind == "env" && isVariable(ref.key) && ref.path == "":
			var unset []string
			replacement, unset = c.variable(ref.key)
			todo = append(todo, unset...)
		case kind == "dir" && ref.path != "" && !strings.ContainsAny(ref.path+ref.key, "{}$"):
			replacement = "${file:" + path.Join(ref.path, ref.key) + "}"
		default:
			replacement = "${" + name + "}"
			todo = append(todo, fmt.Sprintf("set %s to what %s gives", name, describeReference(kind, ref)))
			c.result.Source.Placeholders[name] = describeReference(kind, ref)
		}
		ours = strings.Replace(ours, ref.text, replacement, 1)
	}
	return ours, todo
}

func describeReference(kind string, ref reference) string {
	switch kind {
	case "file":
		return fmt.Sprintf("key %s of the properties file %s", bare(ref.key), bare(ref.path))
	case "secrets":
		return fmt.Sprintf("key %s of the Kubernetes Secret %s", bare(ref.key), bare(ref.path))
	case "env":
		return fmt.Sprintf("the worker's variable %s", bare(cmp.Or(ref.path, ref.key)))
	case "configmaps":
		return fmt.Sprintf("key %s of the ConfigMap %s", bare(ref.key), bare(ref.path))
	}
	return fmt.Sprintf("config provider %s with %s", bare(ref.provider), bare(cmp.Or(ref.path, ref.key)))
}

var bareName = regexp.MustCompile(`^[A-Za-z0-9_./*@ -]*`)

// bare is the name at the head of a reference's part: what stands behind may be a
// default, and so a secret.
func bare(part string) string { return bareName.FindString(part) }

// plain is the reference without what may be a default.
func (r reference) plain() string {
	if path := bare(r.path); path != r.path || r.path == "" {
		return "${" + r.provider + ":" + bare(cmp.Or(path, r.key)) + "}"
	}
	return "${" + r.provider + ":" + r.path + ":" + bare(r.key) + "}"
}

// withoutDefaults is the value with its references as they may be shown.
func withoutDefaults(value string) string {
	for _, ref := range references(value) {
		value = strings.Replace(value, ref.text, ref.plain(), 1)
	}
	return value
}

var (
	saltKey  = regexp.MustCompile(`(?is)(with[._]salt[._]).*`)
	saltWord = regexp.MustCompile(`(?i)(with[._]salt[._])\S+`)
)

// shownKey is a key as it may be printed: column.mask.hash has its salt there.
func shownKey(key string) string { return saltKey.ReplaceAllString(key, "${1}***") }

func isVariable(name string) bool {
	for i, r := range name {
		letter := r == '_' || 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z'
		if !letter && (i == 0 || r < '0' || r > '9') {
			return false
		}
	}
	return name != ""
}

var secretWords = regexp.MustCompile(`(?i)passw|passphrase|secret|token$|jaas|\.key$|key\.?pem|credential|keystore\.(?:key|certificate)|user\.info|api[._]?key`)

// secret reports whether a value under the key is not to be shown.
func secret(key string) bool { return secretWords.MatchString(key) && !strings.HasSuffix(key, ".url") }

// shown is a value as a remark may quote it.
func shown(key, value string) string {
	if secret(key) {
		return "***"
	}
	if runes := []rune(value); len(runes) > 120 {
		value = string(runes[:120]) + "…"
	}
	return fmt.Sprintf("%q", withoutDefaults(value))
}
