package main

import (
	"errors"
	"fmt"

	"github.com/cdc-relay/cdc-relay/advice"
	"github.com/cdc-relay/cdc-relay/config"
	"github.com/cdc-relay/cdc-relay/wording"
	"github.com/spf13/cobra"
)

// load reads the configuration that this invocation means. It gives up at the first stop
// signal: a file may be a pipe that nobody writes to.
func (a *app) load() (*config.Config, error) {
	type outcome struct {
		cfg *config.Config
		err error
	}
	loaded := make(chan outcome, 1)
	go func() {
		cfg, err := config.Load(config.Options{Path: a.configPath, Set: a.set, Environ: a.env})
		loaded <- outcome{cfg, err}
	}()
	select {
	case l := <-loaded:
		if l.err == nil {
			a.known.format, a.known.pipeline = l.cfg.Log.Format, l.cfg.Relay().Pipeline
		}
		return l.cfg, l.err
	case <-a.stopped:
		return nil, errors.New("interrupted by a signal while reading the configuration or a file that it names; nothing was changed")
	}
}

func (a *app) warn(cfg *config.Config) {
	a.warnings(cfg.Warnings)
}

func (a *app) warnings(all []string) {
	for _, warning := range all {
		if a.jsonLog != nil {
			a.jsonLog.Warn().Msg(warning)
			continue
		}
		fmt.Fprintf(a.stderr, "cdc-relay: warning: %s\n", wording.Printable(warning))
	}
}

func (a *app) configCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "config",
		Short: "Print or check the configuration",
		Args:  cobra.NoArgs,
		// Without this a mistyped sub-command would print help and succeed.
		RunE: func(*cobra.Command, []string) error {
			return &advice.Usage{Err: errors.New("config needs a subcommand: print, validate or schema")}
		},
	}
	cmd.AddCommand(a.configPrintCommand(), a.configValidateCommand(), a.configSchemaCommand())
	return cmd
}

func (a *app) configPrintCommand() *cobra.Command {
	return &cobra.Command{
		Use: "print", Short: "Print the effective configuration with the origin of each value; secrets as ***", Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			cfg, err := a.load()
			if err != nil {
				return err
			}
			a.warn(cfg)
			return cfg.Print(a.stdout)
		},
	}
}

func (a *app) configValidateCommand() *cobra.Command {
	return &cobra.Command{
		Use: "validate", Short: "Check the configuration without touching a server", Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			cfg, err := a.load()
			if err != nil {
				return err
			}
			if err := checkSettings(cfg); err != nil {
				return err
			}
			a.warn(cfg)
			from := cfg.Path
			if from == "" {
				from = "the environment"
			}
			_, err = fmt.Fprintf(a.stdout, "ok: %s\n", from)
			return err
		},
	}
}

func (a *app) configSchemaCommand() *cobra.Command {
	return &cobra.Command{
		Use: "schema", Short: "Print the JSON Schema of the configuration file", Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			_, err := a.stdout.Write(append(config.Schema(), '\n'))
			return err
		},
	}
}
