package setup

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/cdc-relay/cdc-relay/config"
	"github.com/cdc-relay/cdc-relay/migrations"
	"github.com/cdc-relay/cdc-relay/postgres"
	"github.com/cdc-relay/cdc-relay/postgres/provision"
	"github.com/cdc-relay/cdc-relay/replication/wal"
	"github.com/cdc-relay/cdc-relay/router"
	"github.com/cdc-relay/cdc-relay/wording"
)

// Script is the SQL of what setup would make, and of the role to connect as.
type Script struct {
	Format, Service, Preset, Role string
	CreateTable, Partitioned      bool
	ColumnList                    bool
	WithoutRole                   bool
	Major, Number                 int

	// For is the command that the role is to be enough for: empty for run, ForBackfill, ForCutover, or one of
	// those that have their grants alone.
	For string
}

const (
	ForBackfill  = "backfill"  // leaves the slot to a backfill
	ForCutover   = "cutover"   // leaves the slot to a cutover, and makes a trigger
	ForRetention = "retention" // the rights of the connection that deletes
	ForMark      = "mark"      // and of the one that sets marks
	ForAudit     = "audit"     // the rights of a connection that reads
	ForReplay    = "replay"
)

// Render gives the files of the format. It touches no server.
func (o Script) Render(cfg *config.Config) ([]migrations.File, error) {
	switch o.For {
	case "", ForBackfill, ForCutover:
	case ForRetention:
		return o.retention(cfg)
	case ForMark:
		return o.marks(cfg)
	case ForAudit, ForReplay:
		return o.reading(cfg)
	default:
		return nil, fmt.Errorf("--for %q is not allowed; allowed: %s, %s, %s, %s, %s, %s", o.For, ForBackfill, ForCutover, ForRetention, ForMark, ForAudit, ForReplay)
	}
	if o.Number < 1 {
		return nil, fmt.Errorf("--number %d is not allowed; allowed: 1 or more", o.Number)
	}
	settings := cfg.Relay().Replication
	if settings.Shard.Divided() {
		return nil, fmt.Errorf("postgres.shards: %d: the filters of the publications depend on the types of the tables' columns, which only the server knows; `cdc-relay setup --dry-run` prints their SQL, and with --set postgres.shards=1 this prints the rest", settings.Shard.Count)
	}
	if len(settings.Tables) == 0 && len(settings.Messages) == 0 {
		settings.Tables = []wal.Table{{Schema: "public", Name: "outbox"}}
	}
	var names []migrations.Name
	for _, t := range settings.Tables {
		names = append(names, migrations.Name{Schema: t.Schema, Table: t.Name})
	}
	user, database := cfg.Login()
	given := user
	if user == administrator {
		user = ""
	}
	login := migrations.Login{Role: cmp.Or(o.Role, user, "cdc_relay"), Database: database, IAM: cfg.IAM(), Kept: o.For != ""}
	role, notes, err := migrations.ServiceRole(o.Service, login)
	if err != nil {
		return nil, fmt.Errorf("--service, --role: %w", err)
	}
	m := migrations.Migration{Number: o.Number, Notes: notes}
	if note := roleNote(given, login); o.Role == "" && !o.WithoutRole && note != "" {
		m.Notes = append(m.Notes, note)
	}
	if o.CreateTable {
		if m.Parts, err = o.tables(names, cfg.Relay().Router.Mappings); err != nil {
			return nil, err
		}
	}
	lists, err := o.lists(settings, cfg.Relay().Router)
	if err != nil {
		return nil, err
	}
	m.Parts = append(m.Parts, publicationPart(settings, o.Partitioned || partitioned(m.Parts), lists))
	if !o.WithoutRole {
		m.Parts = append(m.Parts, role)
		if len(names) > 0 {
			read, err := o.readGrants(login.Role, names)
			if err != nil {
				return nil, err
			}
			m.Parts = append(m.Parts, read)
		}
	}
	if err := o.owner(&m, login.Role, names); err != nil {
		return nil, err
	}
	o.slot(&m, settings.Slot, cfg.Relay().Router.Mappings)
	files, err := migrations.Format(o.Format, m)
	if err != nil {
		return nil, fmt.Errorf("--format: %w", err)
	}
	return files, nil
}

// registering are notes about what setup does beside PostgreSQL.
func registering(mappings []router.Mapping) (notes []string) {
	for _, m := range mappings {
		if schema := m.Schema.Register; schema != nil {
			notes = append(notes, fmt.Sprintf("`cdc-relay setup` registers schema %s under subject %s, which no SQL does.", schema.File, schema.Subject))
		}
	}
	return notes
}

