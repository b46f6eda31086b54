package main

import (
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"
)

// everyType are columns with values that a text form may lose, each as SQL.
var everyType = [][3]string{
	{"number", "numeric", `'-12345678901234567890.1234567890'`}, {"nan", "numeric", `'NaN'`}, {"scale", "numeric(10, 4)", `'1.5000'`},
	{"float", "double precision", `'1.7976931348623157e308'`}, {"tiny", "double precision", `'5e-324'`}, {"zero", "double precision", `'-0'`}, {"inf", "real", `'-Infinity'`}, {"third", "real", `1.0 / 3`}, {"nanf", "real", `'NaN'`},
	{"at", "timestamptz", `'2024-02-29 23:59:59.999999+14'`}, {"ever", "timestamptz", `'infinity'`}, {"never", "timestamp", `'-infinity'`}, {"bc", "timestamptz", `'4713-01-01 00:00:00 BC'`}, {"day", "date", `'2024-03-04'`}, {"late", "timetz", `'24:00:00-12:34'`},
	{"span", "interval", `'-1 year 2 mons -3 days +04:05:06.789'`}, {"spans", "interval[]", `ARRAY['1 mon -1 days'::interval, NULL]`},
	{"bytes", "bytea", `'\x00ff5c275c30'::bytea`}, {"nothing", "bytea", `''::bytea`}, {"bytess", "bytea[]", `ARRAY['\x00ff'::bytea, NULL, '']`},
	{"twice", "json", `'{"a":  1, "a": 2.50, "b": "\u00e9\ud83d\ude00\u2028"}'`}, {"jsonb", "jsonb", `'{"n": 1e400, "text": "\"<&>"}'`}, {"jsonnull", "jsonb", `'null'`}, {"word", "jsonb", `'"text"'`},
	{"texts", "text[]", `'[0:1][5:5]={{"a,\"b"},{NULL}}'`}, {"none", "int[]", `'{}'`}, {"emoji", "text", `E'\U0001F600\u2028\u2029\t\n\r\b\f\x01\x7f\\"{}'`}, {"empty", "text", `''`}, {"nulltext", "text", `'null'`},
	{"mood", "mood", `'so "so"'`}, {"moods", "mood[]", `ARRAY['so "so"'::mood]`}, {"code", "code", `'A-1'`}, {"raw", "raw", `'\xdead'::bytea`}, {"pair", "pair", `ROW('a,(b)"', NULL)`}, {"blanks", "bpchar", `'a  '`}, {"three", "char(3)", `'a'`}, {"ident", "name", `'x'`},
	{"range", "tstzrange", `'(2024-01-01 00:00+00,infinity]'`}, {"ranges", "int4multirange", `'{[1,5), [9,)}'`}, {"inet", "inet", `'10.0.0.1'`}, {"net", "cidr", `'10.0.0.0/8'`}, {"bits", "varbit", `B'00101'`}, {"place", "point", `'(1e-300,-0)'`}, {"lsn", "pg_lsn", `'FFFFFFFF/FFFFFFFF'`},
	{"query", "tsquery", `'a & !b:*'`}, {"true", "boolean", `true`}, {"Odd \"name\"", "text", `'odd'`}, {"long", "text", `repeat('x"', 2000000)`}, {"missing", "text", `NULL`},
}

// Whatever a row holds, and whatever its database says of forms, the documented way back gives the same row.
func TestExport_RowsComeBackAsTheyWere(t *testing.T) {
	t.Parallel()
	k, folder, stop := exports(t, 6)
	defer stop()
	k.db.Exec(t, `CREATE TYPE mood AS ENUM ('glad', 'so "so"'); CREATE DOMAIN code AS text CHECK (VALUE LIKE 'A-%'); CREATE DOMAIN raw AS bytea; CREATE TYPE pair AS (a text, b int)`)
	var add, set []string
	for _, c := range everyType {
		quoted := `"` + strings.ReplaceAll(c[0], `"`, `""`) + `"`
		add, set = append(add, "ADD COLUMN "+quoted+" "+c[1]), append(set, quoted+" = "+c[2])
	}
	k.db.Exec(t, "ALTER TABLE outbox "+strings.Join(add, ", "))
	k.db.Exec(t, "UPDATE outbox SET "+strings.Join(set, ", "))
	for _, setting := range []string{"DateStyle = 'SQL, DMY'", "IntervalStyle = sql_standard", "TimeZone = 'Asia/Kathmandu'", "bytea_output = escape", "extra_float_digits = -15", "lc_monetary = 'C'", "search_path = nothing", "standard_conforming_strings = on", "quote_all_identifiers = on", "xmloption = document"} {
		k.db.Exec(t, "DO $$BEGIN EXECUTE format('ALTER DATABASE %I SET "+strings.ReplaceAll(setting, "'", "''")+"', current_database()); END$$")
	}
	there := k.db.Connect(t)
	exec := func(sql string) {
		t.Helper()
		if _, err := there.Exec(t.Context(), sql); err != nil {
			t.Fatalf("%v: %.300s", err, sql)
		}
	}
	exec("SET search_path = public; CREATE TABLE kept AS TABLE outbox; CREATE TABLE restored (LIKE outbox); CREATE TABLE exported (row json)")
	invoke(t, k.env, "retention", "--once").want(t, exitOK, "exported and deleted 6 rows\n", "")
	page, err := os.ReadFile("../../docs/how-to/keep-the-outbox-small.md")
	if err != nil {
		t.Fatal(err)
	}
	form := regexp.MustCompile(`\\copy audit\.exported FROM \S+ (WITH [^"]*)`).FindStringSubmatch(string(page))
	if _, err := there.PgConn().CopyFrom(t.Context(), bytes.NewReader(exportedLines(t, folder)), "COPY exported FROM STDIN "+form[1]); err != nil {
		t.Fatal(err)
	}
	var columns, back string
	if err := there.QueryRow(t.Context(), `SELECT string_agg(format('%I', attname), ','), string_agg(format(CASE atttypid WHEN 'bytea'::regtype THEN 'decode(row->>%L, ''base64'')::%s' ELSE '(row->>%L)::%s' END, attname, format_type(atttypid, atttypmod)), ',')
		FROM pg_attribute WHERE attrelid = 'outbox'::regclass AND attnum > 0 AND NOT attisdropped`).Scan(&columns, &back); err != nil {
		t.Fatal(err)
	}
	exec(fmt.Sprintf("INSERT INTO restored (%s) SELECT %s FROM exported", columns, back))
	for column := range strings.SplitSeq(columns, ",") { // the bytes that the server keeps, for what is equal may be another value
		var n int
		if err := there.QueryRow(t.Context(), fmt.Sprintf(`SELECT count(*) FROM kept k JOIN restored r USING (id) WHERE record_image_eq(ROW(k.%[1]s), ROW(r.%[1]s))`, column)).Scan(&n); err != nil || n != 6 {
			t.Errorf("column %s: %d of 6 values came back (%v)", column, n, err)
		}
	}
}

// exportedLines are the rows of all files, as zstd and sed give them.
func exportedLines(t *testing.T, folder string) (all []byte) {
	t.Helper()
	z, err := zstd.NewReader(nil)
	if err != nil {
		t.Fatal(err)
	}
	defer z.Close()
	if err := filepath.WalkDir(folder, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		packed, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		plain, err := z.DecodeAll(packed, nil)
		lines := bytes.SplitAfter(bytes.TrimSuffix(plain, []byte("\n")), []byte("\n"))
		all = append(all, bytes.Join(lines[1:len(lines)-1], nil)...)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	return all
}
