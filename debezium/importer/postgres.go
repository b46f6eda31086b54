package importer

import (
	"fmt"
	"net"
	"net/url"
	"path"
	"slices"
	"strconv"
	"strings"
)

// postgres makes the address, the slot and the publication.
func (c *conversion) postgres() {
	c.postgresURL()
	if it, ok := c.take("database.password"); ok {
		c.secretKey(it, c.root.at("postgres"), "password", "POSTGRES_PASSWORD", true)
	}
	c.copyName("slot.name", "debezium", []string{"postgres", "slot"}, &c.result.Source.Slot)
	c.copyName("publication.name", "dbz_publication", []string{"postgres", "publication"}, &c.result.Source.Publication)
	c.plugin()
	c.publication()
	if it, ok := c.take("slot.drop.on.stop"); ok {
		c.dropOnStop(it)
	}
	if it, ok := c.take("slot.drop_on_stop"); ok {
		c.dropOnStop(it)
	}
}

func (c *conversion) dropOnStop(it item) {
	if !strings.EqualFold(strings.TrimSpace(it.value), "true") {
		c.remark(it, Implied, "the relay never drops its slot")
		return
	}
	c.result.Source.DropOnStop = true
	c.remark(it, NotCarried, "the relay never drops its slot; set it to false in Debezium before you stop it, or the slot is gone, and with it every row that is not sent by then")
}

// copyName carries a key over, or writes Debezium's default out.
func (c *conversion) copyName(key, def string, ours []string, kept *string) {
	to := strings.Join(ours, ".")
	it, ok := c.take(key)
	if !ok {
		c.root.at(ours...).set(def, fmt.Sprintf("%s is not given; Debezium's default", key))
		*kept = def
		return
	}
	value, todo := c.resolve(it.value, "POSTGRES_"+strings.ToUpper(ours[len(ours)-1]))
	*kept = value
	c.root.at(ours...).set(scalar(value))
	c.carry(it, to, todo)
}

// carry is the remark of a key that has one of ours.
func (c *conversion) carry(it item, to string, todo []string) {
	if len(todo) > 0 {
		c.remark(it, ToDo, "%s: %s", to, strings.Join(todo, "; "))
		return
	}
	c.remark(it, Carried, "%s", to)
}

// secretKey writes a reference in place of a secret. An optional one may be left
// empty, because the server may ask for none.
func (c *conversion) secretKey(it item, section *node, name, variable string, optional bool) {
	if it.value == "" && optional {
		c.remark(it, NotNeeded, "is empty")
		return
	}
	refs := references(it.value)
	if len(refs) == 1 && refs[0].text == it.value {
		switch kind, ref := c.providerKind(refs[0].provider), refs[0]; {
		case kind == "env" && isVariable(ref.key) && ref.path == "":
			variable = ref.key
			section.at(name).set(reference2(variable, optional))
			c.result.Source.Placeholders[variable] = it.original
			if c.unset[variable] {
				c.remark(it, ToDo, "set %s in the relay's environment: its default is not copied", variable)
			} else {
				c.remark(it, Carried, "the environment variable %s", variable)
			}
			return
		case kind == "dir" && ref.path != "" && !strings.ContainsAny(ref.path+ref.key, "{}$"):
			section.at(name + "_file").set(scalar(path.Join(ref.path, ref.key)))
			c.remark(it, Carried, "%s_file: the same file, which has to be there for the relay too", name)
			return
		default:
			section.at(name).set(reference2(variable, optional))
			c.result.Source.Placeholders[variable] = describeReference(kind, ref)
			c.remark(it, ToDo, "set %s in the relay's environment to what %s gives, or name a file as %s_file", variable, describeReference(kind, ref), name)
			return
		}
	}
	section.at(name).set(reference2(variable, optional))
	c.result.Source.Placeholders[variable] = it.original
	c.remark(it, ToDo, "is not copied: set %s in the relay's environment to it, or name a file as %s_file", variable, name)
}

func reference2(variable string, optional bool) string {
	if optional {
		return scalar("${" + variable + ":-}")
	}
	return scalar("${" + variable + "}")
}

func (c *conversion) postgresURL() {
	host, given := c.take("database.hostname")
	n := c.root.at("postgres", "url")
	var todo []string
	part := func(key, variable string, escape func(string) string) string {
		it, ok := c.take(key)
		if !ok {
			return ""
		}
		value, fill := c.resolve(it.value, variable)
		if len(references(it.value)) == 0 {
			value = escape(value)
		}
		todo = append(todo, fill...)
		c.carry(it, "postgres.url", fill)
		return value
	}
	user := part("database.user", "POSTGRES_USER", func(s string) string { return url.User(s).String() })
	port := part("database.port", "POSTGRES_PORT", literal)
	name := part("database.dbname", "POSTGRES_DATABASE", url.PathEscape)
	if db := c.value("database.dbname"); db != "" && len(references(db)) == 0 {
		c.add(option{"database.dbname", db, ""}) // member source.db of logical messages
	}
	hosts := "localhost"
	if given {
		value, fill := c.resolve(host.value, "POSTGRES_HOST")
		todo = append(todo, fill...)
		hosts = hostList(value, port, len(references(host.value)) > 0)
		c.carry(host, "postgres.url", fill)
	} else {
		c.missing("database.hostname", ToDo, "is missing: write the server's name in postgres.url")
		n.comments = append(n.comments, "To do: the server's name.")
	}
	if name == "" {
		c.missing("database.dbname", ToDo, "is missing: write the database's name in postgres.url")
		name = "postgres"
		n.comments = append(n.comments, "To do: the database's name.")
	}
	if user == "" {
		c.missing("database.user", ToDo, "is missing: write the role in postgres.url")
	} else {
		user += "@"
	}
	for _, text := range todo {
		n.comments = append(n.comments, "To do: "+text+".")
	}
	text := "postgres://" + user + hosts + "/" + name + c.tls()
	n.set(scalar(text))
	c.checkAddress()
}

