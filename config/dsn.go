package config

import (
	"net/url"
	"regexp"
	"strconv"
	"strings"
)

// dsn is a libpq URL or keyword string. It may hold a password, so it prints
// masked, and entirely hidden when it cannot be understood.
type dsn string

// dsnParts is what can be told from a dsn without a server. masked is the dsn
// with its secrets hidden.
type dsnParts struct {
	masked      string
	sslmode     string // empty: not given
	hasPassword bool
	user        string // as it stands there, decoded; empty: not given
	database    string
}

var (
	dsnURL     = regexp.MustCompile(`^(postgres(?:ql)?://)(?:([^@/?]*)@)?([^@/?#]*)(/[^@?#]*)?(?:\?([^#]*))?$`)
	dsnKeyword = regexp.MustCompile(`^\s*([a-z_]+)\s*=\s*('(?:[^'\\]|\\.)*'|(?:[^\s'\\]|\\.)*)`)
)

// shownParameters are those whose values are no secrets. Any other is hidden, options above all:
// with -c it sets whatever setting there is.
var shownParameters = map[string]bool{
	"host": true, "hostaddr": true, "port": true, "dbname": true, "user": true, "passfile": true,
	"service": true, "servicefile": true, "target_session_attrs": true, "load_balance_hosts": true,
	"connect_timeout": true, "application_name": true, "fallback_application_name": true, "client_encoding": true,
	"keepalives": true, "keepalives_idle": true, "keepalives_interval": true, "keepalives_count": true, "tcp_user_timeout": true,
	"sslmode": true, "sslnegotiation": true, "sslcompression": true, "sslsni": true, "sslcert": true, "sslkey": true,
	"sslcertmode": true, "sslrootcert": true, "sslcrl": true, "sslcrldir": true,
	"ssl_min_protocol_version": true, "ssl_max_protocol_version": true, "min_protocol_version": true, "max_protocol_version": true,
	"channel_binding": true, "require_auth": true, "requirepeer": true,
	"gssencmode": true, "gssdelegation": true, "gsslib": true, "krbsrvname": true, "krbspn": true, "replication": true,
	"search_path": true, "statement_timeout": true, "lock_timeout": true, "idle_in_transaction_session_timeout": true,
	"tcp_keepalives_idle": true, "tcp_keepalives_interval": true, "tcp_keepalives_count": true, "timezone": true,
}

var sslModes = []string{"disable", "allow", "prefer", "require", "verify-ca", "verify-full"}

func (d dsn) String() string {
	if d == "" {
		return ""
	}
	if parts, ok := d.parse(); ok {
		return parts.masked
	}
	return masked
}

// parse reports false for what is neither form. It is stricter than libpq: an
// unencoded `@`, `/` or `?` in a password would otherwise be taken for the end
// of it and the rest of the password be shown.
func (d dsn) parse() (dsnParts, bool) {
	if strings.Contains(string(d), "://") {
		return d.parseURL()
	}
	return d.parseKeywords()
}

func (d dsn) parseURL() (dsnParts, bool) {
	m := dsnURL.FindStringSubmatch(string(d))
	if m == nil {
		return dsnParts{}, false
	}
	scheme, userinfo, authority, path, query := m[1], m[2], m[3], m[4], m[5]
	if strings.Contains(query, "@") && !strings.Contains(string(d)[:len(d)-len(query)], "@") {
		return dsnParts{}, false
	}
	var p dsnParts
	p.masked = scheme
	if user, _, found := strings.Cut(userinfo, ":"); found {
		p.hasPassword = true
		p.masked += user + ":" + masked + "@"
		p.user = unescaped(user)
	} else if userinfo != "" {
		p.masked += userinfo + "@"
		p.user = unescaped(userinfo)
	}
	p.database = unescaped(strings.TrimPrefix(path, "/"))
	p.masked += authority + path
	for host := range strings.SplitSeq(authority, ",") {
		if !hasPort(host) {
			return dsnParts{}, false
		}
	}
	if query == "" {
		return p, true
	}
	var items []string
	for item := range strings.SplitSeq(query, "&") {
		key, value, found := strings.Cut(item, "=")
		if !found || key == "" {
			return dsnParts{}, false
		}
		items = append(items, key+"="+p.add(key, value))
	}
	p.masked += "?" + strings.Join(items, "&")
	return p, true
}

func (d dsn) parseKeywords() (dsnParts, bool) {
	var p dsnParts
	var items []string
	rest := strings.TrimSpace(string(d))
	for rest != "" {
		m := dsnKeyword.FindStringSubmatch(rest)
		if m == nil {
			return dsnParts{}, false
		}
		next := rest[len(m[0]):]
		if next != "" && strings.TrimLeft(next, " \t\r\n") == next {
			return dsnParts{}, false
		}
		items = append(items, m[1]+"="+p.add(m[1], m[2]))
		rest = strings.TrimSpace(next)
	}
	p.masked = strings.Join(items, " ")
	return p, len(items) > 0
}

// add takes up one parameter and returns its value as it may be shown.
func (p *dsnParts) add(key, value string) string {
	plain := strings.Trim(value, "'")
	switch key {
	case "sslmode":
		p.sslmode = plain
	case "user":
		p.user = plain
	case "dbname":
		p.database = plain
	}
	p.hasPassword = p.hasPassword || key == "password"
	if !shownParameters[strings.ToLower(key)] {
		return masked
	}
	return value
}

// unescaped undoes a URL's percent signs.
func unescaped(text string) string {
	if plain, err := url.PathUnescape(text); err == nil {
		return plain
	}
	return text
}

// hasPort reports whether what follows the last colon, if there is one, is a port. Else
// it may be a password.
func hasPort(host string) bool {
	i := strings.LastIndexByte(host, ':')
	if i < 0 || strings.HasSuffix(host, "]") {
		return true
	}
	_, err := strconv.ParseUint(host[i+1:], 10, 16)
	return err == nil
}
