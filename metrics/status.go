package metrics

import (
	"time"

	"github.com/cdc-relay/cdc-relay/relay/status"
	"github.com/prometheus/client_golang/prometheus"
)

// walStatuses are the values of pg_replication_slots.wal_status.
var walStatuses = []string{"reserved", "extended", "unreserved", "lost"}

// statusCollector reads one snapshot for each scrape. A value that is not known
// is absent, never 0: an alert on a missing series is possible, on a false zero
// it is not.
type statusCollector struct {
	status func() status.Status
	build  prometheus.Metric
	all    []*prometheus.Desc

	info, state, reason, since                                        *prometheus.Desc
	sourceConnected, sinkConnected, leader                            *prometheus.Desc
	inFlightEvents, inFlightBytes, inFlightLimit                      *prometheus.Desc
	oldestUnacked, lagSeconds                                         *prometheus.Desc
	slotLag, slotRetained, slotSafe, slotSeconds, walPace, slotStatus *prometheus.Desc
	slotSpilled, slotActive, lsn, lastEvent, lastOK                   *prometheus.Desc
	recreated, dataLoss, overtaken, parked                            *prometheus.Desc
}

func newStatusCollector(status func() status.Status, version, commit, goVersion string) *statusCollector {
	c := &statusCollector{status: status}
	def := func(name, help string, labels ...string) *prometheus.Desc {
		d := prometheus.NewDesc(prometheus.BuildFQName(namespace, "", name), help, labels, nil)
		c.all = append(c.all, d)
		return d
	}
	c.info = def("build_info", "Always 1; the labels name the build.", "version", "commit", "goversion")
	c.build = prometheus.MustNewConstMetric(c.info, prometheus.GaugeValue, 1, version, commit, goVersion)
	c.state = def("state", "What the relay is doing; exactly one state is 1.", "state")
	c.reason = def("state_reason", "1 with the reason of the present state; absent when all is well.", "state", "reason")
	c.since = def("state_since_timestamp_seconds", "When the present state began.")
	c.sourceConnected = def("source_connected", "1 while the replication connection is up and PostgreSQL answers.")
	c.sinkConnected = def("sink_connected", "1 while the brokers answer.")
	c.leader = def("leader", "1 while this process holds the slot.")
	c.inFlightEvents = def("in_flight_events", "Rows read and not acknowledged.")
	c.inFlightBytes = def("in_flight_bytes", "Bytes that rows in flight and their records hold.")
	c.inFlightLimit = def("in_flight_limit_bytes", "Configured limit of in_flight_bytes.")
	c.oldestUnacked = def("oldest_unacked_seconds", "Since the oldest row in flight was read; 0 when there is none, absent without a session.")
	c.lagSeconds = def("lag_seconds", "Age of the oldest committed row that is not confirmed; 0 when there is none, absent when not known.")
	c.slotLag = def("slot_lag_bytes", "WAL between the server's position and the confirmed one.")
	c.slotRetained = def("slot_retained_wal_bytes", "WAL that the server keeps because of the slot; this is what fills the disk.")
	c.slotSafe = def("slot_safe_wal_bytes", "WAL that may still be written before the slot is lost; absent when unlimited.")
	c.slotSeconds = def("slot_safe_wal_seconds", "Until the slot is lost if it stood still from now on, at the present pace of writing WAL; absent when unlimited.")
	c.walPace = def("wal_bytes_per_second", "Pace at which the server writes WAL, averaged over some minutes.")
	c.slotStatus = def("slot_wal_status", "pg_replication_slots.wal_status; exactly one is 1.", "status")
	c.slotSpilled = def("slot_spilled_bytes_total", "Bytes that decoding spilled to the server's disk.")
	c.slotActive = def("slot_active", "1 while some process holds the slot.")
	c.lsn = def("lsn", "WAL positions as numbers.", "position")
	c.lastEvent = def("last_event_timestamp_seconds", "When a record was last acknowledged.")
	c.lastOK = def("last_confirm_timestamp_seconds", "When the confirmed position last moved.")
	c.parked = def("parked_keys", "Keys whose rows go to the dead-letter topic until they are re-driven.")
	c.recreated = def("topics_recreated_total", "Topics found deleted and recreated while the relay ran.")
	c.dataLoss = def("data_loss_signals_total", "Times a broker had lost or forgotten acknowledged records; investigate any increase.")
	c.overtaken = def("overtaken_total", "Records that became durable before an earlier failed one of their partition, and were sent again in order.")
	return c
}

