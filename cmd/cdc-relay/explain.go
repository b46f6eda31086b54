package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"slices"

	"github.com/cdc-relay/cdc-relay/config"
	"github.com/cdc-relay/cdc-relay/explain"
	"github.com/spf13/cobra"
)

func (a *app) explainCommand() *cobra.Command {
	var o explain.Options
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "explain",
		Short: "Show the role of each column, and the record that the newest row would become",
		Long: `explain reads the columns of each configured table and prints the matching preset, the
role of every column and the setting that decided it, and the record that the newest row
would become. It sends nothing and changes nothing. The record shows the payload of that
row; --no-record leaves it out.

Reading the newest row needs SELECT on the table, which run does not. Without it,
explain prints the GRANT and explains the rest (exit code 3).

--sample FILE.json takes a row from a file instead: a JSON object with a value per
column, which the server converts to the columns' types. Missing columns are NULL.

Values are printed as they are sent, with control characters shown as symbols such as ␊;
--json is exact.`,
		Example: `  cdc-relay explain
  cdc-relay explain --table public.outbox --sample row.json --json`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := a.load()
			if err != nil {
				return err
			}
			a.warn(cfg)
			return a.explain(cmd.Context(), cfg, o, asJSON)
		},
	}
	cmd.Flags().StringVar(&o.Sample, "sample", "", "JSON `file` with a row to explain instead of the newest row; - is standard input")
	cmd.Flags().StringVar(&o.Table, "table", "", "explain only this configured table")
	cmd.Flags().BoolVar(&o.NoRecord, "no-record", false, "leave out the record and its payload")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	cmd.MarkFlagsMutuallyExclusive("sample", "no-record")
	return cmd
}

func (a *app) explain(ctx context.Context, cfg *config.Config, o explain.Options, asJSON bool) error {
	o.Read = readSample
	explainer, err := explain.New(cfg, o)
	if err != nil {
		return err
	}
	reports, failures := explainer.Tables(ctx)
	if err := a.printExplanation(reports, asJSON); err != nil {
		return err
	}
	if failures == nil && slices.ContainsFunc(reports, func(r *explain.Table) bool { return r.Problem != "" }) {
		return &quietError{exitRefused} // the report explains why
	}
	return failures
}

func readSample(file string) ([]byte, error) {
	read := func() ([]byte, error) { return os.ReadFile(file) }
	if file == "-" {
		read = func() ([]byte, error) { return io.ReadAll(os.Stdin) }
	}
	content, err := read()
	if err != nil {
		return nil, fmt.Errorf("--sample: %w", err)
	}
	return content, nil
}

func (a *app) printExplanation(reports []*explain.Table, asJSON bool) error {
	if asJSON {
		return a.printJSON(map[string]any{"tables": reports})
	}
	for i, r := range reports {
		if r.Error != "" {
			continue // told on standard error
		}
		if i > 0 {
			fmt.Fprintln(a.stdout)
		}
		if err := r.Print(a.stdout); err != nil {
			return err
		}
	}
	return nil
}
