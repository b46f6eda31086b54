package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"strings"

	"github.com/cdc-relay/cdc-relay/advice"
	"github.com/cdc-relay/cdc-relay/config"
	"github.com/cdc-relay/cdc-relay/debezium/importer"
	"github.com/cdc-relay/cdc-relay/fault"
	"github.com/cdc-relay/cdc-relay/postgres"
	"github.com/cdc-relay/cdc-relay/postgres/catalog"
	"github.com/spf13/cobra"
)

// importOptions are the flags that import and takeover share.
type importOptions struct {
	worker      string
	postgresURL string
	strict      bool
}

func (o *importOptions) flags(cmd *cobra.Command) {
	cmd.Flags().StringVar(&o.worker, "worker", "", "`file` with the settings of the Connect worker: converters, brokers, producer")
	cmd.Flags().StringVar(&o.postgresURL, "postgres-url", "", "`URL` of the database, to look at its tables; nothing is changed there")
	cmd.Flags().BoolVar(&o.strict, "strict", false, "fail when a key is not carried over, or Debezium itself refuses the configuration")
}

func (a *app) importCommand() *cobra.Command {
	var o importOptions
	cmd := &cobra.Command{
		Use:   "import FILE",
		Short: "Convert a Debezium outbox connector's configuration and print the result",
		Long: `import reads the configuration of a Debezium PostgreSQL connector with the outbox
EventRouter: Kafka Connect JSON (bare, or as {"name", "config"}), connector
properties, Debezium Server's application.properties or its environment
(DEBEZIUM_SOURCE_…), or a Strimzi KafkaConnector. It prints a configuration for
cdc-relay with a comment for each key: carried, implied, not needed and why, or not
carried and what that changes.

Settings of the Connect worker (converters, brokers) come from --worker FILE: worker
properties, variables of the image (CONNECT_…), or a Strimzi KafkaConnect. With
--postgres-url import reads the tables, resolves patterns, and suggests columns for
names that the tables do not have.

import replaces passwords with references to environment variables.
FILE is - for standard input.`,
		Example: `  cdc-relay import outbox-connector.json --worker connect-distributed.properties > cdc-relay.yaml
  curl -s http://connect:8083/connectors/outbox | cdc-relay import - --postgres-url postgres://relay@db/shop`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if a.configPath != "" || len(a.set) > 0 {
				return &advice.Usage{Err: errors.New("import reads only a connector's configuration: --config and --set have no effect; edit its output instead")}
			}
			result, err := a.convert(cmd.Context(), args[0], o)
			if err != nil {
				return err
			}
			if _, err := a.stdout.Write(result.YAML); err != nil {
				return err
			}
			return a.strict(result, o.strict)
		},
	}
	o.flags(cmd)
	return cmd
}

// convert reads the files, looks at the database if asked to, and imports.
func (a *app) convert(ctx context.Context, file string, o importOptions) (*importer.Result, error) {
	if file == "-" && o.worker == "-" {
		return nil, &advice.Usage{Err: errors.New("the connector and the worker cannot both be standard input")}
	}
	input, err := readInput(file)
	if err != nil {
		return nil, &advice.Input{Err: err}
	}
	options := importer.Options{Name: file, Check: complaints}
	if file == "-" {
		options.Name = "standard input"
	}
	if o.worker != "" {
		options.WorkerName = o.worker
		if options.Worker, err = readInput(o.worker); err != nil {
			return nil, &advice.Input{Err: fmt.Errorf("--worker: %w", err)}
		}
	}
	if o.postgresURL != "" {
		if options.Catalog, err = readCatalog(ctx, postgres.Config{URL: o.postgresURL}); err != nil {
			return nil, fault.Refuse(err)
		}
	}
	result, err := importer.Convert(input, options)
	if err != nil {
		return nil, &advice.Input{Err: err}
	}
	return result, nil
}

