package replication

// PublicationSQL is the statement by which Setup makes cfg's publication, without
// its semicolon. viaRoot is for partitioned tables.
func PublicationSQL(cfg Config, viaRoot bool) string {
	return createPublication(cfg, viaRoot, cfg.published(), nil, nil)
}

// SlotSQL is the statement by which Setup makes a slot on a server of that
// server_version_num, without its semicolon. It cannot run in a transaction that
// has written.
func SlotSQL(name string, version int) string { return createSlot(name, version) }

// DropPublicationSQL takes back PublicationSQL.
func DropPublicationSQL(cfg Config) string {
	return "DROP PUBLICATION " + doubleQuoted(cfg.Publication)
}
