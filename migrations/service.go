package migrations

import (
	"fmt"
	"slices"
	"strings"
)

// service is a provider of PostgreSQL: what it wants outside of SQL, and how a
// role gets the right to stream.
type service struct {
	name  string
	title string
	notes []string

	// attribute is given to the role at its creation, alter afterwards, grant as
	// membership; whichever the provider's administrator is allowed to do.
	attribute, alter, grant string

	iam []string // what authentication by IAM wants beside
}

var services = []service{
	{
		name: "self", title: "Self-managed PostgreSQL",
		notes: []string{
			"Once, as a superuser: ALTER SYSTEM SET wal_level = 'logical'; then restart the server.",
			`pg_hba.conf needs an entry for the database, not one for "replication".`,
			"18 and later: leave idle_replication_slot_timeout at 0, or it takes the slot of a stopped relay.",
		},
		attribute: "REPLICATION",
	},
	{
		name: "rds", title: "Amazon RDS",
		notes: []string{
			"Once: rds.logical_replication = 1 in the instance's parameter group, then reboot.",
			"Connect to the instance itself: RDS Proxy does not carry replication.",
		},
		grant: "rds_replication",
		iam:   []string{"IAM logins may stream only with rds.iam_auth_for_replication = 1 in the parameter group (no reboot)."},
	},
	{
		name: "aurora", title: "Amazon Aurora",
		notes: []string{
			"Once: rds.logical_replication = 1 in the cluster's parameter group, then reboot the writer.",
			"Connect to the writer endpoint, not to a reader and not to RDS Proxy.",
		},
		grant: "rds_replication",
		iam:   []string{"IAM logins may stream only with rds.iam_auth_for_replication = 1 in the cluster's parameter group (no reboot)."},
	},
	{
		name: "cloudsql", title: "Google Cloud SQL",
		notes: []string{"Once: the flag cloudsql.logical_decoding = on, which restarts the instance."},
		alter: "REPLICATION",
	},
	{
		name: "azure", title: "Azure Database for PostgreSQL, Flexible Server",
		notes: []string{
			"Once: the server parameter wal_level = logical, then restart.",
			"Connect to port 5432; the built-in PgBouncer at 6432 does not carry replication.",
		},
		alter: "REPLICATION",
	},
	{
		name: "supabase", title: "Supabase",
		notes: []string{
			"wal_level is logical already. Run this as postgres.",
			"Use the direct connection (db.PROJECT.supabase.co:5432): the poolers refuse replication. It is IPv6 only without the IPv4 add-on.",
		},
		attribute: "REPLICATION",
	},
	{
		name: "neon", title: "Neon",
		notes: []string{
			"Once: turn logical replication on in the project's settings. It cannot be turned off again.",
			"Use the host without -pooler. A slot that nobody reads is removed after about 40 hours, and by a restore of its branch.",
			"A role created in the console or with the API may stream as it is; a role created in SQL needs its password in CREATE ROLE.",
		},
		attribute: "REPLICATION",
	},
	{
		name: "crunchy", title: "Crunchy Bridge",
		notes:     []string{"wal_level is logical already. Run this as postgres."},
		attribute: "REPLICATION",
	},
}

// Services lists the providers that ServiceRole knows.
func Services() []string {
	names := make([]string, len(services))
	for i, s := range services {
		names[i] = s.name
	}
	return names
}

// Login is the role that the relay connects as.
type Login struct {
	Role     string
	Database string // may connect there; empty leaves that to PUBLIC, who usually may
	IAM      bool   // authenticates by IAM, where the provider has that
	Kept     bool   // may be there already, and then stays as it is, on the way down too
}

// RoleIfMissing creates a role that may be there already, in one line: goose reads a statement up to it.
func RoleIfMissing(role, attributes string) (string, error) {
	quoted, err := quote(role)
	if err != nil {
		return "", fmt.Errorf("role: %w", err)
	}
	return fmt.Sprintf("DO $$ BEGIN IF NOT EXISTS (SELECT FROM pg_catalog.pg_roles WHERE rolname = '%s') THEN CREATE ROLE %s %s; END IF; END $$;",
		strings.ReplaceAll(role, "'", "''"), quoted, strings.TrimSpace("LOGIN "+attributes)), nil
}

