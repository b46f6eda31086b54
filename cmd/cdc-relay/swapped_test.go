package main

import (
	"net"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"
)

// with is the life's environment with one value replaced.
func (l *life) with(name, value string) []string {
	env := slices.DeleteFunc(slices.Clone(l.env), func(s string) bool { return strings.HasPrefix(s, name+"=") })
	return append(env, name+"="+value)
}

// at is the database's URL with another address and sslmode.
func (l *life) at(t *testing.T, address, sslmode string) string {
	t.Helper()
	u, err := url.Parse(l.db.URL)
	if err != nil {
		t.Fatal(err)
	}
	u.Host = address
	query := u.Query()
	query.Del("sslmode")
	if sslmode != "" {
		query.Set("sslmode", sslmode)
	}
	u.RawQuery = query.Encode()
	return u.String()
}

// Addresses that were taken one for the other. Some servers answer nothing to what they do
// not understand.
func TestConnect_NamesWhatAnswersInsteadOfTheServer(t *testing.T) {
	l := newLife(t)
	web := httptest.NewServer(nil)
	t.Cleanup(web.Close)
	page := strings.TrimPrefix(web.URL, "http://")
	u, err := url.Parse(l.db.URL)
	if err != nil {
		t.Fatal(err)
	}
	broker := l.brokers.Addrs[0]
	const postgres, kafka = "CDC_RELAY_POSTGRES_URL", "CDC_RELAY_KAFKA_BROKERS"
	for name, tt := range map[string]struct {
		env  []string
		want string
		next string
	}{
		"Kafka as PostgreSQL":              {l.with(postgres, l.at(t, broker, "disable")), "a Kafka broker answers at " + broker, "correct host and port in postgres.url"},
		"Kafka as PostgreSQL, any sslmode": {l.with(postgres, l.at(t, broker, "")), "a Kafka broker answers at " + broker, "correct host and port in postgres.url"},
		"Kafka as PostgreSQL with TLS":     {l.with(postgres, l.at(t, broker, "verify-full")), "a Kafka broker answers at " + broker, "correct host and port in postgres.url"},
		"HTTP as PostgreSQL":               {l.with(postgres, l.at(t, page, "disable")), "an HTTP server answers at " + page, "correct host and port in postgres.url"},
		"HTTP as PostgreSQL with TLS":      {l.with(postgres, l.at(t, page, "verify-full")), "an HTTP server answers at " + page, "correct host and port in postgres.url"},
		"HTTP as Kafka":                    {l.with(kafka, page), "something other than Kafka answers there", "correct kafka.brokers"},
		"PostgreSQL as Kafka":              {l.with(kafka, u.Host), "something other than Kafka answers there", "correct kafka.brokers"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			verbs := []string{"run", "setup"}
			if strings.HasSuffix(name, "as Kafka") {
				verbs = []string{"run"} // setup asks no broker
			}
			for _, verb := range verbs {
				got := invoke(t, tt.env, verb)
				got.want(t, exitRefused, "", tt.want)
				got.want(t, exitRefused, "", tt.next)
			}
		})
	}
}

// A server that is slow is not taken for another one.
func TestConnect_WaitsForAServerThatIsSilent(t *testing.T) {
	l := newLife(t)
	t.Parallel()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close() // the kernel takes the connections
	got := invoke(t, l.with("CDC_RELAY_POSTGRES_URL", l.at(t, listener.Addr().String(), "disable")+"&connect_timeout=4"), "setup")
	got.want(t, exitRefused, "", "is PostgreSQL at this address?")
}
