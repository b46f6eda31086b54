package main

import (
	"errors"
	"fmt"
	"time"

	"github.com/cdc-relay/cdc-relay/advice"
	"github.com/cdc-relay/cdc-relay/postgres"
	"github.com/spf13/pflag"
)

type reshardFlags struct {
	from int
	wait time.Duration
}

func (f reshardFlags) check(flags *pflag.FlagSet) error {
	switch given := flags.Changed("reshard-from"); {
	case given && (f.from < 1 || f.from > postgres.MaxShards):
		return &advice.Usage{Err: fmt.Errorf("--reshard-from %d is not allowed; allowed: the number of shards so far, from 1 to %d", f.from, postgres.MaxShards)}
	case flags.Changed("wait") && !given:
		return &advice.Usage{Err: errors.New("--wait is only allowed with --reshard-from")}
	case f.wait <= 0:
		return notPositive("wait", f.wait)
	}
	return nil
}
