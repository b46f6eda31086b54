package config

import (
	"fmt"
	"net"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/cdc-relay/cdc-relay/config/document"
	"github.com/cdc-relay/cdc-relay/loopback"
	"github.com/cdc-relay/cdc-relay/postgres"
	"github.com/cdc-relay/cdc-relay/relay"
	"github.com/cdc-relay/cdc-relay/replication/wal"
	"github.com/cdc-relay/cdc-relay/router"
	"github.com/cdc-relay/cdc-relay/router/record"
)

var slotName = regexp.MustCompile(`^[a-z0-9_]{1,63}$`)

// check finds what no single value shows. It opens files, never connections.
func (l *loader) check() {
	l.checkPostgres()
	l.checkTables()
	l.checkShards()
	l.checkKafka()
	l.checkSchemas()
	l.checkRelay()
	l.checkRetention()
	l.checkHTTP()
	l.checkTracing()
	l.checkRouter()
}

// maxWalSenderTimeout is PostgreSQL's, which has 31 bits for the milliseconds, in
// whole hours.
const maxWalSenderTimeout = 596 * time.Hour

func (l *loader) checkPostgres() {
	p := &l.cfg.settings.Postgres
	l.preferURLOfFlag()
	l.checkURL()
	l.checkSecret("postgres.password", p.Password, p.PasswordFile, p.PasswordCommand)
	l.checkPostgresAuth()
	if !slotName.MatchString(p.Slot) {
		l.refuse("postgres.slot", "%q is not a slot name; allowed: a-z, 0-9 and _, 1 to 63 of them", p.Slot)
	}
	if p.Publication == "" || len(p.Publication) > 63 || !utf8.ValidString(p.Publication) || strings.ContainsRune(p.Publication, 0) {
		l.refuse("postgres.publication", "%q is not a publication name; allowed: 1 to 63 bytes", p.Publication)
	}
	if d := time.Duration(p.WalSenderTimeout); d < time.Second || d > maxWalSenderTimeout {
		l.refuse("postgres.wal_sender_timeout", "%v is not allowed; allowed: from 1s to %v", p.WalSenderTimeout, duration(maxWalSenderTimeout))
	}
}

// checkShards refuses what the rows of one slot have and those of several have not.
func (l *loader) checkShards() {
	s := &l.cfg.settings
	p := &s.Postgres
	if p.Shards < 1 || p.Shards > postgres.MaxShards {
		l.refuse("postgres.shards", "%d is not allowed; allowed: 1 to %d", p.Shards, postgres.MaxShards)
		return
	}
	if p.Shards == 1 {
		if len(p.OwnShards) > 0 {
			l.noEffect("postgres.own_shards", "postgres.shards", "2 or more")
		}
		return
	}
	for _, text := range p.OwnShards {
		if n, err := strconv.Atoi(text); err != nil || n < 0 || n >= p.Shards || strconv.Itoa(n) != text {
			l.refuse("postgres.own_shards", "%q is not a shard; allowed: 0 to %d", text, p.Shards-1)
		}
	}
	for _, name := range []pair{{"slot", p.Slot}, {"publication", p.Publication}} {
		if longest := postgres.LongestShardName(name.Value, p.Shards); len(longest) > 63 {
			l.refuse("postgres."+name.Name, "%q is too long: with shards there is also %q, and a name has at most 63 bytes", name.Value, longest)
		}
	}
	if s.Relay.PositionHeaders {
		l.refuse("relay.position_headers", "needs postgres.shards: 1: cdc-relay-seq counts the rows of one slot, so two rows of a transaction could have the same position")
	}
	for i, w := range l.cfg.wants() {
		if w.Update || w.Delete || w.Truncate || w.Commit {
			l.refuse("postgres.shards", "%d is not possible with %s, whose debezium options deliver more than inserts: an update may move a row from one shard to another; allowed: 1, or skipped.operations: u,d,t without provide.transaction.metadata", p.Shards, l.cfg.tables[i])
		}
	}
}

