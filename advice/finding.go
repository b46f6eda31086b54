package advice

import "fmt"

// Level is how much a finding matters.
type Level string

// The levels of a finding.
const (
	OK   Level = "ok"
	Warn Level = "warn" // streams and delivers, and may surprise
	Fail Level = "fail" // does not stream or deliver, or loses or repeats rows
)

// Finding is the outcome of one check.
type Finding struct {
	Check  string `json:"check"` // what was looked at, such as "slot.wal"; several findings may share it
	Level  Level  `json:"level"`
	Seen   string `json:"seen"`
	Advice string `json:"advice,omitempty"` // what to do; empty when Level is OK
}

// Findings are the outcomes of the checks of one package, in the order in which it looked.
type Findings []Finding

// Add appends a finding.
func (f *Findings) Add(check string, level Level, advice, seen string, args ...any) {
	*f = append(*f, Finding{Check: check, Level: level, Seen: fmt.Sprintf(seen, args...), Advice: advice})
}

// OK appends what is as it should be.
func (f *Findings) OK(check, seen string, args ...any) { f.Add(check, OK, "", seen, args...) }

// Count is how many findings have a level.
func (f Findings) Count(level Level) (n int) {
	for i := range f {
		if f[i].Level == level {
			n++
		}
	}
	return n
}
