package maintenance

import (
	"context"
	"fmt"

	"github.com/cdc-relay/cdc-relay/postgres"
	"github.com/cdc-relay/cdc-relay/postgres/catalog"
)

// Unsent names those of a table and its partitions that may have rows which are in no stream, for
// something that was done to them since the transactions below ended: see catalog.Part.
//
// A partition that was attached by the transaction that made it had rows before if that transaction
// has written rows of its first block before. Whether it has is no longer seen once somebody has
// updated, deleted or locked all of them.
func (s *Surveyor) Unsent(ctx context.Context, table uint32, ended uint64, publications []string) (attached, rewritten []string, err error) {
	s.session.q.Ctx = ctx
	parts, err := catalog.Unstreamed(s.session.q, table, ended, publications)
	if err != nil {
		return nil, nil, postgres.Classify("look for rows that are in no stream", err)
	}
	for i := range parts {
		p := &parts[i]
		if p.Rewritten {
			rewritten = append(rewritten, p.Table.String())
		}
		filled := p.Attached
		if !filled && p.Before != "" {
			if filled, err = s.filled(p); err != nil {
				return nil, nil, postgres.Classify("look at partition "+p.Table.String(), err)
			}
		}
		if filled {
			attached = append(attached, p.Table.String())
		}
	}
	return attached, rewritten, nil
}

// filled reports whether the transactions that attached a partition had written rows of it. Once they
// had not, that is so for good.
func (s *Surveyor) filled(p *catalog.Part) (bool, error) {
	key := fmt.Sprint(p.OID, " ", p.Before)
	if s.unfilled[key] {
		return false, nil
	}
	row, err := s.session.q.One(fmt.Sprintf("SELECT has_table_privilege(%d, 'SELECT')", p.OID))
	if err != nil {
		return false, err
	}
	if !row.Bool(0) { // another refusal names the right
		return true, nil
	}
	row, err = s.session.q.One(fmt.Sprintf("SELECT EXISTS (SELECT FROM ONLY %s WHERE ctid < '(1,0)'::tid AND (%s))", p.Table.SQL(), p.Before))
	if err != nil {
		return false, err
	}
	if row.Bool(0) {
		return true, nil
	}
	if s.unfilled == nil {
		s.unfilled = make(map[string]bool)
	}
	s.unfilled[key] = true
	return false, nil
}
