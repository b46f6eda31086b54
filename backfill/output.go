package backfill

import (
	"encoding/json"
	"fmt"
	"io"
)

// Output is where an invocation speaks: the plan and the result to Result, what happens meanwhile
// to Meanwhile. With JSON each is a line with one object.
type Output struct {
	Result, Meanwhile io.Writer
	JSON              bool
}

// Line is one object of the JSON output.
type Line struct {
	What    string      `json:"what"` // plan, step, progress, warning, result
	Text    string      `json:"text"`
	Step    string      `json:"step,omitempty"`
	Tables  []TableLine `json:"tables,omitempty"`
	Rows    uint64      `json:"rows,omitempty"`
	Of      int64       `json:"of,omitempty"`
	Rate    float64     `json:"rows_per_second,omitempty"`
	ETA     int64       `json:"eta_seconds,omitempty"` // for the rows of the tables, without streaming; zero: not known
	WALHeld int64       `json:"wal_held_bytes,omitempty"`

	// Of a backfill with --online: whether it sends a bucket, or streams after one, and which.
	State    string `json:"state,omitempty"`  // sending, streaming
	Bucket   int    `json:"bucket,omitempty"` // from 1 on
	Buckets  int    `json:"buckets,omitempty"`
	Streamed int    `json:"streamed_rows,omitempty"` // since the bucket
}

// TableLine is a table in a plan.
type TableLine struct {
	Table string   `json:"table"`
	Rows  int64    `json:"rows"`
	Exact bool     `json:"exact"` // else estimated
	Order []string `json:"order"`
}

// Say shows a line.
func (o *Output) Say(l Line) { o.say(l) }

// Warn shows a warning.
func (o *Output) Warn(text string) { o.warn(text) }

func (o *Output) say(l Line) {
	to, prefix := o.Meanwhile, ""
	switch l.What {
	case "plan", "result":
		to = o.Result
	case "warning":
		prefix = "cdc-relay: warning: "
	}
	if !o.JSON {
		fmt.Fprintln(to, prefix+l.Text)
		return
	}
	_ = json.NewEncoder(to).Encode(l) // what nobody takes is nobody's loss
}

// Step says what is done, or waited for.
func (o *Output) Step(text string) { o.step(text) }

func (o *Output) step(text string) { o.say(Line{What: "step", Text: text}) }

func (o *Output) warn(text string) { o.say(Line{What: "warning", Text: text}) }
