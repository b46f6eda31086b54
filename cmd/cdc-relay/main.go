// Command cdc-relay streams PostgreSQL outbox tables to Kafka.
//
// One file holds one command. Commands return errors; exit.go alone turns an error into
// an exit code and a text on standard error, so that each is reported once.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/KimMachineGun/automemlimit/memlimit"
	"github.com/cdc-relay/cdc-relay/admin"
	"github.com/cdc-relay/cdc-relay/advice"
	"github.com/rs/zerolog"
	"github.com/spf13/cobra"
)

func main() {
	prepareForCrashes()
	limit := limitMemory(memlimit.FromCgroup)
	ctx, hurry, release := onSignals(context.Background())
	ended := make(chan int, 1)
	go func() {
		ended <- run(ctx, os.Args[1:], process{stdout: os.Stdout, stderr: os.Stderr, env: os.Environ(), hurry: hurry, memoryLimit: limit})
	}()
	code := await(ended, hurry, os.Stderr)
	release()
	os.Exit(code)
}

// hurryPatience is how long a command may still take after the second signal. It may wait for a
// server that does not answer; what it has begun is what kill -9 leaves as well.
const hurryPatience = 3 * time.Second

// await returns the exit code of a command, and that of an interrupted one where it does not end.
func await(ended <-chan int, hurry <-chan struct{}, stderr io.Writer) int {
	select {
	case code := <-ended:
		return code
	case <-hurry:
	}
	select {
	case code := <-ended:
		return code
	case <-time.After(hurryPatience):
		fmt.Fprintln(stderr, "cdc-relay: ended by a second signal while it waited for a server; run it again")
		return exitFailed
	}
}

// process is what a command sees of the process it runs in.
type process struct {
	stdout, stderr io.Writer
	env            []string
	hurry          <-chan struct{} // closed by the second stop signal; nil never is
	memoryLimit    int64           // in bytes, from the container; zero: none
}

// onSignals gives a context that the first SIGTERM, SIGINT or SIGHUP ends and a
// channel that the second one closes. A third one kills, as without us. Echoes do not
// count. SIGHUP is a terminal that was closed; under nohup it stays ignored.
func onSignals(parent context.Context) (context.Context, <-chan struct{}, func()) {
	ctx, stop := context.WithCancel(parent)
	hurry := make(chan struct{})
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT)
	if !signal.Ignored(syscall.SIGHUP) {
		signal.Notify(signals, syscall.SIGHUP)
	}
	go func() {
		heed(signals, stop, func() { close(hurry) })
		signal.Stop(signals)
	}()
	return ctx, hurry, stop
}

// echo is how long after a signal another one is taken for the same. timeout(1) signals
// its child and then the group that both are in, and wrappers hand on a Ctrl-C which the
// terminal has sent to everybody.
const echo = 500 * time.Millisecond

// heed calls stop at the first signal and hurry at the second, and returns when the next
// one would be the third.
func heed(signals <-chan os.Signal, stop, hurry func()) {
	for _, act := range []func(){stop, hurry} {
		<-signals
		act()
		for over := time.After(echo); over != nil || len(signals) > 0; { // both at once after the process stood still
			select {
			case <-signals:
			case <-over:
				over = nil
			}
		}
	}
}

// app is one invocation.
type app struct {
	process
	stopped    <-chan struct{} // closed by the first stop signal
	args       []string        // as typed
	configPath string
	set        []string
	began      bool                              // the command was reached: what fails from here on is no usage error
	command    string                            // the command with its parents, as typed; empty: not known
	known      struct{ format, pipeline string } // of the configuration; empty: it was not loaded
	jsonLog    *zerolog.Logger                   // where the log is JSON
	logTail    *admin.LogTail                    // of a daemon with a console
}

// run executes one command line and returns its exit code. Ending ctx is the
// first stop signal.
func run(ctx context.Context, args []string, p process) int {
	a := &app{process: p, stopped: ctx.Done(), args: args}
	root := a.root()
	root.SetArgs(args)
	root.SetOut(p.stdout)
	if len(args) > 0 && args[0] == cobra.ShellCompRequestCmd {
		root.SetOut(withoutBackticks{p.stdout})
	}
	root.SetErr(p.stderr)
	cmd, err := root.ExecuteContextC(ctx)
	a.command = cmd.CommandPath()
	if err != nil && !a.began {
		err = &advice.Usage{Err: mistyped(cmd, err)}
	}
	if ctx.Err() != nil && errors.Is(err, context.Canceled) {
		err = &interruptedError{err}
	}
	if err != nil {
		a.logAsAsked(cmd, err)
	}
	return a.report(err)
}

func (a *app) root() *cobra.Command {
	root := &cobra.Command{
		Use:   "cdc-relay",
		Short: "Stream PostgreSQL outbox tables to Kafka",
		Long: `cdc-relay follows an outbox table through a logical replication slot and sends
each row to a Kafka topic. A position is confirmed to PostgreSQL only after the
brokers acknowledged everything before it.

Configuration: --config FILE, else $CDC_RELAY_CONFIG, ./cdc-relay.yaml or
/etc/cdc-relay/config.yaml, else environment variables alone. --set and the
environment (CDC_RELAY_POSTGRES_URL, …) override the file.`,
		Example: `  cdc-relay setup --dry-run     # the SQL that is still missing
  cdc-relay setup               # publication and slot
  cdc-relay check               # problems, and how to fix them
  cdc-relay run                 # stream until stopped`,
		SilenceErrors: true,
		// Without this an unknown command is told in cobra's words.
		Args:             knownCommand,
		RunE:             func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
		SilenceUsage:     true,
		PersistentPreRun: func(*cobra.Command, []string) { a.began = true },
	}
	root.PersistentFlags().StringVarP(&a.configPath, "config", "c", "", "configuration file")
	root.PersistentFlags().StringArrayVar(&a.set, "set", nil, "override one value, `key=value` (postgres.slot=x); may be repeated")
	completeKeys(root, "set")
	root.CompletionOptions.DisableDefaultCmd = true
	root.SetHelpCommand(helpCommand())
	root.AddCommand(
		a.runCommand(), a.setupCommand(), a.backfillCommand(), a.cutoverCommand(), a.teardownCommand(),
		a.checkCommand(), a.explainCommand(), a.sqlCommand(), a.importCommand(), a.takeoverCommand(), a.statusCommand(), a.healthcheckCommand(),
		a.deadletterCommand(), a.retentionCommand(), a.markCommand(), a.auditCommand(), a.replayCommand(),
		a.configCommand(), a.versionCommand(), a.completionCommand(),
	)
	return root
}
