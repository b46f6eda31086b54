package importer

import (
	"fmt"
	"path"
	"regexp"
	"strings"
)

// reference is what a config provider of Connect would put in place of ${…}:
// ${provider:path:key} or ${provider:key}. A ${…} without a colon is none.
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

// resolve gives the value with Connect's references replaced by ours, and for each
// that a person has to fill in a sentence. variable names what is made up.
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
			replacement = "${" + ref.key + "}"
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
		return fmt.Sprintf("key %s of the properties file %s", ref.key, ref.path)
	case "secrets":
		return fmt.Sprintf("key %s of the Kubernetes Secret %s", ref.key, ref.path)
	case "env":
		return fmt.Sprintf("the worker's variable %s", ref.key)
	case "configmaps":
		return fmt.Sprintf("key %s of the ConfigMap %s", ref.key, ref.path)
	}
	return fmt.Sprintf("config provider %s with %s", ref.provider, strings.Trim(ref.path+":"+ref.key, ":"))
}

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

// secret says that a value under the key is not to be shown.
func secret(key string) bool { return secretWords.MatchString(key) && !strings.HasSuffix(key, ".url") }

// shown is a value as a remark may quote it.
func shown(key, value string) string {
	if secret(key) {
		return "***"
	}
	if runes := []rune(value); len(runes) > 120 {
		value = string(runes[:120]) + "…"
	}
	return fmt.Sprintf("%q", value)
}
