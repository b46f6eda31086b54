package preflight

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/cdc-relay/cdc-relay/fault"
	"github.com/cdc-relay/cdc-relay/postgres"
	"github.com/cdc-relay/cdc-relay/postgres/catalog"
	"github.com/cdc-relay/cdc-relay/replication/wal"
)

// Survey is a slot and a publication as they are, whoever made and uses them.
type Survey struct {
	ServerVersion int
	WALEnd        wal.LSN

	Slot       catalog.SlotInfo
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

// ReadSurvey reads what a takeover needs to know. It fails when slot or publication
// is missing, and changes nothing.
func ReadSurvey(ctx context.Context, cfg postgres.Config) (*Survey, error) {
	q, server, err := postgres.OpenServer(ctx, cfg, false)
	if err != nil {
		return nil, err
	}
	defer postgres.CloseQuietly(q.Conn)
	s := &Survey{ServerVersion: server.ServerVersion}
	row, err := q.One("SELECT pg_catalog.pg_current_wal_flush_lsn()")
	if err != nil {
		return nil, postgres.Classify("look at the end of the WAL", err)
	}
	if s.WALEnd = row.LSN("pg_current_wal_flush_lsn", 0); row.Err != nil {
		return nil, row.Err
	}
	if err := s.lookAtSlot(q, cfg.Slot); err != nil {
		return nil, err
	}
	if err := s.lookAtPublication(q, cfg); err != nil {
		return nil, err
	}
	return s, nil
}

func (s *Survey) lookAtSlot(q postgres.Querier, name string) error {
	slot, err := catalog.ReadSlot(q, s.ServerVersion, name)
	if err != nil {
		return err
	}
	s.Slot, s.SlotPlugin, s.SlotError = slot.SlotInfo, slot.Plugin, slot.Usable(name)
	if slot.Active {
		s.SlotOwner = fmt.Sprintf("the slot is in use by pid %d", slot.ActivePID)
		if e, ok := errors.AsType[*fault.Error](slot.Busy(q, name)); ok && e.Kind == fault.KindBusy {
			s.SlotOwner = e.Err.Error()
		}
	}
	return nil
}

func (s *Survey) lookAtPublication(q postgres.Querier, cfg postgres.Config) error {
	p, err := catalog.ReadPublication(q, s.ServerVersion, cfg.Publication)
	if err != nil {
		return err
	}
	s.Publication = PublicationInfo{Name: p.Name, AllTables: p.AllTables, ViaRoot: p.ViaRoot, Tables: len(p.Tables), Foreign: p.Foreign(cfg.Tables)}
	if p.Insert {
		s.Publication.Operations = append(s.Publication.Operations, "insert")
	}
	s.Publication.Operations = append(s.Publication.Operations, p.Others...)
	for _, table := range cfg.Tables {
		member := Member{Filter: p.Tables[table].Filter}
		relation, _, err := catalog.InspectTable(q, s.ServerVersion, cfg, p, table)
		switch {
		case postgres.Reason(err) == fault.ReasonTableUnpublished:
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
