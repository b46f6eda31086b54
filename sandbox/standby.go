package sandbox

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
)

// Standby makes a hot standby of the server from a copy of its files. The server is
// stopped for the copy, and started again. The physical slot that the standby streams
// from has to be there before; settings are beside those of the server. The caller
// calls Close.
func (p *Postgres) Standby(ctx context.Context, slot string, settings map[string]string) (*Postgres, error) {
	if err := p.Stop(ctx, Fast); err != nil {
		return nil, err
	}
	dir, err := p.run.makeDir("pg")
	if err != nil {
		return nil, err
	}
	s := &Postgres{options: p.options, binaries: p.binaries, dir: dir, run: p.run, out: &tail{to: p.options.ServerLog}}
	s.options.Settings = maps.Clone(p.options.Settings)
	if s.options.Settings == nil {
		s.options.Settings = map[string]string{}
	}
	s.options.Settings["hot_standby_feedback"] = "on"
	s.options.Settings["wal_receiver_status_interval"] = "1"
	s.options.Settings["primary_slot_name"] = slot
	s.options.Settings["primary_conninfo"] = fmt.Sprintf("host=127.0.0.1 port=%d user=postgres dbname=postgres application_name=%s", p.port, slot)
	maps.Copy(s.options.Settings, settings)
	if err := copyFolder(ctx, p.data(), s.data()); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	if err := p.run.writeFile(filepath.Join(s.data(), "standby.signal"), nil); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	if err := p.Start(ctx); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	if err := s.startOnFreePort(ctx); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}
