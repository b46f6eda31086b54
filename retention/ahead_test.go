package retention

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/postgres/maintenance"
	"github.com/cdc-relay/cdc-relay/replication/wal"
	"github.com/cdc-relay/cdc-relay/upkeep"
)

func TestMissing_GoesOnBehindTheNewestPartition(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 25, 15, 4, 5, 0, time.UTC)
	day := func(from, to string) maintenance.Partition { return maintenance.Partition{From: from, To: to} }
	for name, tt := range map[string]struct {
		all      []maintenance.Partition
		ahead    int
		zoneless bool
		want     string
	}{
		"none":           {nil, 2, false, "p20261125 2026-11-25 00:00:00+00 2026-11-26 00:00:00+00, p20261126 2026-11-26 00:00:00+00 2026-11-27 00:00:00+00, p20261127 2026-11-27 00:00:00+00 2026-11-28 00:00:00+00"},
		"default":        {[]maintenance.Partition{{Default: true}}, 0, false, ""},
		"today":          {[]maintenance.Partition{day("2026-11-25 00:00:00+00", "2026-11-26 00:00:00+00"), day("2026-11-24 00:00:00+00", "2026-11-25 00:00:00+00")}, 1, false, "p20261126 2026-11-26 00:00:00+00 2026-11-27 00:00:00+00"},
		"long ago":       {[]maintenance.Partition{day("2020-01-01 00:00:00+00", "2020-01-02 00:00:00+00")}, 1, false, "p20261125 2026-11-25 00:00:00+00 2026-11-26 00:00:00+00, p20261126 2026-11-26 00:00:00+00 2026-11-27 00:00:00+00"},
		"from the past":  {[]maintenance.Partition{day("", "2026-11-25 00:00:00+00")}, 0, false, ""},
		"without an end": {[]maintenance.Partition{day("2026-11-25 00:00:00+00", "")}, 3, false, ""},
		"months":         {[]maintenance.Partition{day("2026-08-01 00:00:00", "2026-09-01 00:00:00")}, 1, true, "p20261101 2026-11-01 00:00:00 2026-12-01 00:00:00, p20261201 2026-12-01 00:00:00 2027-01-01 00:00:00"},
		"hours":          {[]maintenance.Partition{day("2026-11-25 15:00:00+00", "2026-11-25 16:00:00+00")}, 1, false, "p20261125_160000 2026-11-25 16:00:00+00 2026-11-25 17:00:00+00"},
		"local days":     {[]maintenance.Partition{day("2026-11-24 23:00:00+00", "2026-11-25 23:00:00+00")}, 1, false, "p20261125_230000 2026-11-25 23:00:00+00 2026-11-26 23:00:00+00"},
	} {
		p := Policy{Target: upkeep.Target{Table: wal.Table{Schema: "public", Name: "outbox"}}, Ahead: tt.ahead}
		missing, _, err := p.missing(tt.all, now, tt.zoneless)
		var got []string
		for _, one := range missing {
			got = append(got, fmt.Sprintf("%s %s %s", strings.TrimPrefix(one.name, "outbox_"), one.from, one.to))
		}
		if text := strings.Join(got, ", "); err != nil || text != tt.want {
			t.Errorf("%s: %v, %s, want %s", name, err, text, tt.want)
		}
	}
}

func TestMissing_CountsWhatIsThereAndRefusesEndsThatAreNoTime(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 25, 15, 4, 5, 0, time.UTC)
	p := Policy{Target: upkeep.Target{Table: wal.Table{Schema: "public", Name: strings.Repeat("ä", 30)}}, Ahead: 3}
	missing, ahead, err := p.missing([]maintenance.Partition{{From: "2026-11-26 00:00:00+00", To: "2026-11-27 00:00:00+00", Ahead: true}, {From: "2026-11-25 00:00:00+00", To: "2026-11-26 00:00:00+00"}}, now, false)
	if err != nil || ahead != 1 || len(missing) != 2 || len(missing[0].name) > 63 || !strings.HasSuffix(missing[0].name, "ä_p20261127") {
		t.Errorf("%v, %d ahead, missing %+v", err, ahead, missing)
	}
	if _, _, err := p.missing([]maintenance.Partition{{From: "2026-11-26 00:00:00+00", To: "infinity"}}, now, false); err == nil {
		t.Error("an end at infinity tells where the next partition begins")
	}
}