// preferURLOfFlag has a password in a URL on the command line go before one of the file or
// the environment, as the command line does: it is somebody else's who connects for once.
func (l *loader) preferURLOfFlag() {
	p := &l.cfg.settings.Postgres
	parts, ok := p.URL.parse()
	if !ok || !parts.hasPassword || l.cfg.origins["postgres.url"].source != flagSource {
		return
	}
	for path, forget := range map[string]func(){
		"postgres.password":         func() { p.Password = "" },
		"postgres.password_file":    func() { p.PasswordFile = "" },
		"postgres.password_command": func() { p.PasswordCommand = nil },
	} {
		if l.cfg.origins[path].source != flagSource {
			forget()
			delete(l.cfg.origins, path)
		}
	}
}

func (l *loader) checkURL() {
	p := &l.cfg.settings.Postgres
	if p.URL == "" {
		if !l.partial && l.env["PGHOST"]+l.env["PGHOSTADDR"]+l.env["PGSERVICE"] == "" {
			l.refuse("postgres.url", "is missing; set it in the file, as CDC_RELAY_POSTGRES_URL or with --set, for example postgres://relay@db:5432/shop")
		}
		return
	}
	parts, ok := l.checkDSN("postgres.url", p.URL)
	if !ok {
		return
	}
	if parts.hasPassword && (p.Password != "" || p.PasswordFile != "" || len(p.PasswordCommand) > 0 || l.cfg.IAM()) {
		l.warn("postgres.url: its password is not used, because another one is configured")
	}
}

// checkDSN refuses text that pgx cannot parse as a URL or as keywords and values.
func (l *loader) checkDSN(path string, url dsn) (parts dsnParts, ok bool) {
	parts, ok = url.parse()
	if !ok {
		l.refuse(path, "is neither a libpq URL (postgres://user@host:5432/database?sslmode=verify-full) nor a keyword string (host=… dbname=…); in a URL write %%40 for @, %%2F for / and %%3F for ? in user and password")
		return parts, false
	}
	if parts.sslmode != "" && !slices.Contains(sslModes, parts.sslmode) {
		l.refuse(path, "sslmode %q is not allowed; allowed: %s", parts.sslmode, strings.Join(sslModes, ", "))
		return parts, false
	}
	warnings, err := postgres.CheckURL(postgres.Config{URL: string(url), Insecure: l.cfg.settings.Postgres.Insecure})
	if err != nil {
		l.refuse(path, "%v", err)
	}
	for _, text := range warnings {
		l.warn("%s: %s", path, text)
	}
	return parts, true
}

// checkSecret requires at most one source, and a file that can be read now.
func (l *loader) checkSecret(path string, value secret, file string, command []string) {
	var given []string
	for _, source := range []struct {
		path string
		set  bool
	}{{path, value != ""}, {path + "_file", file != ""}, {path + "_command", len(command) > 0}} {
		if source.set {
			given = append(given, source.path)
		}
	}
	if len(given) > 1 {
		l.refuse(given[1], "the secret is given twice, also as %s (%v); allowed: one of them", given[0], l.cfg.origins[given[0]])
		return
	}
	l.checkCommand(path+"_command", command)
	if file == "" || l.unread && !strings.HasPrefix(path, "http.") {
		return
	}
	if _, err := readSecret(l.cfg.readFile, file); err != nil {
		l.refuse(path+"_file", "%v", err)
	}
}

func (l *loader) checkTables() {
	tables := l.cfg.settings.Outbox
	if len(tables) == 0 && !l.partial {
		l.refuse("outbox", "there is no table; list one in the file as `- table: public.outbox`, or set CDC_RELAY_OUTBOX_TABLE")
	}
	seen := map[wal.Table]int{}
	for i, o := range tables {
		path := fmt.Sprintf("outbox[%d].table", i)
		if o.MessagePrefix != "" {
			l.checkMessages(i, o)
			continue
		}
		if o.Table == "" {
			l.refuse(path, "is missing; for example public.outbox, or message_prefix for logical messages")
			l.cfg.tables = append(l.cfg.tables, wal.Table{})
			continue
		}
		table, err := wal.ParseTable(o.Table)
		if err != nil {
			l.refuse(path, "%v", err)
		} else if first, ok := seen[table]; ok {
			l.refuse(path, "%s is listed twice, first as outbox[%d]", o.Table, first)
		} else {
			seen[table] = i
		}
		l.cfg.tables = append(l.cfg.tables, table)
	}
}