// complaints is what our own loader refuses of an import. What depends on a variable
// or a file is not judged: they are those of the relay's machine.
func complaints(yaml []byte) []importer.Complaint {
	const name = "imported"
	yaml = certificates.ReplaceAll(yaml, nil)
	variables := []string{}
	for _, m := range variable.FindAllSubmatch(yaml, -1) {
		variables = append(variables, string(m[1])+"=1")
	}
	_, err := config.Load(config.Options{Path: name, Environ: variables, WithoutSecrets: true, ReadFile: func(file string) ([]byte, error) {
		if file == name {
			return yaml, nil
		}
		return []byte("1"), nil
	}})
	var list *config.Errors
	if !errors.As(err, &list) {
		return nil
	}
	lines := bytes.Split(yaml, []byte("\n"))
	var found []importer.Complaint
	for _, e := range list.List {
		at := e.Line > 0 && e.Line <= len(lines) && !strings.HasPrefix(e.Key, "outbox")
		if at && bytes.Contains(lines[e.Line-1], []byte("${")) || strings.HasSuffix(e.Key, "_file") {
			continue
		}
		found = append(found, importer.Complaint{Key: e.Key, Message: e.Message})
	}
	return found
}

var (
	variable     = regexp.MustCompile(`\$\{([A-Za-z_][A-Za-z0-9_]*)`)
	certificates = regexp.MustCompile(`&ssl(?:rootcert|cert|key)=[^&"'\s]*`) // in postgres.url
)

// expand resolves what import wrote in place of a reference; known is false where the
// relay's environment lacks it.
func (a *app) expand(value string) (text string, known bool) {
	known = true
	text = os.Expand(value, func(name string) string {
		name, fallback, _ := strings.Cut(name, ":-")
		found := cmp.Or(a.getenv(name), fallback)
		known = known && found != ""
		return found
	})
	return text, known
}

// readInput reads a file of at most a few MiB; - is standard input.
func readInput(name string) ([]byte, error) {
	const limit = 4 << 20
	var from io.Reader = os.Stdin
	if name != "-" {
		file, err := os.Open(name)
		if err != nil {
			return nil, err
		}
		defer file.Close()
		from = file
	}
	content, err := io.ReadAll(io.LimitReader(from, limit+1))
	if err != nil {
		return nil, err // of package os: names the file
	}
	if len(content) > limit {
		return nil, fmt.Errorf("read %s: it is larger than 4 MiB: this is not a connector's configuration", name)
	}
	return content, nil
}

// readCatalog lists the tables of the database as import wants them.
func readCatalog(ctx context.Context, cfg postgres.Config) ([]importer.Table, error) {
	list, err := catalog.ListTables(ctx, cfg)
	if err != nil {
		return nil, err
	}
	tables := make([]importer.Table, 0, len(list))
	for _, l := range list {
		t := importer.Table{Schema: l.Schema, Name: l.Name, Columns: l.Columns, Partitioned: l.Partitioned}
		if l.Root.Name != "" {
			t.Root = l.Root.Schema + "." + l.Root.Name
		}
		tables = append(tables, t)
	}
	return tables, nil
}

// strict says on standard error what a person has to look at, and with --strict
// fails when something was lost.
func (a *app) strict(result *importer.Result, fail bool) error {
	todo := 0
	for _, remark := range result.Remarks {
		if remark.Fate == importer.ToDo {
			todo++
		}
	}
	err := a.warnLost(result, fail)
	if todo > 0 {
		fmt.Fprintf(a.stderr, "cdc-relay: left to do: %d; they stand at the head of the file\n", todo)
	}
	return err
}

// warnLost names what was lost, which forbids to go on where fail says so.
func (a *app) warnLost(result *importer.Result, fail bool) error {
	lost := result.Lost()
	for _, remark := range lost {
		fmt.Fprintf(a.stderr, "cdc-relay: warning: %s\n", remark)
	}
	if fail && len(lost) > 0 {
		return &advice.Input{Err: fmt.Errorf("--strict: %d of the warnings above forbid it", len(lost))}
	}
	return nil
}
