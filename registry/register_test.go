package registry

import (
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/cdc-relay/cdc-relay/fault"
	"github.com/cdc-relay/cdc-relay/router/encode"
	"github.com/twmb/franz-go/pkg/sr"
	"github.com/twmb/franz-go/pkg/sr/srfake"
)

// spaced is text with other spaces, and its members in another order.
const spaced = `{"name":"Order","type":"record","fields":[{"type":"int","name":"n"}]}`

const wider = `{"type": "record", "name": "Order", "fields": [{"name": "n", "type": "int"}, {"name": "note", "type": ["null", "string"], "default": null}]}`

func wanted(text string) *encode.Schema {
	return &encode.Schema{Subject: "orders-value", File: "order.avsc", Kind: encode.Avro, Text: text}
}

func TestRegister_IsDoneOnce(t *testing.T) {
	r := fake(t)
	c := New(Config{URLs: []string{r.URL()}})
	standing, err := c.Standing(t.Context(), wanted(text))
	if err != nil || standing.Have != nil || standing.Latest != nil || standing.Checked {
		t.Fatalf("%+v, %v", standing, err)
	}
	first, err := c.Register(t.Context(), wanted(text))
	if err != nil || first.Number != 1 || first.ID == 0 {
		t.Fatalf("%+v, %v", first, err)
	}
	if again, err := c.Register(t.Context(), wanted(text)); err != nil || *again != *first {
		t.Errorf("%+v, %v", again, err)
	}
	for name, same := range map[string]string{"as it is": text, "formatted otherwise": spaced} {
		if standing, err := c.Standing(t.Context(), wanted(same)); err != nil || standing.Have == nil || *standing.Have != *first || *standing.Latest != *first {
			t.Errorf("%s: %+v, %v", name, standing, err)
		}
	}
	standing, err = c.Standing(t.Context(), wanted(wider))
	if err != nil || standing.Have != nil || *standing.Latest != *first || !standing.Checked || !standing.Compatible {
		t.Errorf("%+v, %v", standing, err)
	}
	second, err := c.Register(t.Context(), wanted(wider))
	if err != nil || second.Number != 2 {
		t.Errorf("%+v, %v", second, err)
	}
	if standing, err := c.Standing(t.Context(), wanted(text)); err != nil || standing.Have == nil || *standing.Have != *first || *standing.Latest != *second {
		t.Errorf("an older version: %+v, %v", standing, err)
	}
}

// Some registries do not find by content what another writer formatted.
func TestStanding_DoesNotRelyOnALookUpByContent(t *testing.T) {
	r := fake(t)
	register(t, r, "orders-value", sr.Schema{Schema: text})
	r.Intercept(func(w http.ResponseWriter, req *http.Request) bool {
		look := req.Method == http.MethodPost && req.URL.Path == "/subjects/orders-value"
		if look {
			w.WriteHeader(http.StatusNotFound)
			_, _ = w.Write([]byte(`{"error_code": 40403, "message": "Schema not found"}`))
		}
		return look
	})
	c := New(Config{URLs: []string{r.URL()}})
	standing, err := c.Standing(t.Context(), wanted(spaced))
	if err != nil || standing.Have == nil || standing.Have.Number != 1 {
		t.Errorf("%+v, %v", standing, err)
	}
	register(t, r, "orders-value", sr.Schema{Schema: `"string"`})
	register(t, r, "orders-value", sr.Schema{Schema: wider})
	standing, err = c.Standing(t.Context(), wanted(spaced))
	if err != nil || standing.Have == nil || standing.Have.Number != 1 || standing.Latest.Number != 3 {
		t.Errorf("an older version: %+v, %v", standing, err)
	}
	if standing, err = c.Standing(t.Context(), wanted(`"long"`)); err != nil || standing.Have != nil {
		t.Errorf("a new one: %+v, %v", standing, err)
	}
}

