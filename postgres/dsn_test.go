package postgres

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cdc-relay/cdc-relay/fault"
)

// ways describes the targets: host and how its certificate is treated.
func ways(d *dsn) string {
	var list []string
	for _, t := range d.targets {
		how := "plain"
		switch c := t.TLSConfig; {
		case c == nil:
		case !c.InsecureSkipVerify:
			how = "full:" + c.ServerName
		case c.VerifyPeerCertificate != nil:
			how = "ca"
		default:
			how = "unverified"
		}
		list = append(list, t.addr()+" "+how)
	}
	return strings.Join(list, ", ")
}

// noEnvironment hides whatever PG* variables and files the machine has.
func noEnvironment(t *testing.T) {
	t.Helper()
	for _, entry := range os.Environ() {
		if name, _, _ := strings.Cut(entry, "="); strings.HasPrefix(name, "PG") {
			t.Setenv(name, "")
		}
	}
	t.Setenv("HOME", t.TempDir())
}

func TestParseDSN_VerifiesTLSUnlessSomebodyChoseOtherwise(t *testing.T) {
	service := filepath.Join(t.TempDir(), "services")
	if err := os.WriteFile(service, []byte("[weak]\nhost=db\nsslmode=require\n[silent]\nhost=db\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	tests := []struct {
		name, dsn string
		env       map[string]string
		want      string
	}{
		{name: "URL without a word", dsn: "postgres://u@db/x", want: "db:5432 full:db"},
		{name: "keywords without a word", dsn: "host=db user=u", want: "db:5432 full:db"},
		{name: "an address", dsn: "postgres://u@10.0.0.1/x", want: "10.0.0.1:5432 full:10.0.0.1"},
		{name: "empty sslmode", dsn: "postgres://u@db/x?sslmode=", want: "db:5432 full:db"},
		{name: "several hosts", dsn: "postgres://u@a:1,b:2/x", want: "a:1 full:a, b:2 full:b"},
		{name: "local and remote", dsn: "postgres://u@localhost,b/x", want: "localhost:5432 unverified, localhost:5432 plain, b:5432 full:b"},
		{name: "loopback 4", dsn: "postgres://u@127.0.0.9/x", want: "127.0.0.9:5432 unverified, 127.0.0.9:5432 plain"},
		{name: "loopback 6", dsn: "postgres://u@[::1]/x", want: "[::1]:5432 unverified, [::1]:5432 plain"},
		{name: "socket", dsn: "host=/run/pg user=u", want: "/run/pg/.s.PGSQL.5432 plain"},
		{name: "disable", dsn: "postgres://u@db/x?sslmode=disable", want: "db:5432 plain"},
		{name: "prefer", dsn: "postgres://u@db/x?application_name=y&sslmode=prefer", want: "db:5432 unverified, db:5432 plain"},
		{name: "allow", dsn: "host=db sslmode=allow", want: "db:5432 plain, db:5432 unverified"},
		{name: "require", dsn: "host=db sslmode = 'require'", want: "db:5432 unverified"},
		{name: "verify-ca", dsn: "host=db sslmode=verify-ca", want: "db:5432 ca"},
		{name: "verify-full", dsn: "host=db sslmode=verify-full", want: "db:5432 full:db"},
		{name: "ssl=true", dsn: "postgres://u@db/x?ssl=true", want: "db:5432 unverified"},
		{name: "escaped key", dsn: "postgres://u@db/x?%73slmode=disable", want: "db:5432 plain"},
		{name: "sslmode in a password", dsn: "postgres://u:?sslmode=disable@db/x", want: "db:5432 full:db"},
		{name: "sslmode in a quoted password", dsn: `password='a sslmode=disable \' b' host=db`, want: "db:5432 full:db"},
		{name: "environment", dsn: "postgres://u@db/x", env: map[string]string{"PGSSLMODE": "disable"}, want: "db:5432 plain"},
		{name: "string over environment", dsn: "postgres://u@db/x?sslmode=require", env: map[string]string{"PGSSLMODE": "disable"}, want: "db:5432 unverified"},
		{name: "service file", dsn: "service=weak servicefile=" + service, want: "db:5432 unverified"},
		{name: "service file by environment", dsn: "", env: map[string]string{"PGSERVICE": "weak", "PGSERVICEFILE": service}, want: "db:5432 unverified"},
		{name: "service without a word", dsn: "service=silent servicefile=" + service, want: "db:5432 full:db"},
		{name: "direct TLS", dsn: "host=db sslnegotiation=direct", want: "db:5432 full:db"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			noEnvironment(t)
			for name, value := range test.env {
				t.Setenv(name, value)
			}
			d, err := parseDSN(test.dsn)
			if err != nil {
				t.Fatal(err)
			}
			if got := ways(d); got != test.want {
				t.Errorf("got  %s\nwant %s", got, test.want)
			}
		})
	}
}