// checkMessages looks at an entry for logical messages instead of a table.
func (l *loader) checkMessages(i int, o outboxSettings) {
	path := fmt.Sprintf("outbox[%d].message_prefix", i)
	switch {
	case o.Table != "":
		l.refuse(path, "is set beside table; allowed: one of the two per entry")
	case o.MessagePrefix == wal.AnyPrefix && len(o.Debezium) == 0:
		l.refuse(path, "* means every prefix and needs debezium; write the prefix, or set debezium and narrow it with message.prefix.include.list")
	case slices.Contains(l.cfg.messages, o.MessagePrefix):
		first := slices.IndexFunc(l.cfg.settings.Outbox, func(other outboxSettings) bool { return other.MessagePrefix == o.MessagePrefix })
		l.refuse(path, "%q is listed twice, first as outbox[%d]", o.MessagePrefix, first)
	case o.Preset != "auto":
		l.refuse(fmt.Sprintf("outbox[%d].preset", i), "a message has no table to look at; its roles are members of its JSON body, set with columns")
	}
	l.cfg.messages = append(l.cfg.messages, o.MessagePrefix)
}

func (l *loader) checkRelay() {
	r := &l.cfg.settings.Relay
	if r.MaxInFlightBytes < 1 {
		l.refuse("relay.max_in_flight_bytes", "%v is too small; allowed: more than 0B, for example 8MiB", r.MaxInFlightBytes)
	}
	if r.MaxRowBytes < 1<<20 || r.MaxRowBytes > 1<<30 {
		l.refuse("relay.max_row_bytes", "%v is not allowed; allowed: from 1MiB to 1GiB", r.MaxRowBytes)
	}
	if r.DrainTimeout <= 0 {
		l.refuse("relay.drain_timeout", "%v is too short; allowed: more than 0s, for example 30s", r.DrainTimeout)
	}
	l.checkGuarantee()
	l.checkRejects()
	if p := l.cfg.settings.Pipeline; p == "" || len(p) > 200 || !utf8.ValidString(p) || !document.Printable(p) {
		l.refuse("pipeline", "%q is not a label; allowed: 1 to 200 printable characters", p)
	}
}

// maxCommitInterval is a third of what the brokers give a transaction.
const maxCommitInterval = 10 * time.Second

func (l *loader) checkGuarantee() {
	r := &l.cfg.settings.Relay
	if d := time.Duration(r.CommitInterval); d < time.Millisecond || d > maxCommitInterval {
		l.refuse("relay.commit_interval", "%v is not allowed; allowed: 1ms to 10s", r.CommitInterval)
	}
	exactlyOnce := relay.Guarantee(r.Guarantee) == relay.ExactlyOnce
	if r.DetectMovedSlot && exactlyOnce {
		l.noEffect("relay.detect_moved_slot", "relay.guarantee", string(relay.AtLeastOnce))
	}
	if err := record.CheckTopic(r.CheckpointTopic); err != nil {
		l.refuse("relay.checkpoint_topic", "%q is not a topic: a name %v", r.CheckpointTopic, err)
	} else if t := r.CheckpointTopic; t == r.DeadLetterTopic {
		l.refuse("relay.checkpoint_topic", "%q is relay.dead_letter_topic too; allowed: a topic of its own", t)
	}
	usual := l.usual().Relay
	if r.CommitInterval != usual.CommitInterval && !exactlyOnce {
		l.noEffect("relay.commit_interval", "relay.guarantee", string(relay.ExactlyOnce))
	}
	if r.CheckpointTopic != usual.CheckpointTopic && !exactlyOnce && !r.DetectMovedSlot {
		l.noEffect("relay.checkpoint_topic", "relay.guarantee", string(relay.ExactlyOnce)+" (or relay.detect_moved_slot: true)")
	}
}

