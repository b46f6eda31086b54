package stage

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/cdc-relay/cdc-relay/test/parity/golden"
)

// Actor is who streams while a script runs.
type Actor interface {
	// Settle waits until everything that is committed has arrived, or until the
	// actor has stopped for good.
	Settle(ctx context.Context) error
	// Sleep is a pause of the script.
	Sleep(ctx context.Context, d time.Duration) error
	// Direct does what another directive says.
	Direct(ctx context.Context, word, argument string) error
}

// Script runs statements on sessions of their own, each alone.
type Script struct {
	url      string
	sessions map[string]*pgx.Conn
	on       string
}

// NewScript connects when it has something to run. The caller calls Close.
func NewScript(url string) *Script { return &Script{url: url, sessions: map[string]*pgx.Conn{}} }

// Close closes the sessions.
func (s *Script) Close() error {
	var errs []error
	for _, conn := range s.sessions {
		errs = append(errs, conn.Close(context.Background()))
	}
	return errors.Join(errs...)
}

// Play runs steps; who may be nil for a script without directives.
func (s *Script) Play(ctx context.Context, steps []golden.Step, who Actor) error {
	for _, step := range steps {
		if err := s.step(ctx, step, who); err != nil {
			return fmt.Errorf("line %d: %w", step.Line, err)
		}
	}
	return nil
}

func (s *Script) step(ctx context.Context, step golden.Step, who Actor) error {
	switch {
	case step.SQL != "":
		return s.exec(ctx, step.SQL)
	case step.Directive == "session":
		s.on = step.Argument
		return nil
	case who == nil:
		return fmt.Errorf("--@ %s: not before the start", step.Directive)
	case step.Directive == "settle":
		return who.Settle(ctx)
	case step.Directive == "sleep":
		seconds, err := strconv.ParseFloat(step.Argument, 64)
		if err != nil {
			return fmt.Errorf("--@ sleep: %w", err)
		}
		return who.Sleep(ctx, time.Duration(seconds*float64(time.Second)))
	}
	return who.Direct(ctx, step.Directive, step.Argument)
}

func (s *Script) exec(ctx context.Context, sql string) error {
	conn := s.sessions[s.on]
	if conn == nil {
		var err error
		if conn, err = pgx.Connect(ctx, s.url); err != nil {
			return err
		}
		s.sessions[s.on] = conn
	}
	// The simple protocol takes every statement, utility or not.
	_, err := conn.PgConn().Exec(ctx, sql).ReadAll()
	var refused *pgconn.PgError
	if errors.As(err, &refused) {
		return fmt.Errorf("%s: %w", sql, err)
	}
	return err
}
