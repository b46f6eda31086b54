package config

import (
	"slices"
	"strings"
)

// actingKeys are those that are set of what concerns operators.
func (l *loader) actingKeys() (keys []string) {
	c := &l.cfg.settings.HTTP.Console
	for key, set := range map[string]bool{"actions": c.Actions, "payloads": c.Payloads, "operator_token_file": c.OperatorTokenFile != ""} {
		if set {
			keys = append(keys, "http.console."+key)
		}
	}
	slices.Sort(keys)
	return keys
}

// checkNoHistory refuses a time for which figures are kept where none are.
func (l *loader) checkNoHistory(needs, values string) {
	if l.cfg.settings.HTTP.Console.History != l.usual().HTTP.Console.History {
		l.noEffect("http.console.history", needs, values)
	}
}

// checkOperator refuses a console at which everybody could act, or nobody.
func (l *loader) checkOperator() {
	h := &l.cfg.settings.HTTP
	c := &h.Console
	l.checkSecret("http.console.operator_token", "", c.OperatorTokenFile, nil)
	if !c.Enabled {
		for _, key := range l.actingKeys() {
			l.noEffect(key, "http.console.enabled", "true")
		}
		l.checkNoHistory("http.console.enabled", "true")
		return
	}
	if c.OperatorTokenFile == "" {
		for _, key := range l.actingKeys() {
			l.refuse(key, "needs http.console.operator_token_file: without it everybody who reaches http.listen could act, on loopback everybody of this machine; name a file that holds the token of operators")
		}
		return
	}
	if !c.Actions && !c.Payloads {
		l.noEffect("http.console.operator_token_file", "http.console.actions or http.console.payloads", "true")
	}
	operator, err := readSecret(l.cfg.readFile, c.OperatorTokenFile)
	if err != nil {
		return // checkSecret has told why it cannot be read
	}
	token := string(h.Token)
	if token == "" && h.TokenFile != "" {
		token, _ = readSecret(l.cfg.readFile, h.TokenFile)
	}
	if operator == token {
		l.refuse("http.console.operator_token_file", "holds the same token as http.token: whoever may look could act; write another token into it")
	}
	if strings.ContainsFunc(operator, func(r rune) bool { return r <= ' ' || r > '~' }) {
		l.refuse("http.console.operator_token_file", "the token holds a space, a line break or a sign beyond ASCII, which no header carries; allowed: visible ASCII characters")
	}
}