// checkAddress reports an invalid host or port with the loader's error for the whole URL.
func (c *conversion) checkAddress() {
	refuse := func(key, what string, good func(string) bool) {
		it, ok := c.get(key)
		if !ok || len(references(it.value)) > 0 || good(strings.TrimSpace(it.value)) {
			return
		}
		c.badAddress = true
		c.remarks = slices.DeleteFunc(c.remarks, func(r Remark) bool { return r.Key == it.original && r.Fate == Carried })
		c.tell(it, Refused, shown(it.key, it.value)+" is no "+what)
	}
	refuse("database.hostname", "name of a host", func(s string) bool { return !strings.ContainsAny(s, " \t@?#<>\\\"") })
	refuse("database.port", "port", func(s string) bool {
		_, err := strconv.ParseUint(s, 10, 16)
		return err == nil
	})
}

// hostList writes host:port, and a list of them as libpq wants it.
func hostList(value, port string, reference bool) string {
	if reference {
		if port != "" {
			value += ":" + port
		}
		return value
	}
	var hosts []string
	for host := range strings.SplitSeq(value, ",") {
		host = strings.TrimSpace(host)
		if _, _, err := net.SplitHostPort(host); err != nil && port != "" {
			host = net.JoinHostPort(strings.Trim(host, "[]"), port)
		} else if strings.Count(host, ":") > 1 && !strings.HasPrefix(host, "[") {
			host = "[" + host + "]"
		}
		hosts = append(hosts, literal(host))
	}
	return strings.Join(hosts, ",")
}

// tls returns the query of the URL. It writes out Debezium's default, which is weaker than the
// relay's, so that a working connection keeps working.
func (c *conversion) tls() string {
	query := []string{}
	mode, ok := c.take("database.sslmode")
	switch {
	case !ok:
		query = append(query, "sslmode=prefer")
		c.missing("database.sslmode", Offered, "Debezium's default, prefer, is written out; sslmode=verify-full keeps others from reading along, if the server has a certificate")
	default:
		value, todo := c.resolve(strings.ToLower(strings.TrimSpace(mode.value)), "POSTGRES_SSLMODE")
		query = append(query, "sslmode="+strings.ReplaceAll(value, "_", "-"))
		c.carry(mode, "postgres.url", todo)
	}
	add := func(name string) {
		it, ok := c.take("database." + name)
		if !ok {
			return
		}
		value, todo := c.resolve(it.value, "POSTGRES_"+strings.ToUpper(name))
		if len(references(it.value)) == 0 {
			value = strings.ReplaceAll(url.PathEscape(value), "%2F", "/")
		}
		query = append(query, name+"="+value)
		c.carry(it, "postgres.url", todo)
	}
	add("sslrootcert")
	if key, ok := c.get("database.sslkey"); ok && !strings.HasSuffix(key.value, ".pem") {
		c.remark(key, ToDo, "the Java driver's key is DER in PKCS#8; turn it into PEM (openssl pkcs8 -inform DER -nocrypt -in KEY -out KEY.pem) and add sslkey=KEY.pem to postgres.url")
		if certificate, ok := c.take("database.sslcert"); ok {
			c.remark(certificate, ToDo, "add it to postgres.url as sslcert, together with the key")
		}
	} else {
		add("sslcert")
		add("sslkey")
	}
	if it, ok := c.take("database.sslpassword"); ok {
		c.remark(it, ToDo, "is not copied: write the key without a passphrase, readable for the relay alone")
	}
	return "?" + strings.Join(query, "&")
}

func (c *conversion) plugin() {
	it, ok := c.take("plugin.name")
	c.result.Source.Plugin = strings.TrimSpace(it.value)
	switch {
	case !ok:
		c.result.Source.Plugin = "decoderbufs"
		c.missing("plugin.name", Refused, "is missing, and the default decoderbufs is not installed on most servers, where Debezium cannot make its slot; the relay uses pgoutput. A slot of decoderbufs cannot be taken over")
	case it.value == "pgoutput":
		c.remark(it, Implied, "the relay reads pgoutput")
	default:
		c.remark(it, NotCarried, "the relay reads pgoutput, and a slot of %s cannot be taken over: make a slot for the relay with `cdc-relay setup` under another name before you stop Debezium, and expect what was written in between twice", shown(it.key, it.value))
	}
}

func (c *conversion) publication() {
	it, ok := c.take("publication.autocreate.mode")
	mode := "all_tables"
	if ok {
		mode = strings.ToLower(strings.TrimSpace(it.value))
	}
	c.result.Source.Publishing = mode
	text := "the publication is used as it is; `setup` makes one for the configured tables if there is none, and `run` never does"
	if mode == "all_tables" {
		text += ". Debezium's publication of all tables keeps working; what is not configured is skipped and counted"
	}
	if ok {
		c.remark(it, NotNeeded, "%s", text)
		return
	}
	c.missing("publication.autocreate.mode", NotNeeded, "is not given, so all_tables: %s", text)
}
