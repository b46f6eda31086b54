package metrics

import (
	"github.com/cdc-relay/cdc-relay/relay/status"
	"github.com/prometheus/client_golang/prometheus"
)

// jobs are those beside a stream, with what they do.
var jobs = []struct{ name, what string }{{"retention", "deleted, archived or taken away otherwise"}, {"mark", "marked as published"}}

// maintenanceCollector reads one snapshot of the jobs for each scrape. They are the process's, and
// have no shard.
type maintenanceCollector struct {
	read  func() []status.Maintenance
	descs map[string]jobDescs
}

type jobDescs struct{ rows, held, oldest, pass, paused *prometheus.Desc }

// What retention alone has.
var (
	exportedDesc   = prometheus.NewDesc(prometheus.BuildFQName(namespace, "retention", "export_bytes_total"), "Bytes of files that this process wrote.", []string{"table"}, nil)
	partitionsDesc = prometheus.NewDesc(prometheus.BuildFQName(namespace, "retention", "partitions"), "Partitions after the last pass: ahead, held_back.", []string{"table", "state"}, nil)
	removedDesc    = prometheus.NewDesc(prometheus.BuildFQName(namespace, "retention", "partitions_removed_total"), "Partitions that this process dropped or detached.", []string{"table"}, nil)
)

func newMaintenanceCollector(read func() []status.Maintenance) *maintenanceCollector {
	c := &maintenanceCollector{read: read, descs: make(map[string]jobDescs)}
	for _, job := range jobs {
		def := func(name, help string, labels ...string) *prometheus.Desc {
			return prometheus.NewDesc(prometheus.BuildFQName(namespace, job.name, name), help, append([]string{"table"}, labels...), nil)
		}
		c.descs[job.name] = jobDescs{
			rows:   def("rows_total", "Delivered rows that were "+job.what+" by this process.", "then"),
			held:   def("held_back_rows", "Rows that the last pass left, by why: dead_letter, changed.", "reason"),
			oldest: def("oldest_row_seconds", "Age of the oldest row that the job is about; absent when there is none."),
			pass:   def("pass_seconds", "How long the last pass took that did all that was due."),
			paused: def("paused", "1 with the reason while something is in the way; absent when nothing is.", "reason"),
		}
	}
	return c
}

func (c *maintenanceCollector) Describe(out chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{exportedDesc, partitionsDesc, removedDesc} {
		out <- d
	}
	for _, d := range c.descs {
		for _, one := range []*prometheus.Desc{d.rows, d.held, d.oldest, d.pass, d.paused} {
			out <- one
		}
	}
}

func (c *maintenanceCollector) Collect(out chan<- prometheus.Metric) {
	for _, m := range c.read() {
		d, known := c.descs[m.Job]
		if !known {
			continue
		}
		gauge := func(desc *prometheus.Desc, value float64, labels ...string) {
			out <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, value, append([]string{m.Table}, labels...)...)
		}
		out <- prometheus.MustNewConstMetric(d.rows, prometheus.CounterValue, float64(m.Rows), m.Table, m.Then)
		if m.Then == "export" {
			out <- prometheus.MustNewConstMetric(exportedDesc, prometheus.CounterValue, float64(m.Exported), m.Table)
		}
		if p := m.Partitions; p != nil {
			gauge(partitionsDesc, float64(p.Ahead), "ahead")
			gauge(partitionsDesc, float64(p.Held), "held_back")
			out <- prometheus.MustNewConstMetric(removedDesc, prometheus.CounterValue, float64(p.Removed), m.Table)
		}
		for _, why := range []string{status.HeldByLetter, status.HeldByOthers} {
			gauge(d.held, float64(m.HeldBack[why]), why)
		}
		if m.OldestRow != nil {
			gauge(d.oldest, *m.OldestRow)
		}
		if m.PassSeconds != nil {
			gauge(d.pass, *m.PassSeconds)
		}
		if m.State == status.JobPaused {
			gauge(d.paused, 1, m.Reason)
		}
	}
}

// WatchMaintenance has the jobs of the process asked once for each scrape. The last one given wins.
func (m *Metrics) WatchMaintenance(read func() []status.Maintenance) {
	replacing{m.process, m.registry}.MustRegister(newMaintenanceCollector(read))
}
