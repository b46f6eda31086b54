package setup

import (
	"context"
	"maps"
	"slices"
	"strings"

	"github.com/cdc-relay/cdc-relay/advice"
	"github.com/cdc-relay/cdc-relay/fault"
	"github.com/cdc-relay/cdc-relay/postgres/provision"
	"github.com/cdc-relay/cdc-relay/relay"
	"github.com/cdc-relay/cdc-relay/sink/broker"
	"github.com/cdc-relay/cdc-relay/sink/topics"
	"github.com/cdc-relay/cdc-relay/wording"
)

// Setup makes what is missing, in the order in which one thing needs the other.
type Setup struct {
	settings  relay.Config
	version   string
	say, warn func(format string, args ...any)
}

// New takes the version of the program, which checkpoints name, and what shows a line of
// the result and a warning.
func New(settings relay.Config, version string, say, warn func(format string, args ...any)) *Setup {
	return &Setup{settings: settings, version: version, say: say, warn: warn}
}

// Run says what is missing, then makes it unless dryRun.
func (s *Setup) Run(ctx context.Context, options provision.SetupOptions, dryRun, acceptGap bool) error {
	cfg := s.settings.Replication
	options.AcceptCut = acceptGap
	plan, err := provision.Setup(ctx, cfg, options)
	if err != nil {
		return fault.Refuse(err)
	}
	s.printPlan(plan.Steps)
	if !acceptGap {
		if err := s.refuseGap(ctx); err != nil {
			return err
		}
	}
	if dryRun {
		s.printReport(plan, true)
		if err := s.beside(ctx, true); err != nil {
			return err
		}
		for _, step := range plan.Steps {
			if step.Object == "slot" && !step.Exists && s.settings.KeepsPositions() {
				s.say("-- where slot %s begins would be written to topic %s, unless that has a checkpoint of it", step.Name, s.settings.CheckpointTopic)
			}
		}
		if acceptGap {
			return s.AcceptGap(ctx, true)
		}
		return nil
	}
	// Before the slot, which holds back WAL from then on: a run without these topics, or with
	// topics that it refuses, would not stream from it, and rows without their schema would wait.
	if err := s.beside(ctx, false); err != nil {
		return err
	}
	first := newFirst(s)
	options.DryRun = false
	options.OnStep = func(step provision.Step) {
		if !step.Exists {
			s.say("created %s %s", step.Object, step.Name)
			first.made(step)
		}
	}
	report, err := provision.Setup(ctx, cfg, options)
	first.readPositions(ctx) // also when a later slot could not be made
	if err != nil {
		first.unwritten(errNotReached)
		return fault.Refuse(err)
	}
	s.printReport(report, false)
	if acceptGap {
		if err := s.acceptGap(ctx, false, first.slots); err != nil {
			first.unwritten(errNotReached)
			return err
		}
	}
	if err := first.write(ctx); err != nil {
		return err
	}
	s.recordLetters(ctx)
	s.say("ready: start `cdc-relay run`")
	return nil
}

// Prepare makes all but the slots, which somebody else makes: with dryRun it says what.
func (s *Setup) Prepare(ctx context.Context, options provision.SetupOptions, dryRun bool) error {
	options.WithoutSlots, options.DryRun = true, dryRun
	options.OnStep = func(step provision.Step) {
		switch {
		case step.Exists:
		case dryRun:
			s.say("-- %s %s is missing:\n%s;", step.Object, step.Name, strings.TrimRight(step.SQL, "; \n"))
		default:
			s.say("created %s %s", step.Object, step.Name)
		}
	}
	report, err := provision.Setup(ctx, s.settings.Replication, options)
	if err != nil {
		return fault.Refuse(err)
	}
	for _, warning := range report.Warnings {
		s.warn("%s", warning)
	}
	return s.beside(ctx, dryRun)
}

// beside makes what is not in PostgreSQL.
func (s *Setup) beside(ctx context.Context, dryRun bool) error {
	if err := s.topics(ctx, dryRun); err != nil {
		return err
	}
	return s.schemas(ctx, dryRun)
}

// ownTopic is a topic of the relay's own.
type ownTopic struct {
	name, purpose string
	ensure        func(ctx context.Context, at broker.Connection, want topics.Creation, topic string, dryRun bool) (missing bool, err error)
}

// ownTopics are those that the configuration has a use for.
func ownTopics(settings relay.Config) (own []ownTopic) {
	if settings.KeepsPositions() {
		own = append(own, ownTopic{settings.CheckpointTopic, "for checkpoints (one partition, cleanup.policy=compact)", topics.EnsureCheckpointTopic})
	}
	if settings.OnReject == relay.DeadLetterOnReject {
		own = append(own, ownTopic{settings.DeadLetterTopic, "for dead letters (cleanup.policy=delete, retention.ms=-1)", topics.EnsureTopic})
	}
	return own
}

// topics makes the topics of our own.
func (s *Setup) topics(ctx context.Context, dryRun bool) error {
	for _, own := range ownTopics(s.settings) {
		missing, err := own.ensure(ctx, s.settings.Kafka.Connection, s.settings.Kafka.CreateTopics, own.name, dryRun)
		switch {
		case err != nil:
			return &advice.Refused{Err: broker.AdviseReachable(err)}
		case !missing:
			s.say("-- topic %s exists", own.name)
		case dryRun:
			s.say("-- topic %s is missing, %s", own.name, own.purpose)
		default:
			s.say("created topic %s", own.name)
		}
	}
	return nil
}

func (s *Setup) printPlan(steps []provision.Step) {
	for _, step := range steps {
		if step.Exists {
			s.say("-- %s %s exists", step.Object, step.Name)
			continue
		}
		s.say("-- %s %s is missing:\n%s;", step.Object, step.Name, strings.TrimRight(step.SQL, "; \n"))
	}
}

func (s *Setup) printReport(report *provision.SetupReport, dryRun bool) {
	hint := "drop the slot and run `cdc-relay backfill`"
	if dryRun {
		hint = "run `cdc-relay backfill` instead of setup"
	}
	hint = "to send them, " + hint + "; if an earlier slot sent some of them, `cdc-relay audit` says which are missing, and `cdc-relay replay` sends those"
	for _, warning := range report.Warnings {
		s.warn("%s", warning)
	}
	for _, table := range slices.Sorted(maps.Keys(report.RowsBefore)) {
		if n := report.RowsBefore[table]; n > 0 {
			s.say("note: %s in %s from before the slot will not be sent; %s", wording.Count(n, "row"), table, hint)
		}
	}
}
