package sandbox_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/sandbox"
	"github.com/cdc-relay/cdc-relay/test/harness"
)

// templates is a folder that an account without rights may enter, as that of a test run.
func templates(t *testing.T) string {
	t.Helper()
	folder, err := sandbox.TempDir("templates")
	if err == nil {
		err = os.Chmod(folder, 0o711)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(folder) })
	t.Setenv(sandbox.TemplatesVariable, folder)
	return folder
}

func TestPostgres_ServersOfOneTemplateAreDifferentSystems(t *testing.T) {
	for _, version := range harness.Versions() {
		t.Run(version, func(t *testing.T) {
			harness.NeedsServer(t, "PostgreSQL")
			folder := templates(t)
			servers := make([]*sandbox.Postgres, 2)
			var starts sync.WaitGroup
			for i := range servers {
				starts.Go(func() {
					var err error
					servers[i], err = sandbox.StartPostgres(t.Context(), sandbox.PostgresOptions{
						Version: version, Sources: []sandbox.Source{sandbox.Local, sandbox.Download}, Log: testWriter{t},
					})
					if err != nil {
						t.Error(err)
						return
					}
					t.Cleanup(func() { _ = servers[i].Close() })
				})
			}
			starts.Wait()
			if t.Failed() {
				return
			}
			left, err := filepath.Glob(filepath.Join(folder, "*"))
			if err != nil || len(left) != 2 || left[0]+".lock" != left[1] {
				t.Errorf("the folder has %q, want one template and its lock: %v", left, err)
			}
			identifiers := map[int64]bool{}
			for _, server := range servers {
				identifier := query[int64](t, server, "SELECT system_identifier FROM pg_control_system()")
				identifiers[identifier] = true
				if made := time.Unix(identifier>>32, 0); time.Since(made).Abs() > time.Hour {
					t.Errorf("system identifier %d says that it was made at %s", identifier, made)
				}
				if err := server.Kill(); err != nil { // recovery reads the WAL
					t.Fatal(err)
				}
				if err := server.Start(t.Context()); err != nil {
					t.Fatal(err)
				}
				if again := query[int64](t, server, "SELECT system_identifier FROM pg_control_system()"); again != identifier {
					t.Errorf("system identifier %d is %d after recovery", identifier, again)
				}
			}
			if len(identifiers) != 2 {
				t.Errorf("two servers have the same system identifier: %v", identifiers)
			}
		})
	}
}

// Two clusters with one id would be one to a relay, and two folders with one id to a controller.
func TestApache_FoldersOfOneTemplateAreDifferentBrokers(t *testing.T) {
	harness.NeedsServer(t, "Apache Kafka")
	java, jars, err := harness.KafkaProgram(t.Context())
	if err != nil {
		harness.Missing(t, "Apache Kafka", err, "install Java 17 or newer and Maven")
	}
	folder := templates(t)
	property := regexp.MustCompile(`(?m)^([a-z.]+)=(.*)$`)
	directories := map[string]bool{}
	for node := 1; node <= 2; node++ {
		files, err := sandbox.Formatted(t.Context(), java, jars, node)
		if err != nil {
			t.Fatal(err)
		}
		meta := map[string]string{}
		for _, match := range property.FindAllStringSubmatch(files["meta.properties"], -1) {
			meta[match[1]] = match[2]
		}
		if meta["node.id"] != strconv.Itoa(node) || meta["cluster.id"] != files["cluster"] || len(meta["directory.id"]) != 22 || meta["version"] != "1" {
			t.Errorf("the folder of broker %d of cluster %s says\n%s", node, files["cluster"], files["meta.properties"])
		}
		directories[meta["directory.id"]] = true
		if len(files) != 3 || files["bootstrap.checkpoint"] == "" {
			t.Errorf("%d files, want meta.properties and a checkpoint of which nothing is a broker's own", len(files)-1)
		}
	}
	if len(directories) != 2 {
		t.Errorf("the folders have one id: %v", directories)
	}
	if left, err := filepath.Glob(filepath.Join(folder, "*")); err != nil || len(left) != 2 {
		t.Errorf("the folder has %q, want one template and its lock: %v", left, err)
	}
}