func TestStanding_SaysWhatTheCheckOfCompatibilityAnswers(t *testing.T) {
	for name, c := range map[string]struct {
		status              int
		body                string
		checked, compatible bool
		objections, reason  string
	}{
		"compatible": {200, `{"is_compatible": true}`, true, true, "", ""},
		"not":        {200, `{"is_compatible": false, "messages": ["READER_FIELD_MISSING_DEFAULT_VALUE", "at /fields/1"]}`, true, false, "READER_FIELD_MISSING_DEFAULT_VALUE; at /fields/1", ""},
		"no check":   {404, ``, false, false, "", ""},
		"no method":  {405, ``, false, false, "", ""},
		"no rights":  {403, ``, false, false, "", fault.ReasonRegistryRefused},
		"no schema":  {422, `{"error_code": 42201, "message": "no Avro"}`, false, false, "", fault.ReasonSchemaUnusable},
		"no answer":  {503, ``, false, false, "", fault.ReasonRegistryUnreachable},
	} {
		r := fake(t)
		register(t, r, "orders-value", sr.Schema{Schema: text})
		r.Intercept(func(w http.ResponseWriter, req *http.Request) bool {
			compares := strings.HasPrefix(req.URL.Path, "/compatibility/")
			if compares {
				w.WriteHeader(c.status)
				_, _ = w.Write([]byte(c.body))
			}
			return compares
		})
		got, err := New(Config{URLs: []string{r.URL()}}).Standing(t.Context(), wanted(wider))
		if reasonOf(err) != c.reason {
			t.Errorf("%s: %v, want reason %q", name, err, c.reason)
		}
		if err == nil && (got.Checked != c.checked || got.Compatible != c.compatible || got.Objections != c.objections) {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

func TestRegister_ExplainsARefusal(t *testing.T) {
	for name, c := range map[string]struct {
		status     int
		body, says string
		reason     string
	}{
		"incompatible": {409, `{"error_code": 409, "message": "incompatible with an earlier schema"}`, "incompatible with an earlier schema; change the file", fault.ReasonSchemaUnusable},
		"no account":   {401, ``, "allow the account of kafka.registry to register", fault.ReasonRegistryRefused},
		"no rights":    {403, `{"error_code": 40301, "message": "not for you"}`, "not for you; allow the account", fault.ReasonRegistryRefused},
		"invalid":      {422, `{"error_code": 42201, "message": "no Avro"}`, "no Avro; correct the file", fault.ReasonSchemaUnusable},
		"read only":    {422, `{"error_code": 42205, "message": "READONLY"}`, "READONLY; have the registry's mode", fault.ReasonRegistryRefused},
		"no primary":   {500, `{"error_code": 50003, "message": "no primary"}`, "no primary; start the registry", fault.ReasonRegistryUnreachable},
		"no registry":  {200, `<html>`, "set kafka.registry.url to the address", fault.ReasonRegistryAnswer},
		"no id":        {200, `{}`, "it answered id 0", fault.ReasonRegistryAnswer},
	} {
		r := fake(t)
		register(t, r, "orders-value", sr.Schema{Schema: text})
		var posts atomic.Int64
		r.Intercept(func(w http.ResponseWriter, req *http.Request) bool {
			if req.Method != http.MethodPost {
				return false
			}
			posts.Add(1)
			w.WriteHeader(c.status)
			_, _ = w.Write([]byte(c.body))
			return true
		})
		_, err := New(Config{URLs: []string{r.URL()}, Username: "relay"}).Register(t.Context(), wanted(wider))
		if err == nil || reasonOf(err) != c.reason || !strings.Contains(err.Error(), c.says) || !strings.Contains(err.Error(), "register schema order.avsc under subject orders-value") {
			t.Errorf("%s: %v, want reason %s and %q", name, err, c.reason, c.says)
		}
		if posts.Load() == 0 {
			t.Errorf("%s: nothing was asked", name)
		}
	}
}

// A registry with credentials gets them with what is registered too.
func TestRegister_SendsCredentials(t *testing.T) {
	r := fake(t, srfake.WithAuth("Basic cmVsYXk6"))
	c := New(Config{URLs: []string{r.URL()}, Username: "relay"})
	if _, err := c.Register(t.Context(), wanted(text)); err != nil {
		t.Error(err)
	}
}
