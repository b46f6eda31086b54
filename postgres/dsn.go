package postgres

import (
	"errors"
	"io/fs"
	"maps"
	"net"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"strings"

	"github.com/cdc-relay/cdc-relay/fault"
	"github.com/jackc/pgservicefile"
	"github.com/jackc/pgx/v5/pgconn"
)

// target is one server to try, in one of the ways its sslmode permits.
type target struct {
	pgconn.FallbackConfig
	first bool // first way of this host
	last  bool // no other way of this host follows
}

// addr names the target in errors.
func (t target) addr() string {
	_, address := pgconn.NetworkAddress(t.Host, t.Port)
	return address
}

func (t target) local() bool { return isLocal(t.Host) }

// isLocal reports whether a host needs no encryption: its traffic does not leave
// the machine. A name that merely resolves to loopback does not count, because
// whoever answers the lookup decides that.
func isLocal(host string) bool {
	if strings.HasPrefix(host, "/") || strings.EqualFold(host, "localhost") {
		return true
	}
	ip, err := netip.ParseAddr(host)
	return err == nil && ip.Unmap().IsLoopback()
}

// dsn is a parsed connection string under our TLS policy.
type dsn struct {
	config  *pgconn.Config
	targets []target
	sslmode string // as given anywhere, or empty
}

// parseDSN resolves the connection string like libpq, PG* variables and service
// files included, except that TLS is verified in full unless an sslmode was
// given or the host is local. libpq's own default would fall back to clear text.
func parseDSN(connString string) (*dsn, error) {
	config, err := pgconn.ParseConfig(connString)
	if err != nil {
		failure := parseFailure(err)
		hint := "it is a libpq URL (postgres://user@host:5432/database) or keywords (host=… user=… dbname=…)"
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) || strings.Contains(failure, "no such file") || strings.Contains(failure, "permission denied") {
			hint = "correct the path, or put the file there, readable for the user that the relay runs as"
		} else if strings.HasPrefix(failure, "failed to configure TLS") && !strings.Contains(failure, "sslmode") {
			hint = "sslrootcert names certificates, sslcert and sslkey a certificate and its key, all in PEM form"
		}
		return nil, &fault.Error{Kind: fault.KindRefused, Reason: fault.ReasonConfiguration, Op: "read the PostgreSQL URL", Err: errors.New(failure), Hint: hint}
	}
	settings := explicitSettings(connString)
	d := &dsn{config: config, sslmode: settings["sslmode"]}
	if settings["sslrootcert"] == "system" {
		d.sslmode = "verify-full" // which is what pgconn makes of it
	}
	ways := append([]*pgconn.FallbackConfig{{Host: config.Host, Port: config.Port, TLSConfig: config.TLSConfig}}, config.Fallbacks...)
	for i, way := range ways {
		t := target{FallbackConfig: *way}
		t.first = i == 0 || way.Host != ways[i-1].Host || way.Port != ways[i-1].Port
		if d.sslmode == "" && !t.local() {
			if t.TLSConfig == nil {
				continue // the clear-text way of libpq's default, prefer
			}
			t.TLSConfig = t.TLSConfig.Clone()
			t.TLSConfig.InsecureSkipVerify = false
			t.TLSConfig.ServerName = t.Host
		}
		d.targets = append(d.targets, t)
	}
	for i := range d.targets {
		d.targets[i].last = i+1 == len(d.targets) || d.targets[i+1].first
	}
	return d, nil
}

// Hosts are the servers that cfg.URL names, without connecting.
func Hosts(cfg Config) (hosts []string, err error) {
	d, err := parseDSN(cfg.URL)
	if err != nil {
		return nil, err
	}
	for _, t := range d.targets {
		if t.first {
			hosts = append(hosts, t.addr())
		}
	}
	return hosts, nil
}

// Where is the first server that cfg.URL names, and the database, for people; empty if the URL cannot be
// read. It has neither user nor password.
func Where(cfg Config) string {
	d, err := parseDSN(cfg.URL)
	if err != nil || len(d.targets) == 0 {
		return ""
	}
	return d.targets[0].addr() + "/" + d.config.Database
}

// CheckURL parses cfg.URL without connecting. The warnings name explicitly
// weakened TLS; none of them, nor the error, shows the URL.
func CheckURL(cfg Config) (warnings []string, err error) {
	d, err := parseDSN(cfg.URL)
	if err != nil {
		return nil, err
	}
	var remote []string
	for _, t := range d.targets {
		if t.first && !t.local() {
			remote = append(remote, t.addr())
		}
	}
	if len(remote) == 0 {
		return nil, nil
	}
	hosts := strings.Join(remote, ", ")
	switch d.sslmode {
	case "disable":
		warnings = append(warnings, "sslmode=disable: the connection to "+hosts+" is not encrypted; anybody on the way can read and change rows")
	case "allow", "prefer":
		warnings = append(warnings, "sslmode="+d.sslmode+": the connection to "+hosts+" may silently be unencrypted; use sslmode=verify-full")
	case "require":
		if d.targets[0].TLSConfig != nil && d.targets[0].TLSConfig.VerifyPeerCertificate == nil {
			warnings = append(warnings, "sslmode=require: the connection to "+hosts+" is encrypted, but the server's certificate is not checked; use sslmode=verify-full")
			break
		}
		fallthrough // with a root certificate, require means verify-ca
	case "verify-ca":
		warnings = append(warnings, "sslmode="+d.sslmode+": the certificate of "+hosts+" is checked, but not that it is for that host; use sslmode=verify-full")
	}
	if cfg.Insecure {
		warnings = append(warnings, "insecure: a password may be sent in clear text to "+hosts)
	}
	return warnings, nil
}

