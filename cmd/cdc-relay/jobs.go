package main

import (
	"github.com/cdc-relay/cdc-relay/marks"
	"github.com/cdc-relay/cdc-relay/relay/status"
	"github.com/cdc-relay/cdc-relay/retention"
	"github.com/cdc-relay/cdc-relay/upkeep"
)

// besides are the jobs of the configuration that run beside the stream.
func (d *daemon) besides() (loops []*upkeep.Loop) {
	every, inRun := d.cfg.MaintenanceInRun()
	if !inRun {
		return nil
	}
	log := d.log.With().Str("component", "maintenance").Logger()
	readers := new(upkeep.Readers)
	all, settings := d.cfg.Retention()
	settings.Readers = readers
	if policies, _ := retention.Tables(all, ""); len(policies) > 0 {
		loops = append(loops, upkeep.NewLoop(retention.Beside(policies, settings, every, log), d.holdsSlot, log))
	}
	allMarks, settings := d.cfg.Marks()
	settings.Readers = readers
	marked, _ := marks.Tables(allMarks, "")
	for _, p := range marked { // one for each, so that none waits for another
		loops = append(loops, upkeep.NewLoop(marks.Beside(p, settings, log), d.holdsSlot, log))
	}
	return loops
}

// maintenance is what the jobs show.
func (d *daemon) maintenance() (all []status.Maintenance) {
	for _, job := range d.jobs {
		all = append(all, job.Status()...)
	}
	return all
}

// status is that of the relay and of the jobs beside it.
func (d *daemon) status() status.Status {
	s := d.relay.Status()
	s.Maintenance = d.maintenance()
	return s
}

// holdsSlot reports whether this process streams from a slot of the configuration, or why not.
func (d *daemon) holdsSlot() (holds bool, why string) {
	s := d.relay.Status()
	all := s.Shards
	if len(all) == 0 {
		all = []status.Status{s}
	}
	for _, one := range all {
		if one.SourceConnected && (one.State == status.Streaming || one.State == status.Blocked) {
			return true, ""
		}
	}
	return false, s.Reason
}
