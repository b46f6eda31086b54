package importer

import (
	"regexp"
	"strings"
)

// expressions rewrites Quarkus' ${NAME} and ${NAME:default} as references to variables, and
// removes the escape of a literal ${…}. It drops defaults that may be secrets.
func (c *conversion) expressions(key, value string) string {
	var b strings.Builder
	for value != "" {
		i := strings.Index(value, "${")
		if i < 0 {
			break
		}
		if i > 0 && (value[i-1] == '$' || value[i-1] == '\\') {
			b.WriteString(value[:i-1] + "${")
			value = value[i+2:]
			continue
		}
		end := closing(value, i+2)
		if end < 0 {
			break
		}
		b.WriteString(value[:i] + c.expression(key, value[i+2:end]))
		value = value[end+1:]
	}
	return b.String() + value
}

func (c *conversion) expression(key, body string) string {
	name, fallback, given := strings.Cut(body, ":")
	if strings.HasSuffix(key, ".replacement") && !given { // ${routedByValue}, and groups: Quarkus' mistake if it is one
		return "${" + body + "}"
	}
	variable := name
	if !isVariable(name) { // a property, which a variable of this name sets too
		variable = strings.ToUpper(notVariable.ReplaceAllString(name, "_"))
		if !isVariable(variable) {
			return "${" + body + "}"
		}
		c.unset[variable] = true
	}
	switch old, twice := c.fallback[variable]; {
	case !given:
	case secret(key) || strings.ContainsAny(fallback, "${}") || twice && old != fallback:
		c.unset[variable] = true
	default:
		c.fallback[variable] = fallback
	}
	return "${env:" + variable + "}"
}

var notVariable = regexp.MustCompile(`[^A-Za-z0-9_]`)

// closing is the brace that ends an expression, past those within.
func closing(text string, from int) int {
	depth := 1
	for i := from; i < len(text); i++ {
		switch text[i] {
		case '{':
			depth++
		case '}':
			if depth--; depth == 0 {
				return i
			}
		}
	}
	return -1
}

// variable is our reference to a variable of the input's, and what is to do where
// its default is not copied.
func (c *conversion) variable(name string) (ours string, todo []string) {
	if c.unset[name] {
		return "${" + name + "}", []string{"set " + name + ": what the file gives it is not copied"}
	}
	if fallback, ok := c.fallback[name]; ok {
		return "${" + name + ":-" + fallback + "}", nil
	}
	return "${" + name + "}", nil
}
