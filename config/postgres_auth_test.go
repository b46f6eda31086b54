package config

import (
	"encoding/json"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

func TestCredentials_AreFoundByRelativeName(t *testing.T) {
	files := testFiles{"f": minimal, "/run/credentials/relay/pg": "of-systemd\n", "pg": "here", "here-only": "here", "/abs": "absolute"}
	environ := []string{"CREDENTIALS_DIRECTORY=/run/credentials/relay"}
	for name, want := range map[string]string{"pg": "of-systemd", "here-only": "here", "/abs": "absolute"} {
		cfg := load(t, Options{Path: "f", ReadFile: files.read, Environ: environ, Set: []string{"postgres.password_file=" + name}})
		if got, err := cfg.Relay().Replication.Password(t.Context()); got != want || err != nil {
			t.Errorf("%s gives %q, %v", name, got, err)
		}
	}
	files["f"] = minimal + "http: {token: \"${file:pg}\"}\n"
	cfg := load(t, Options{Path: "f", ReadFile: files.read, Environ: environ})
	if got, err := cfg.HTTP().Token(); got != "of-systemd" || err != nil {
		t.Errorf("${file:…} gives %q, %v", got, err)
	}
	_, err := Load(Options{Path: "f", ReadFile: files.read, Environ: environ, Set: []string{"postgres.password_file=nowhere"}})
	if err == nil || !strings.Contains(err.Error(), "read nowhere: file does not exist, nor in $CREDENTIALS_DIRECTORY (/run/credentials/relay)") {
		t.Errorf("a credential that is nowhere: %v", err)
	}
	// The configuration itself is no credential.
	files["/run/credentials/relay/cdc-relay.yaml"] = "nonsense: true"
	if _, err := Load(Options{ReadFile: files.read, Environ: append(environ, complete...)}); err != nil {
		t.Error(err)
	}
}

// aws is the environment of a process with AWS credentials, and nothing to ask
// over the network.
func aws(t *testing.T, region string) {
	t.Helper()
	for name, value := range map[string]string{
		"AWS_ACCESS_KEY_ID": "AKIAEXAMPLE", "AWS_SECRET_ACCESS_KEY": "s3cret", "AWS_SESSION_TOKEN": "", "AWS_REGION": region, "AWS_DEFAULT_REGION": "",
		"AWS_PROFILE": "", "AWS_CONFIG_FILE": "/nonexistent", "AWS_SHARED_CREDENTIALS_FILE": "/nonexistent", "AWS_EC2_METADATA_DISABLED": "true",
	} {
		t.Setenv(name, value)
	}
}

func TestRDSIAM_SignsForTheServerThatIsConnectedTo(t *testing.T) {
	const endpoint = "shop.abc123.eu-central-1.rds.amazonaws.com:5432"
	for _, tt := range []struct{ environment, configured, want string }{
		{"", "", "eu-central-1"},
		{"us-east-1", "", "us-east-1"},
		{"us-east-1", "ap-south-1", "ap-south-1"},
	} {
		aws(t, tt.environment)
		cfg := load(t, Options{Environ: complete, Set: []string{"postgres.auth=aws_rds_iam", "kafka.region=" + tt.configured}})
		token := cfg.Relay().Replication.Token
		text, err := token(t.Context(), endpoint, "the relay")
		if err != nil {
			t.Fatal(err)
		}
		address, query, _ := strings.Cut(text, "?")
		values, err := url.ParseQuery(query)
		if err != nil || address != endpoint+"/" && address != endpoint {
			t.Errorf("address %s, %v", address, err)
		}
		if values.Get("DBUser") != "the relay" || values.Get("Action") != "connect" || !strings.Contains(values.Get("X-Amz-Credential"), "/"+tt.want+"/rds-db/") || values.Get("X-Amz-Signature") == "" {
			t.Errorf("token for %s: %v", tt.want, values)
		}
		if strings.Contains(text, "s3cret") {
			t.Error("the token shows the secret")
		}
	}
	aws(t, "")
	token := load(t, Options{Environ: complete, Set: []string{"postgres.auth=aws_rds_iam"}}).Relay().Replication.Token
	if _, err := token(t.Context(), "db.example.com:5432", "relay"); err == nil || !strings.Contains(err.Error(), "set kafka.region or AWS_REGION") {
		t.Errorf("without a region: %v", err)
	}
}

func TestRDSIAM_WantsNoPasswordBesideIt(t *testing.T) {
	if load(t, Options{Environ: complete}).Relay().Replication.Token != nil {
		t.Error("a token without auth: aws_rds_iam")
	}
	for _, set := range []string{"postgres.password=s3cret", "postgres.password_command=[sh]", "postgres.url=postgres://relay@db/shop?sslmode=disable"} {
		_, err := Load(Options{Environ: complete, ReadFile: noFiles, Set: []string{"postgres.auth=aws_rds_iam", set}})
		if err == nil || !strings.Contains(err.Error(), "postgres.auth: aws_rds_iam") || strings.Contains(err.Error(), "s3cret") {
			t.Errorf("%s: %v", set, err)
		}
	}
	_, err := Load(Options{Environ: complete, ReadFile: noFiles, Set: []string{"postgres.auth=kerberos"}})
	if err == nil || !strings.Contains(err.Error(), "allowed: password, aws_rds_iam") {
		t.Error(err)
	}
}

// The documentation's recipes, run against programs that answer as the real ones
// do and insist on the arguments that those want.
func TestPasswordCommand_RecipesOfTheDocumentation(t *testing.T) {
	text, err := os.ReadFile("../docs/configuration.md")
	if err != nil {
		t.Fatal(err)
	}
	recipes := regexp.MustCompile(`(?m)^  password_command: (\[.*\])`).FindAllSubmatch(text, -1)
	tools := map[string]struct{ script, want string }{
		"az":     {`[ "$*" = "account get-access-token --resource-type oss-rdbms --query accessToken --output tsv" ] && echo entra-token`, "entra-token"},
		"gcloud": {`[ "$*" = "sql generate-login-token" ] && printf 'gcp-token\n'`, "gcp-token"},
		"vault":  {`case "$*" in "read -field=password database/static-creds/"?*) printf 'vault-password';; *) exit 2;; esac`, "vault-password"},
	}
	dir := t.TempDir()
	for name, tool := range tools {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\n"+tool.script+"\n"), 0o700); err != nil { //nolint:gosec // has to be executable
			t.Fatal(err)
		}
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	tried := map[string]bool{}
	for _, m := range recipes {
		var command []string
		if err := json.Unmarshal(m[1], &command); err != nil {
			t.Fatalf("%s: %v", m[1], err)
		}
		files := testFiles{"f": strings.Replace(minimal, "outbox:", fmt.Sprintf("  password_command: %s\noutbox:", m[1]), 1)}
		got, err := load(t, Options{Path: "f", ReadFile: files.read}).Relay().Replication.Password(t.Context())
		if want := tools[command[0]].want; err != nil || got != want {
			t.Errorf("%s gives %q, %v, want %q", m[1], got, err, want)
		}
		tried[command[0]] = true
	}
	for name := range tools {
		if !tried[name] {
			t.Errorf("docs/configuration.md has no recipe with %s", name)
		}
	}
}