// ServiceRole gives the SQL for the role at a provider, and what has to be done
// there outside of SQL.
func ServiceRole(name string, login Login) (role Part, notes []string, err error) {
	i := slices.IndexFunc(services, func(s service) bool { return s.name == name })
	if i < 0 {
		return Part{}, nil, fmt.Errorf("there is no service %q; allowed: %s", name, strings.Join(Services(), ", "))
	}
	s := services[i]
	quoted, err := quote(login.Role)
	if err != nil {
		return Part{}, nil, fmt.Errorf("role: %w", err)
	}
	create := strings.TrimSpace("CREATE ROLE "+quoted+" LOGIN "+s.attribute) + ";"
	if login.Kept {
		if create, err = RoleIfMissing(login.Role, s.attribute); err != nil {
			return Part{}, nil, err
		}
	}
	notes = []string{s.title + "."}
	notes = append(notes, s.notes...)
	up := []string{
		"-- The role that the relay connects as, with the least it needs to stream. REPLICATION is powerful all",
		"-- the same: treat its password like read access to everything, and set it without writing it into a",
		`-- file: \password in psql.`,
		create,
	}
	if s.alter != "" {
		up = append(up, "ALTER ROLE "+quoted+" "+s.alter+";")
	}
	if s.grant != "" {
		up = append(up, "GRANT "+s.grant+" TO "+quoted+";")
	}
	if login.IAM && s.iam != nil {
		notes = append(notes, s.iam...)
		up = append(up, "GRANT rds_iam TO "+quoted+";")
	}
	var down []string
	if login.Database != "" {
		database, err := quote(login.Database)
		if err != nil {
			return Part{}, nil, fmt.Errorf("database: %w", err)
		}
		up = append(up, "GRANT CONNECT ON DATABASE "+database+" TO "+quoted+";")
		down = append(down, "REVOKE CONNECT ON DATABASE "+database+" FROM "+quoted+";")
	}
	if !login.Kept {
		down = append(down, "DROP ROLE "+quoted+";")
	}
	return Part{Name: "role", Up: strings.Join(up, "\n"), Down: strings.Join(down, "\n")}, notes, nil
}

// Owner makes the role a member of the roles that own the tables, which no SQL can name without
// asking the server, and lets these make functions in the tables' schemas.
func Owner(role string, tables []Name) (Part, error) {
	quoted, err := quote(role)
	if err != nil {
		return Part{}, fmt.Errorf("role: %w", err)
	}
	var up, down []string
	for _, t := range tables {
		name, _, err := list([]Name{t})
		if err != nil {
			return Part{}, err
		}
		change := func(verb, to string) string {
			return fmt.Sprintf("DO $$ BEGIN EXECUTE (SELECT format('%s %%I %s %s', pg_get_userbyid(relowner)) FROM pg_class WHERE oid = '%s'::regclass); END $$;",
				verb, to, strings.ReplaceAll(quoted, "'", "''"), strings.ReplaceAll(name, "'", "''"))
		}
		create := fmt.Sprintf("DO $$ BEGIN EXECUTE (SELECT CASE WHEN has_schema_privilege(relowner, relnamespace, 'CREATE') THEN 'SELECT 1' ELSE format('GRANT CREATE ON SCHEMA %%s TO %%I', relnamespace::regnamespace, pg_get_userbyid(relowner)) END FROM pg_class WHERE oid = '%s'::regclass); END $$;",
			strings.ReplaceAll(name, "'", "''"))
		up, down = append(up, change("GRANT", "TO"), create), append(down, change("REVOKE", "FROM"))
	}
	return Part{
		Name: "owner",
		Up: "-- For cutover, which makes a trigger and its function as the owner of the table. An owner without CREATE on\n" +
			"-- the schema gets it. Take the membership back when the cutover is complete:\n-- " +
			strings.Join(down, "\n-- ") + "\n" + strings.Join(up, "\n"),
		Down: strings.Join(down, "\n"),
	}, nil
}

// Read lets the role look at the rows of the tables. Streaming does not need it;
// check, explain and the counting of setup do.
func Read(role string, tables []Name) (Part, error) {
	names, schemas, err := list(tables)
	if err != nil {
		return Part{}, err
	}
	quoted, err := quote(role)
	if err != nil {
		return Part{}, fmt.Errorf("role: %w", err)
	}
	return Part{
		Name: "read",
		Up: "-- For check and explain, which read rows; streaming does not need it.\n" +
			"GRANT USAGE ON SCHEMA " + schemas + " TO " + quoted + ";\nGRANT SELECT ON TABLE " + names + " TO " + quoted + ";",
		Down: "REVOKE SELECT ON TABLE " + names + " FROM " + quoted + ";\nREVOKE USAGE ON SCHEMA " + schemas + " FROM " + quoted + ";",
	}, nil
}