// readGrants let the role read the tables.
func (o Script) readGrants(role string, names []migrations.Name) (migrations.Part, error) {
	read, err := migrations.Read(role, names)
	if err == nil && o.For == ForBackfill {
		_, grants, _ := strings.Cut(read.Up, "\n")
		read.Up = "-- For backfill, which reads the rows from before the slot.\n" + grants
	}
	return read, err
}

// owner makes the role of a cutover a member of the tables' owners.
func (o Script) owner(m *migrations.Migration, role string, names []migrations.Name) error {
	if o.For != ForCutover || o.WithoutRole {
		return nil
	}
	part, err := migrations.Owner(role, names)
	m.Parts = append(m.Parts, part)
	return err
}

// slot adds the slot's statement, and notes about what depends on the server's version and about what
// SQL does not make.
func (o Script) slot(m *migrations.Migration, name string, mappings []router.Mapping) {
	switch o.For {
	case ForCutover:
		m.Notes = append(m.Notes, "`cdc-relay cutover --yes` creates the replication slot.")
	case ForBackfill:
		m.Notes = append(m.Notes, "`cdc-relay backfill --yes` creates the replication slot and sends the rows from before it.")
	default:
		m.Slot = provision.SlotSQL(name, o.Major*10000)
	}
	if o.Major == 0 && m.Slot != "" {
		m.Notes = append(m.Notes, fmt.Sprintf("On PostgreSQL %d and later, create the slot with a fifth argument, true, so that it follows a failover: setup does so.", failoverMajor))
	}
	if o.ColumnList && o.Major == 0 {
		m.Notes = append(m.Notes, fmt.Sprintf("The column list of the publication needs PostgreSQL %d or later.", listMajor))
	}
	m.Notes = append(m.Notes, registering(mappings)...)
}

// tables are those of the configuration, in whose order the mappings begin.
func (o Script) tables(names []migrations.Name, mappings []router.Mapping) ([]migrations.Part, error) {
	var parts []migrations.Part
	for i, n := range names {
		preset := cmp.Or(o.Preset, shapeOf(mappings, i))
		if !slices.Contains(migrations.Presets(), preset) {
			return nil, fmt.Errorf("--preset: there is no SQL for %q: %s", preset, wording.DidYouMean(preset, migrations.Presets()))
		}
		up, err := migrations.Table(preset, n.Schema, n.Table)
		if err != nil {
			return nil, err
		}
		down, err := migrations.DropTable(preset, n.Schema, n.Table)
		if err != nil {
			return nil, err
		}
		part := migrations.Part{Name: "table", Up: up, Down: down}
		if i > 0 {
			part.Name += fmt.Sprint(i + 1)
		}
		parts = append(parts, part)
	}
	return parts, nil
}

// failoverMajor is the first version whose slots can fail over, listMajor the first
// with column lists.
const failoverMajor, listMajor = 17, 15

// roleNote says what to do about the user that postgres.url has; empty without one.
func roleNote(user string, login migrations.Login) string {
	create := " If it exists, leave out CREATE ROLE."
	if login.Kept {
		create = ""
	}
	switch user {
	case "":
		return ""
	case login.Role:
		return fmt.Sprintf("The role is the user of postgres.url, %s.%s No server was asked about its rights: if it is a superuser or an administrator, give the relay a role of its own instead (--role).", user, create)
	}
	return fmt.Sprintf("postgres.url has %s, the administrator that a server begins with; the relay needs no more than the role %s below: have it connect as that one.", user, login.Role)
}

// partitioned tells, as setup does, whether a table that is about to be made is.
func partitioned(parts []migrations.Part) bool {
	return slices.ContainsFunc(parts, func(p migrations.Part) bool { return strings.Contains(strings.ToUpper(p.Up), "PARTITION BY") })
}

func publicationPart(settings postgres.Config, viaRoot bool, lists map[wal.Table][]string) migrations.Part {
	return migrations.Part{
		Name: "publication",
		Up: "-- Inserts only: updates and deletes of an outbox are housekeeping, no events. Run as the owner of the table.\n" +
			provision.PublicationSQL(settings, viaRoot, lists),
		Down: provision.DropPublicationSQL(settings),
	}
}

// administrator is the role that every server begins with; it is nobody's to
// create. Only a server knows what other roles may do.
const administrator = "postgres"