// onRejectDeadLetter is the value of relay.on_reject that other keys depend on.
const onRejectDeadLetter = string(relay.DeadLetterOnReject)

func (l *loader) checkRejects() {
	r := &l.cfg.settings.Relay
	letters := r.OnReject == onRejectDeadLetter
	switch {
	case r.OnReject == "skip" && !r.AcceptLoss:
		l.refuse("relay.on_reject", "skip loses rows; allowed: skip together with relay.accept_loss: true, or dead_letter, which loses none")
	case r.AcceptLoss && r.OnReject != "skip":
		l.noEffect("relay.accept_loss", "relay.on_reject", "skip")
	}
	if r.ParkKey && !letters {
		l.noEffect("relay.park_key", "relay.on_reject", onRejectDeadLetter)
	}
	if err := record.CheckTopic(r.DeadLetterTopic); err != nil {
		l.refuse("relay.dead_letter_topic", "%q is not a topic: a name %v", r.DeadLetterTopic, err)
	}
	reserved := l.cfg.reserved()
	for i, o := range l.cfg.settings.Outbox {
		for _, topic := range reserved {
			if string(o.Topic) == topic.Name {
				l.refuse(fmt.Sprintf("outbox[%d].topic", i), "%s is reserved for %s; choose another topic", topic.Name, topic.For)
			}
		}
	}
}

func (l *loader) checkHTTP() {
	h := &l.cfg.settings.HTTP
	l.checkSecret("http.token", h.Token, h.TokenFile, nil)
	l.checkToken()
	l.checkOperator()
	if h.Listen == "" {
		for _, o := range []pair{{"token", string(h.Token)}, {"token_file", h.TokenFile}} {
			if o.Value != "" {
				l.noEffect("http."+o.Name, "http.listen", "host:port")
			}
		}
		if len(h.Hosts) > 0 {
			l.noEffect("http.hosts", "http.listen", "host:port")
		}
		if len(h.Console.Hosts) > 0 {
			l.noEffect("http.console.hosts", "http.listen", "host:port")
		}
		for _, o := range l.actingKeys() {
			l.noEffect(o, "http.listen", "host:port")
		}
		l.checkNoHistory("http.listen", "host:port")
		return
	}
	host, err := splitHostPort(h.Listen)
	if err != nil {
		l.refuse("http.listen", "%v; allowed: host:port, for example 127.0.0.1:8080 or :8080, or empty to turn it off", err)
		return
	}
	for path, names := range map[string][]string{"http.hosts": h.Hosts, "http.console.hosts": h.Console.Hosts} {
		for i, name := range names {
			if name != "*" && (name == "" || strings.ContainsAny(name, " /:*[]") && net.ParseIP(name) == nil) {
				l.refuse(fmt.Sprintf("%s[%d]", path, i), "%q is not a host; allowed: a name or an address without a port, or *", name)
			}
		}
	}
	if kept := time.Duration(h.Console.History); kept != 0 && (kept < time.Minute || kept > 6*time.Hour) {
		l.refuse("http.console.history", "%s is not allowed; allowed: 1m to 6h, or 0s for none", kept)
	}
	if !loopback.Is(host) && h.Token == "" && h.TokenFile == "" {
		l.warn("http.listen: %s can be reached from other machines and http.token_file is not set: anybody there may read metrics and status", h.Listen)
	}
}

// splitHostPort requires both parts, the host possibly empty, the port a number. Its errors show
// nothing that stands before an @.
func splitHostPort(address string) (string, error) {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return "", fmt.Errorf("%q is no address", withoutCredentials(address))
	}
	if _, err := net.LookupPort("tcp", port); err != nil || port == "" || strings.Trim(port, "0123456789") != "" {
		return "", fmt.Errorf("%q has no port between 0 and 65535", withoutCredentials(address))
	}
	return host, nil
}

// checkRouter lets the router compile the mappings, as far as that goes without
// the tables' columns.
func (l *loader) checkRouter() {
	_, err := router.New(l.cfg.router())
	for _, e := range router.ConfigErrors(err) {
		l.refuse(e.Path, "%v", e.Err)
	}
}
