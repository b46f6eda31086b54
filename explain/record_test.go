package explain

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/cdc-relay/cdc-relay/router/record"
)

func TestRecordReport_NamesThePositionHeaders(t *testing.T) {
	rec := &record.Record{Topic: "t", Partition: record.AutoPartition, Headers: []record.Header{{Key: "id", Value: []byte("7")}}}
	for _, wanted := range []bool{false, true} {
		report := NewRecord("it", rec).WithPositions(wanted)
		var text strings.Builder
		if err := report.Print(&text); err != nil {
			t.Fatal(err)
		}
		asJSON, err := json.Marshal(report)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{record.HeaderLSN, record.HeaderSeq, record.HeaderCommitTime} {
			if strings.Contains(text.String(), name) != wanted || strings.Contains(string(asJSON), `"`+name+`"`) != wanted {
				t.Errorf("with position headers %t:\n%s%s", wanted, text.String(), asJSON)
			}
		}
	}
}
