package ending

import (
	"errors"

	"github.com/cdc-relay/cdc-relay/fault"
	"github.com/cdc-relay/cdc-relay/postgres"
	"github.com/cdc-relay/cdc-relay/replication/wal"
	"github.com/cdc-relay/cdc-relay/sink"
)

// ServerSilent reports that the session ended because the server was silent: it may have given
// the slot to another relay by now.
func ServerSilent(err error) bool {
	return !ofBrokers(err) && postgres.Reason(err) == fault.ReasonTimeout
}

// LostConnection reports that the connection is lost, and the slot with it: a standby may have it
// already.
func LostConnection(err error) bool {
	return err != nil && !ofBrokers(err) && postgres.KindOf(err) == fault.KindRetry
}

// ReadPast reports that the stream ended, with its connection alive, because rows had to be dropped
// that nobody took for long. The next session reads them again.
func ReadPast(err error) bool { return errors.Is(err, wal.ErrReadPast) }

// Unreadable reports whether the stream ended at one of its rows, where every later one ends too.
func Unreadable(err error) bool {
	e, ok := errors.AsType[*fault.Error](err)
	return ok && (e.Kind == fault.KindProtocol || e.Kind == fault.KindRefused && e.LSN != 0)
}

// ofBrokers reports whether an error is the brokers': it may hold a network error, which says
// nothing of the server.
func ofBrokers(err error) bool {
	_, ok := errors.AsType[*sink.Error](err)
	return ok
}
