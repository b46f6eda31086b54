package catalog

import (
	"strings"

	"github.com/cdc-relay/cdc-relay/postgres"
)

// AwayStandby is a slot that synchronized_standby_slots names and whose standby is not attached.
// The server sends the rows of a slot with failover only once each such standby has them.
type AwayStandby struct {
	Slot string
	Why  string
}

// HintStandby is what to do about standbys that are away.
const HintStandby = "start the standby of that slot, or take the slot out of synchronized_standby_slots and run SELECT pg_reload_conf() on the server"

// ReadAwayStandbys reads for which standbys the server does not send the rows of a slot. A slot
// without failover waits for none.
func ReadAwayStandbys(q postgres.Querier, version int, slot string) ([]AwayStandby, error) {
	if version < postgres.FailoverVersion {
		return nil, nil
	}
	rows, err := q.All(`SELECT n.name, CASE WHEN s.slot_name IS NULL THEN 'does not exist' WHEN s.slot_type <> 'physical' THEN 'is no physical slot'
			WHEN s.invalidation_reason IS NOT NULL THEN 'is invalidated' ELSE 'is not active' END
		FROM (SELECT DISTINCT pg_catalog.btrim(name, E' \t"') AS name
			FROM pg_catalog.unnest(pg_catalog.string_to_array(pg_catalog.current_setting('synchronized_standby_slots'), ',')) name) n
		LEFT JOIN pg_catalog.pg_replication_slots s ON s.slot_name = n.name
		WHERE n.name <> '' AND (s.slot_name IS NULL OR s.slot_type <> 'physical' OR s.invalidation_reason IS NOT NULL OR NOT s.active)
			AND EXISTS (SELECT FROM pg_catalog.pg_replication_slots own WHERE own.slot_name = ` + postgres.QuoteLiteral(slot) + ` AND own.failover)
		ORDER BY 1`)
	if err != nil {
		return nil, postgres.Classify("look at synchronized_standby_slots", err)
	}
	var away []AwayStandby
	for _, row := range rows {
		away = append(away, AwayStandby{Slot: row[0].Text, Why: row[1].Text})
	}
	return away, nil
}

// AwayText says which standbys are away.
func AwayText(away []AwayStandby) string {
	names := make([]string, len(away))
	for i, s := range away {
		names[i] = postgres.SlotSubject(s.Slot) + ", which " + s.Why
	}
	return "synchronized_standby_slots names " + strings.Join(names, ", and ")
}