func TestCheckURL_WarnsOfWeakTLS(t *testing.T) {
	noEnvironment(t)
	tests := map[string]string{
		"postgres://u:hush@db/x":                             "",
		"postgres://u:hush@db/x?sslmode=verify-full":         "",
		"postgres://u:hush@localhost/x?sslmode=disable":      "",
		"host=/run/pg sslmode=disable":                       "",
		"postgres://u:hush@db/x?sslmode=disable":             "sslmode=disable: the connection to db:5432 is not encrypted",
		"postgres://u:hush@db/x?sslmode=prefer":              "sslmode=prefer: the connection to db:5432 may silently be unencrypted",
		"postgres://u:hush@db,localhost/x?sslmode=require":   "sslmode=require: the connection to db:5432 is encrypted, but",
		"postgres://u:hush@db:1,db:2/x?sslmode=verify-ca":    "sslmode=verify-ca: the certificate of db:1, db:2 is checked, but not that",
		"postgres://u:hush@db/x?sslmode=verify-ca&port=6543": "sslmode=verify-ca: the certificate of db:6543",
	}
	for url, want := range tests {
		warnings, err := CheckURL(Config{URL: url})
		if err != nil {
			t.Errorf("%s: %v", url, err)
			continue
		}
		got := strings.Join(warnings, "\n")
		if (want == "") != (got == "") || !strings.Contains(got, want) || strings.Contains(got, "hush") {
			t.Errorf("%s: %q, want %q", url, got, want)
		}
	}
	warnings, err := CheckURL(Config{URL: "host=db", Insecure: true})
	if err != nil || len(warnings) != 1 || !strings.Contains(warnings[0], "clear text") {
		t.Errorf("insecure: %q, %v", warnings, err)
	}
}

func TestParseDSN_NeverQuotesTheString(t *testing.T) {
	noEnvironment(t)
	const secret = "s3cret"
	for _, bad := range []string{
		"postgres://u:s3cret@db:port/x",
		"postgres://u:a:s3cret@db/x?sslmode=wrong",
		"postgres://u:s3cret/part@db/x",
		"postgres://u:s3cret%zz@db/x",
		"postgres://u:s3cret@[::1/x",
		"host=db password=my s3cret sslmode=require",
		"host=db password='s3cret",
		"host=db password=s3cret sslmode=nonsense",
		"host=db password=s3cret connect_timeout=soon",
		"host=db password=s3cret target_session_attrs=s3cret",
		"host=a,b port=1,2,3 password=s3cret",
		"host=db password=s3cret sslrootcert=/does/not/exist",
		"service=missing password=s3cret servicefile=/does/not/exist",
		"s3cret",
		"\x00s3cret",
	} {
		_, err := parseDSN(bad)
		wantRefused(t, err, "PostgreSQL URL")
		for _, text := range []string{fmt.Sprint(err), fmt.Sprintf("%+v", err), fmt.Sprintf("%#v", err)} {
			if strings.Contains(text, secret) {
				t.Errorf("%q: the secret is in %s", bad, text)
			}
		}
	}
}

func FuzzExplicitSettings(f *testing.F) {
	for _, seed := range []string{
		"postgres://u:p@h:1,i:2/d?sslmode=disable&a=b", "postgresql://?ssl=true", "host=a sslmode='x\\' y' b = c", "=", "'", "a='", "a=\\", "postgres://%zz@?%zz=%zz", "a=b'c=d",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		settings := stringSettings(text)
		// Whatever it reads, an explicit mode is never made of nothing.
		if mode := settings["sslmode"]; mode != "" && !strings.Contains(text, "ssl") && !strings.Contains(text, "%") && !strings.Contains(text, `\`) {
			t.Fatalf("%q: sslmode %q out of nowhere", text, mode)
		}
	})
}

func TestParseDSN_AsksForTheFileThatIsNotThere(t *testing.T) {
	_, err := parseDSN("postgres://relay@db/shop?sslmode=verify-full&sslrootcert=/nowhere/ca.pem")
	wantRefused(t, err, "correct the path")
	_, err = parseDSN("postgres://relay@db:x/shop")
	wantRefused(t, err, "it is a libpq URL")
}

func wantRefused(t *testing.T, err error, text string) {
	t.Helper()
	if KindOf(err) != fault.KindRefused || Reason(err) != fault.ReasonConfiguration || !strings.Contains(err.Error(), text) || strings.ContainsAny(err.Error(), "\n\r\t") {
		t.Errorf("%q does not say %q, or is %s (%s)", err, text, Reason(err), KindOf(err))
	}
}

// Whoever looks at a page sees which database it is about, and nothing that opens it.
func TestWhere_NamesHostAndDatabaseAlone(t *testing.T) {
	for url, want := range map[string]string{
		"postgres://relay:secret@db1:5433/shop":                        "db1:5433/shop",
		"postgres://relay:secret@db1:5433,db2:5434/shop?sslmode=allow": "db1:5433/shop",
		"host=/run/postgresql port=5432 user=relay dbname=shop":        "/run/postgresql/.s.PGSQL.5432/shop",
		"postgres://relay:secret@[::1":                                 "",
	} {
		if got := Where(Config{URL: url}); got != want {
			t.Errorf("%s: %q, want %q", url, got, want)
		}
	}
}
