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
