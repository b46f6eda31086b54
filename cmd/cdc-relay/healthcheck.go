package main

import (
	"fmt"
	"net/http"
	"strings"

	"github.com/spf13/cobra"
)

func (a *app) healthcheckCommand() *cobra.Command {
	var f clientFlags
	cmd := &cobra.Command{
		Use:   "healthcheck",
		Short: "Exit 0 when the relay is ready, 1 when not; for containers without a shell",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := a.client(f, false)
			if err != nil {
				return &unhealthyError{err}
			}
			code, body, err := c.get(cmd.Context(), "/readyz")
			if err != nil {
				return &unhealthyError{err}
			}
			text := strings.TrimSpace(string(body))
			if code != http.StatusOK {
				return &unhealthyError{fmt.Errorf("not ready: %s", text)}
			}
			_, err = fmt.Fprintln(a.stdout, text)
			return err
		},
	}
	f.bind(cmd.Flags())
	return cmd
}

// unhealthyError always means 1: Docker reserves 2 for itself, so that a wrong
// configuration must not show as such here.
type unhealthyError struct{ err error }

func (e *unhealthyError) Error() string { return e.err.Error() }
