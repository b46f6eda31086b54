package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/cdc-relay/cdc-relay/audit"
)

// auditFor is how long an audit may take, with the brokers away or the relay killed.
const auditFor = 30 * time.Second

// audit has the table proven against the topics, beside the relay at work, and says the outcome.
func (s *show) audit(ctx context.Context) {
	s.say("audit: comparing every row of the table with the records in the topics")
	ctx, cancel := context.WithTimeout(ctx, auditFor)
	defer cancel()
	cfg, err := loadConfig(s.stage.relay.yaml)
	if err != nil {
		s.say("audit: " + err.Error())
		return
	}
	var out bytes.Buffer
	began := time.Now()
	a := audit.Audit{
		Settings: cfg.Relay(), Options: audit.Options{Memory: 128 << 20, Wait: auditFor / 2},
		Out: audit.Output{Result: &out, Meanwhile: io.Discard},
	}
	err = a.Run(ctx)
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	text := "audit: " + lines[len(lines)-1] + fmt.Sprintf(" rows, in %.1f s", time.Since(began).Seconds())
	if err != nil {
		text = "audit: " + err.Error()
	}
	s.say(text)
}
