package replication

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/jackc/pglogrepl"
)

// Survey is a slot and a publication as they are, whoever made and uses them.
type Survey struct {
	ServerVersion int
	WALEnd        pglogrepl.LSN

	Slot       SlotInfo
	SlotOwner  string // who streams from it, as far as our rights show; empty: nobody
	SlotPlugin string
	SlotError  error // why the slot is none for our stream; nil: it is, apart from its owner

	Publication PublicationInfo
}

// PublicationInfo is what a publication sends.
type PublicationInfo struct {
	Name       string
	AllTables  bool
	ViaRoot    bool
	Operations []string // insert first
	Tables     int
	Members    []Member // parallel to Config.Tables
	Foreign    []string // tables that the configuration does not name
}

// Member is how a publication sends one table.
type Member struct {
	Missing bool     // not at all, or under another name
	Filter  string   // row filter; empty: every row
	Columns []string // as published
	Hidden  []string // columns of the table that are not
}

// Look reads what a change-over needs to know. It fails when slot or publication
// is missing, and changes nothing.
func Look(ctx context.Context, cfg Config) (*Survey, error) {
	q, server, err := openServer(ctx, cfg, false)
	if err != nil {
		return nil, err
	}
	defer closeQuietly(q.conn)
	s := &Survey{ServerVersion: server.ServerVersion}
	row, err := q.one("SELECT pg_catalog.pg_current_wal_flush_lsn()")
	if err != nil {
		return nil, classify("look at the end of the WAL", err)
	}
	if s.WALEnd = row.lsn("pg_current_wal_flush_lsn", 0); row.err != nil {
		return nil, row.err
	}
	if err := s.lookAtSlot(q, cfg.Slot); err != nil {
		return nil, err
	}
	if err := s.lookAtPublication(q, cfg); err != nil {
		return nil, err
	}
	return s, nil
}

func (s *Survey) lookAtSlot(q querier, name string) error {
	slot, err := readSlot(q, s.ServerVersion, name)
	if err != nil {
		return err
	}
	s.Slot, s.SlotPlugin, s.SlotError = slot.SlotInfo, slot.plugin, slot.usable(name)
	if slot.Active {
		s.SlotOwner = fmt.Sprintf("the slot is in use by pid %d", slot.ActivePID)
		if e, ok := errors.AsType[*Error](slot.busy(q, name)); ok && e.Kind == KindBusy {
			s.SlotOwner = e.Err.Error()
		}
	}
	return nil
}

func (s *Survey) lookAtPublication(q querier, cfg Config) error {
	p, err := readPublication(q, s.ServerVersion, cfg.Publication)
	if err != nil {
		return err
	}
	s.Publication = PublicationInfo{Name: p.name, AllTables: p.allTables, ViaRoot: p.viaRoot, Tables: len(p.tables), Foreign: p.foreign(cfg.Tables)}
	if p.insert {
		s.Publication.Operations = append(s.Publication.Operations, "insert")
	}
	s.Publication.Operations = append(s.Publication.Operations, p.others...)
	for _, table := range cfg.Tables {
		member := Member{Filter: p.tables[table].filter}
		relation, _, err := inspectTable(q, s.ServerVersion, cfg, p, table)
		switch {
		case Reason(err) == ReasonTableUnpublished:
			member.Missing = true
		case err != nil:
			return err
		default:
			for _, column := range relation.Columns {
				member.Columns = append(member.Columns, column.Name)
			}
			member.Hidden = slices.Sorted(maps.Keys(relation.Hidden))
		}
		s.Publication.Members = append(s.Publication.Members, member)
	}
	return nil
}