// parseFailure says what is wrong with a connection string in words that
// cannot quote it: a malformed one may have its password anywhere.
func parseFailure(err error) string {
	text := err.Error()
	if i := strings.LastIndex(text, "`: "); i >= 0 {
		text = text[i+len("`: "):]
	}
	for prefix, quote := range map[string]bool{
		"failed to configure TLS":                         true,
		"failed to read service":                          true,
		"could not match":                                 true,
		"invalid port":                                    false,
		"invalid connect_timeout":                         false,
		"invalid sslcertmode":                             false,
		"invalid require_auth":                            false,
		"unknown target_session_attrs value":              false,
		"unknown channel_binding value":                   false,
		"min_protocol_version cannot be greater than max": false,
		"invalid min_protocol_version":                    false,
		"invalid max_protocol_version":                    false,
		"failed to parse as URL":                          false,
		"failed to parse as keyword/value":                false,
	} {
		if !strings.HasPrefix(text, prefix) {
			continue
		}
		if quote {
			return text
		}
		return prefix
	}
	return "it is malformed"
}

// explicitSettings are the settings that somebody chose: in the connection
// string, its service file or the environment, in that order of precedence.
// pgconn merges its defaults in and does not say which are which.
func explicitSettings(connString string) map[string]string {
	given := stringSettings(connString)
	all := make(map[string]string)
	for variable, key := range map[string]string{
		"PGSSLMODE": "sslmode", "PGSSLROOTCERT": "sslrootcert", "PGSERVICE": "service", "PGSERVICEFILE": "servicefile",
		"PGAPPNAME": "application_name", "PGTARGETSESSIONATTRS": "target_session_attrs",
	} {
		if value := os.Getenv(variable); value != "" {
			all[key] = value
		}
	}
	service, file := all["service"], all["servicefile"]
	if given["service"] != "" {
		service = given["service"]
	}
	if given["servicefile"] != "" {
		file = given["servicefile"]
	}
	if file == "" {
		if home, err := os.UserHomeDir(); err == nil {
			file = filepath.Join(home, ".pg_service.conf")
		}
	}
	if service != "" {
		if services, err := pgservicefile.ReadServicefile(file); err == nil {
			if s, err := services.GetService(service); err == nil {
				maps.Copy(all, s.Settings)
			}
		}
	}
	maps.Copy(all, given)
	return all
}

// stringSettings reads the parameters of a connection string. What it misses
// counts as not given, which is the stricter reading.
func stringSettings(s string) map[string]string {
	if rest, ok := strings.CutPrefix(s, "postgres://"); ok {
		return uriSettings(rest)
	}
	if rest, ok := strings.CutPrefix(s, "postgresql://"); ok {
		return uriSettings(rest)
	}
	return keywordSettings(s)
}

func uriSettings(rest string) map[string]string {
	settings := make(map[string]string)
	if i := strings.IndexAny(rest, "@/"); i >= 0 && rest[i] == '@' {
		rest = rest[i+1:] // user and password, where a question mark means nothing
	}
	_, query, _ := strings.Cut(rest, "?")
	for pair := range strings.SplitSeq(query, "&") {
		key, value, _ := strings.Cut(pair, "=")
		key, errKey := url.PathUnescape(key)
		value, errValue := url.PathUnescape(value)
		if errKey != nil || errValue != nil {
			continue
		}
		if key == "ssl" && value == "true" {
			key, value = "sslmode", "require"
		}
		settings[key] = value
	}
	return settings
}

func keywordSettings(s string) map[string]string {
	const space = " \t\n\r\v\f"
	settings := make(map[string]string)
	for {
		key, rest, ok := strings.Cut(s, "=")
		if !ok {
			return settings
		}
		rest = strings.TrimLeft(rest, space)
		end := space
		if strings.HasPrefix(rest, "'") {
			rest, end = rest[1:], "'"
		}
		var value strings.Builder
		i := 0
		for ; i < len(rest) && strings.IndexByte(end, rest[i]) < 0; i++ {
			if rest[i] == '\\' && i+1 < len(rest) {
				i++
			}
			value.WriteByte(rest[i])
		}
		settings[strings.Trim(key, space)] = value.String()
		s = rest[min(i+1, len(rest)):]
	}
}

// RemoteAddr names the server that answered.
func RemoteAddr(conn *pgconn.PgConn) string {
	if addr, ok := conn.Conn().RemoteAddr().(*net.TCPAddr); ok {
		return addr.String()
	}
	return "the local socket"
}
