package migrations

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Part is one step of a Migration. SQL is one or more statements, each ending
// with a semicolon; Down takes them back.
type Part struct {
	Name string // one word: table, publication, role, read
	Up   string
	Down string
}

// Migration is what one database needs, in the order in which it is applied.
type Migration struct {
	Name   string   // of the files; empty: cdc_relay
	Number int      // version of the migration, where the tool wants one
	Notes  []string // lines for whoever reads it: what has to be done outside of SQL
	Parts  []Part

	// Slot is the statement that makes the replication slot; empty: there is none. It is never
	// part of the migration: PostgreSQL refuses it in a transaction that has written.
	Slot string
}

// File is one file of a migration tool.
type File struct {
	Name    string // as the tool wants it
	Content string
}

type formatter struct {
	name  string
	write func(Migration) []File
}

var formatters = []formatter{
	{"plain", plainFile},
	{"goose", gooseFile},
	{"flyway", flywayFile},
	{"golang-migrate", golangMigrateFiles},
	{"liquibase", liquibaseFile},
	{"atlas", atlasFile},
}

// Formats lists what Format can write.
func Formats() []string {
	names := make([]string, len(formatters))
	for i, f := range formatters {
		names[i] = f.name
	}
	return names
}

// Format writes m as the files of a migration tool. plain is for psql, and
// without its first line for a console: it is the only one with the slot as a statement, after the COMMIT.
func Format(format string, m Migration) ([]File, error) {
	i := slices.IndexFunc(formatters, func(f formatter) bool { return f.name == format })
	if i < 0 {
		return nil, fmt.Errorf("there is no format %q; allowed: %s", format, strings.Join(Formats(), ", "))
	}
	files := formatters[i].write(m)
	for n := range files {
		files[n].Content = strings.TrimRight(strings.ReplaceAll(files[n].Content, "\n\n\n", "\n\n"), "\n") + "\n"
	}
	return files, nil
}

func plainFile(m Migration) []File {
	var b strings.Builder
	comment(&b, m.Notes)
	if m.Slot == "" {
		b.WriteString("BEGIN;\n\n" + m.up() + "\nCOMMIT;\n")
		return []File{{m.name() + ".sql", b.String()}}
	}
	b.WriteString("-- Stops psql at the first error: no slot when the rest was rolled back. Leave this line out in a console.\n" +
		"\\set ON_ERROR_STOP on\n\nBEGIN;\n\n")
	b.WriteString(m.up())
	b.WriteString("\nCOMMIT;\n\n")
	comment(&b, []string{
		"The slot is a step of its own, after the COMMIT: PostgreSQL refuses to make one in a transaction that has written.",
		"Rows from before it are not sent. From now on the server keeps WAL for it: start the relay.",
	})
	b.WriteString(m.Slot + ";\n")
	return []File{{m.name() + ".sql", b.String()}}
}

func gooseFile(m Migration) []File {
	var b strings.Builder
	b.WriteString("-- +goose Up\n")
	comment(&b, m.Notes)
	b.WriteString(m.up())
	b.WriteByte('\n')
	comment(&b, m.slotNotes())
	b.WriteString("\n-- +goose Down\n")
	comment(&b, m.downNotes())
	b.WriteString(m.down())
	return []File{{fmt.Sprintf("%05d_%s.sql", m.Number, m.name()), b.String()}}
}

func flywayFile(m Migration) []File {
	return []File{{fmt.Sprintf("V%d__%s.sql", m.Number, m.name()), m.upFile()}}
}

func atlasFile(m Migration) []File {
	return []File{{fmt.Sprintf("%d_%s.sql", m.Number, m.name()), m.upFile()}}
}

func golangMigrateFiles(m Migration) []File {
	var down strings.Builder
	comment(&down, m.downNotes())
	down.WriteString(m.down())
	name := fmt.Sprintf("%06d_%s", m.Number, m.name())
	return []File{{name + ".up.sql", m.upFile()}, {name + ".down.sql", down.String()}}
}

// liquibaseFile has one changeset for each part, so that each can be rolled back.
func liquibaseFile(m Migration) []File {
	var b strings.Builder
	b.WriteString("--liquibase formatted sql\n\n")
	comment(&b, m.Notes)
	for _, p := range m.Parts {
		split := ""
		if strings.Contains(p.Up, "DO $$") { // which has semicolons of its own
			split = " splitStatements:false rollbackSplitStatements:false"
		}
		fmt.Fprintf(&b, "--changeset cdc-relay:%d-%s%s\n%s", m.Number, p.Name, split, ended(p.Up))
		if p.Down == "" {
			b.WriteString("--rollback not required\n")
		}
		for line := range strings.Lines(ended(p.Down)) {
			if !strings.HasPrefix(line, "--") {
				b.WriteString("--rollback " + line)
			}
		}
		b.WriteByte('\n')
	}
	comment(&b, m.slotNotes())
	return []File{{m.name() + ".sql", b.String()}}
}

// upFile is the file of a tool that needs no marks in it.
func (m Migration) upFile() string {
	var b strings.Builder
	comment(&b, m.Notes)
	b.WriteString(m.up())
	b.WriteByte('\n')
	comment(&b, m.slotNotes())
	return b.String()
}

func (m Migration) up() string {
	texts := make([]string, len(m.Parts))
	for i, p := range m.Parts {
		texts[i] = ended(p.Up)
	}
	return strings.Join(texts, "\n")
}

// down undoes the parts from the last to the first.
func (m Migration) down() string {
	var b strings.Builder
	for _, p := range slices.Backward(m.Parts) {
		b.WriteString(ended(p.Down))
	}
	return b.String()
}

func (m Migration) slotNotes() []string {
	if m.Slot == "" {
		return nil
	}
	return []string{
		"The replication slot is not part of this migration: PostgreSQL refuses to make one in a transaction",
		"that has written, which is what a migration runs in. Once it is applied, run `cdc-relay setup`, or",
		"outside of any transaction:",
		"  " + m.Slot + ";",
	}
}

func (m Migration) downNotes() []string {
	if m.Slot == "" {
		return nil
	}
	return []string{
		"Drop the replication slot before (`cdc-relay teardown --yes`): a slot that nobody reads keeps WAL until the disk is full.",
	}
}

// name is that of the files.
func (m Migration) name() string { return cmp.Or(m.Name, "cdc_relay") }

func comment(b *strings.Builder, lines []string) {
	for _, line := range lines {
		b.WriteString(strings.TrimRight("-- "+line, " ") + "\n")
	}
	if len(lines) > 0 {
		b.WriteByte('\n')
	}
}

func ended(sql string) string {
	if sql == "" {
		return ""
	}
	return strings.TrimRight(sql, "; \n") + ";\n"
}
