package config_test

import (
	"errors"
	"fmt"

	"github.com/cdc-relay/cdc-relay/config"
)

// relayFile gives the content as the file that Load reads.
func relayFile(content string) func(string) ([]byte, error) {
	return func(string) ([]byte, error) { return []byte(content), nil }
}

// Origin names the place in which a key was set.
func ExampleLoad() {
	loaded, err := config.Load(config.Options{
		Path: "relay.yaml", Environ: []string{"DB_PASSWORD=hunter2"}, Set: []string{"log.level=warn"},
		ReadFile: relayFile("postgres:\n  url: postgres://relay:${DB_PASSWORD}@db/app\nkafka:\n  brokers: [kafka:9092]\noutbox:\n  - table: public.outbox\n"),
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	user, database := loaded.Login()
	fmt.Println(user, database)
	for _, key := range []string{"kafka.brokers", "log.level", "relay.guarantee"} {
		fmt.Println(key, loaded.Origin(key))
	}
	// Output:
	// relay app
	// kafka.brokers from relay.yaml:4
	// log.level from --set
	// relay.guarantee default
}

// Load reports every mistake at once, each with its place.
func ExampleErrors() {
	_, err := config.Load(config.Options{
		Path: "relay.yaml", Environ: []string{},
		ReadFile: relayFile("postgres:\n  url: postgres://relay@db/app\n  slott: orders\nkafka:\n  brokers: [kafka:9092]\nrelay:\n  guarantee: twice\noutbox:\n  - table: public.outbox\n"),
	})
	var mistakes *config.Errors
	if errors.As(err, &mistakes) {
		for _, mistake := range mistakes.List {
			fmt.Println(mistake.Text())
		}
	}
	// Output:
	// relay.yaml:3:3: postgres.slott: unknown key; did you mean slot?
	// relay.yaml:7:14: relay.guarantee: "twice" is not allowed; allowed: at_least_once, exactly_once
}