func (c *statusCollector) Describe(out chan<- *prometheus.Desc) {
	for _, d := range c.all {
		out <- d
	}
}

func (c *statusCollector) Collect(out chan<- prometheus.Metric) {
	s := c.status()
	set := func(d *prometheus.Desc, value float64, labels ...string) {
		out <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, value, labels...)
	}
	out <- c.build
	c.collectState(s, set)
	c.collectInFlight(s, set)
	for d, value := range map[*prometheus.Desc]int64{c.recreated: s.TopicsRecreated, c.dataLoss: s.DataLoss, c.overtaken: s.Overtaken} {
		out <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(value))
	}
	if s.SlotState != nil {
		c.collectSlot(s, set)
		if s.SlotState.SpilledBytes != nil {
			out <- prometheus.MustNewConstMetric(c.slotSpilled, prometheus.CounterValue, float64(*s.SlotState.SpilledBytes))
		}
	}
}

type setter func(d *prometheus.Desc, value float64, labels ...string)

func (c *statusCollector) collectState(s status.Status, set setter) {
	for _, state := range status.States {
		set(c.state, number(s.State == state), string(state))
	}
	if s.Reason != "" {
		set(c.reason, 1, string(s.State), s.Reason)
	}
	setTime(set, c.since, s.Since)
	set(c.sourceConnected, number(s.SourceConnected))
	set(c.sinkConnected, number(s.SinkConnected))
	holds := s.SourceConnected && s.State != status.Standby && s.State != status.Starting && s.State != status.Reconnecting
	set(c.leader, number(holds))
}

func (c *statusCollector) collectInFlight(s status.Status, set setter) {
	set(c.inFlightEvents, float64(s.InFlightEvents))
	set(c.inFlightBytes, float64(s.InFlightBytes))
	set(c.inFlightLimit, float64(s.InFlightLimitBytes))
	if s.OldestUnacked != nil {
		set(c.oldestUnacked, *s.OldestUnacked)
	}
	if s.LagSeconds != nil {
		set(c.lagSeconds, *s.LagSeconds)
	}
	set(c.parked, float64(s.ParkedKeys))
	for _, p := range []struct {
		name string
		at   status.Position
	}{{"server", s.LSN.Server}, {"received", s.LSN.Received}, {"published", s.LSN.Published}, {"confirmed", s.LSN.Confirmed}} {
		if p.at != 0 {
			set(c.lsn, float64(p.at), p.name)
		}
	}
	if s.LagBytes != nil {
		set(c.slotLag, float64(*s.LagBytes))
	}
	setTime(set, c.lastEvent, s.LastEvent)
	setTime(set, c.lastOK, s.LastConfirm)
}

func (c *statusCollector) collectSlot(s status.Status, set setter) {
	set(c.slotRetained, float64(s.RetainedWALBytes))
	set(c.slotActive, number(s.SlotState.Active))
	if s.SlotState.SafeWALBytes != nil {
		set(c.slotSafe, float64(*s.SlotState.SafeWALBytes))
	}
	if s.SlotState.SafeSeconds != nil {
		set(c.slotSeconds, *s.SlotState.SafeSeconds)
	}
	set(c.walPace, float64(s.SlotState.WALPace))
	if s.SlotState.WALStatus != "" {
		for _, status := range walStatuses {
			set(c.slotStatus, number(s.SlotState.WALStatus == status), status)
		}
	}
}

func setTime(set setter, d *prometheus.Desc, at time.Time) {
	if !at.IsZero() {
		set(d, float64(at.UnixNano())/1e9)
	}
}

func number(yes bool) float64 {
	if yes {
		return 1
	}
	return 0
}
