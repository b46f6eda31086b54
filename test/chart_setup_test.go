package test

import (
	"reflect"
	"strings"
	"testing"
)

// The setup job needs what the relay needs to run on a cluster: nodes that take
// it, its variables, and the service account of a cloud role where there is one.
func TestChart_SetupRunsWhereTheRelayDoes(t *testing.T) {
	objects := renderChart(t, full)
	relay := at(t, kind(t, objects, "Deployment", "orders-cdc-relay"), "spec", "template", "spec").(object)
	setup := at(t, kind(t, objects, "Job", "orders-cdc-relay-setup"), "spec", "template", "spec").(object)
	for _, key := range []string{"nodeSelector", "tolerations", "priorityClassName", "imagePullSecrets", "securityContext"} {
		if relay[key] == nil || !reflect.DeepEqual(relay[key], setup[key]) {
			t.Errorf("%s: the relay has %v, setup %v", key, relay[key], setup[key])
		}
	}
	if want, got := at(t, relay, "containers", 0, "envFrom"), at(t, setup, "containers", 0).(object)["envFrom"]; !reflect.DeepEqual(got, want) {
		t.Errorf("setup has envFrom %v, want %v", got, want)
	}
	if name, there := setup["serviceAccountName"]; there {
		t.Errorf("setup runs as %v, which the chart has not made yet", name)
	}
	objects = renderChart(t, strings.Replace(full, "serviceAccount: {", "serviceAccount: {create: false, name: cloud, ", 1))
	if got := at(t, kind(t, objects, "Job", "orders-cdc-relay-setup"), "spec", "template", "spec", "serviceAccountName"); got != "cloud" {
		t.Errorf("setup runs as %v", got)
	}
}

func TestChart_RefusesPasswordsInURLs(t *testing.T) {
	schema, defaults := chartSchema(t), decode(t, read(t, chart+"/values.yaml"))
	for url, allowed := range map[string]bool{
		"postgres://relay@db:5432/shop":              true,
		"postgres://relay:${PASSWORD}@db/shop":       true,
		"host=db user=relay":                         true,
		"host=db password=${PASSWORD}":               true,
		"postgres://relay:secret@db:5432/shop":       false,
		"postgresql://relay:s%40t@a:1,b:2/shop":      false,
		"host=db user=relay password=secret":         false,
		"postgres://relay@db/shop?x=1&password=abcd": false,
		"postgres://relay@db/shop?sslpassword=abcd":  false,
		"host=db sslpassword=abcd":                   false,
	} {
		for _, values := range []object{
			{"config": object{"postgres": object{"url": url}}},
			{"setup": object{"postgresURL": url}},
		} {
			if err := schema.Validate(merge(defaults, values)); (err == nil) != allowed {
				t.Errorf("%s: %v", url, err)
			}
		}
	}
}

// By the clock or beside the stream, not both unless somebody says so.
func TestChart_RetentionRunsByTheClock(t *testing.T) {
	inRun := func(objects []object) (value string) {
		env, _ := at(t, kind(t, objects, "Deployment", "orders-cdc-relay"), "spec", "template", "spec", "containers", 0).(object)["env"].([]any)
		for _, one := range env {
			if one.(object)["name"] == "CDC_RELAY_MAINTENANCE_IN_RUN" {
				return one.(object)["value"].(string)
			}
		}
		return "not set"
	}
	objects := renderChart(t, full)
	relay := at(t, kind(t, objects, "Deployment", "orders-cdc-relay"), "spec", "template", "spec").(object)
	job := at(t, kind(t, objects, "CronJob", "orders-cdc-relay-retention"), "spec", "jobTemplate", "spec", "template", "spec").(object)
	for _, key := range []string{"nodeSelector", "tolerations", "priorityClassName", "imagePullSecrets", "securityContext", "serviceAccountName", "volumes"} {
		if relay[key] == nil || !reflect.DeepEqual(relay[key], job[key]) {
			t.Errorf("%s: the relay has %v, retention %v", key, relay[key], job[key])
		}
	}
	for _, key := range []string{"envFrom", "volumeMounts", "image", "securityContext"} {
		want, got := at(t, relay, "containers", 0).(object)[key], at(t, job, "containers", 0).(object)[key]
		if want == nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: the relay has %v, retention %v", key, want, got)
		}
	}
	if args := at(t, job, "containers", 0, "args"); !reflect.DeepEqual(args, []any{"retention", "--once", "--config", "/etc/cdc-relay/config.yaml"}) {
		t.Errorf("it runs with %v", args)
	}
	if got := inRun(objects); got != "false" {
		t.Errorf("beside it the relay has maintenance.in_run %s", got)
	}
	for _, set := range []string{"true", "false"} {
		if got := inRun(renderChart(t, strings.Replace(full, "maintenance: {url", "maintenance: {in_run: "+set+", url", 1))); got != "not set" {
			t.Errorf("the configuration says in_run %s, and the chart %s", set, got)
		}
	}
	objects = renderChart(t, minimal)
	for _, o := range objects {
		if o["kind"] == "CronJob" {
			t.Error("nobody asked for it")
		}
	}
	if got := inRun(objects); got != "not set" {
		t.Errorf("without it the relay has maintenance.in_run %s", got)
	}
}
