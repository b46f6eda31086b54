package importer

import (
	"fmt"
	"strings"

	"github.com/goccy/go-yaml/ast"
)

// label adds a property that a resource says in its own words: known under key,
// shown as path.
func (r *yamlReader) label(path, key, value string, at ast.Node) error {
	r.out.shown[key] = path
	return r.add(key, value, at)
}

// tls is spec.tls of a KafkaConnect.
func (r *yamlReader) tls(n ast.Node, at ast.Node) error {
	r.hasTLS = true
	r.tlsAt = at
	mapping, ok := n.(ast.MapNode)
	if !ok {
		return nil
	}
	for it := mapping.MapRange(); it.Next(); {
		key, _ := yamlText(it.Key())
		var err error
		if list, ok := it.Value().(*ast.SequenceNode); ok && key == "trustedCertificates" {
			var refs []string
			for _, entry := range list.Values {
				if m, ok := entry.(ast.MapNode); ok {
					refs = append(refs, secretOf(m, "certificate", "pattern"))
				}
			}
			err = r.label("spec.tls."+key, "producer.ssl.truststore.certificates", strings.Join(refs, " "), it.Key())
		} else {
			err = r.add("spec.tls."+key, "", it.Key())
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// secretOf is a member of a Kubernetes Secret as a reference.
func secretOf(m ast.MapNode, members ...string) string {
	name, _ := yamlText(member(m, "secretName"))
	for _, key := range members {
		if n := member(m, key); n != nil {
			text, _ := yamlText(n)
			return "${secrets:" + name + ":" + text + "}"
		}
	}
	return "${secrets:" + name + ":*}"
}

// authentication writes spec.authentication of a KafkaConnect as the producer settings that
// Strimzi makes of it.
func (r *yamlReader) authentication(n ast.Node, at ast.Node) error {
	const path = "spec.authentication"
	mapping, ok := n.(ast.MapNode)
	if !ok {
		return yamlFail(r.file, at, path+" is not a mapping")
	}
	kind, _ := yamlText(member(mapping, "type"))
	used := map[string]bool{"type": true}
	text := func(name string) string {
		used[name] = true
		value, _ := yamlText(member(mapping, name))
		return value
	}
	inSecret := func(name string, members ...string) (string, ast.Node) {
		used[name] = true
		n := member(mapping, name)
		m, ok := n.(ast.MapNode)
		if !ok {
			return "", at
		}
		return secretOf(m, members...), n
	}
	var login []string
	put := func(name, value string) {
		if value != "" {
			login = append(login, fmt.Sprintf(`%s="%s"`, name, strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(value)))
		}
	}
	if err := r.mechanism(path, kind, at); err != nil {
		return err
	}
	switch kind {
	case "tls":
		for _, part := range []struct{ name, key string }{{"certificate", "producer.ssl.keystore.certificate.chain"}, {"key", "producer.ssl.keystore.key"}} {
			ref, where := inSecret("certificateAndKey", part.name)
			if err := r.label(path+".certificateAndKey."+part.name, part.key, ref, where); err != nil {
				return err
			}
		}
	case "plain", "scram-sha-256", "scram-sha-512":
		put("username", text("username"))
		password, _ := inSecret("passwordSecret", "password")
		put("password", password)
	case "oauth":
		put("clientId", text("clientId"))
		put("scope", text("scope"))
		clientSecret, _ := inSecret("clientSecret", "key")
		put("clientSecret", clientSecret)
		if err := r.label(path+".tokenEndpointUri", "producer.sasl.oauthbearer.token.endpoint.url", text("tokenEndpointUri"), at); err != nil {
			return err
		}
	}
	if len(login) > 0 {
		if err := r.label(path, "producer.sasl.jaas.config", "required "+strings.Join(login, " ")+";", at); err != nil {
			return err
		}
	}
	for it := mapping.MapRange(); it.Next(); {
		if name, _ := yamlText(it.Key()); !used[name] {
			if err := r.add(path+"."+name, "", it.Key()); err != nil {
				return err
			}
		}
	}
	return nil
}

// mechanism labels the SASL mechanism of an authentication; type tls has none.
func (r *yamlReader) mechanism(path, kind string, at ast.Node) error {
	if r.sasl = kind != "tls"; !r.sasl {
		return nil
	}
	mechanism := strings.ToUpper(kind)
	if kind == "oauth" {
		mechanism = "OAUTHBEARER"
	}
	return r.label(path+".type", "producer.sasl.mechanism", mechanism, at)
}

// protocol is what spec.tls and spec.authentication come to.
func (r *yamlReader) protocol() error {
	path, at, name := "spec.tls", r.tlsAt, "SSL"
	switch {
	case r.hasTLS && r.sasl:
		name = "SASL_SSL"
	case r.sasl:
		path, at, name = "spec.authentication", r.authAt, "SASL_PLAINTEXT"
	case !r.hasTLS:
		return nil
	}
	if _, given := r.out.get("producer.security.protocol"); given {
		return nil
	}
	if _, named := r.out.get("producer.sasl.jaas.config"); named && path == "spec.authentication" {
		path = "spec.authentication (without spec.tls)"
	}
	return r.label(path, "producer.security.protocol", name, at)
}
