package harness

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/sandbox"
)

var registries struct {
	once sync.Once
	url  string
	err  error
}

// Registry is the address of a real schema registry, shared by the tests of this process. Subjects
// are to be named with Unique.
func Registry(t testing.TB) string {
	t.Helper()
	NeedsServer(t, "a schema registry")
	registries.once.Do(func() {
		if registries.url = os.Getenv(RegistryURLVariable); registries.url != "" {
			return
		}
		var server *sandbox.Registry
		if server, registries.err = startRegistry(); registries.err == nil {
			registries.url = server.URL()
			shared.add(server.Close)
		}
	})
	if registries.err != nil {
		missing(t, "a schema registry", registries.err,
			"install Java 17 or newer and Maven, or set "+RegistryURLVariable+" to the address of a registry's API")
	}
	return registries.url
}

// OwnRegistry starts a registry for one test alone, which may kill it and start it again.
func OwnRegistry(t testing.TB) *sandbox.Registry {
	t.Helper()
	NeedsServer(t, "a schema registry")
	server, err := startRegistry()
	if err != nil {
		missing(t, "a schema registry", err, "install Java 17 or newer and Maven")
	}
	t.Cleanup(func() {
		if err := server.Close(); err != nil {
			t.Error(err)
		}
	})
	return server
}

func startRegistry() (*sandbox.Registry, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	defer cancel()
	java, err := findJava(ctx)
	if err != nil {
		return nil, err
	}
	program, err := sandbox.FetchRegistry(ctx, notice{})
	if err != nil {
		return nil, err
	}
	return sandbox.StartRegistry(ctx, sandbox.RegistryOptions{Java: java, Program: program})
}

// RegistryConsumer is Java, and a class path with Kafka's client and Apicurio's deserializers.
func RegistryConsumer(t testing.TB) (java, classPath string) {
	t.Helper()
	NeedsServer(t, "Java")
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	java, err := findJava(ctx)
	var kafka, plugins string
	if err == nil {
		kafka, err = sandbox.FetchDebezium(ctx, notice{})
	}
	if err == nil {
		plugins, err = sandbox.FetchAvroConverter(ctx, notice{})
	}
	if err != nil {
		missing(t, "Java with Apicurio's deserializers", err, "install a JDK of Java 17 or newer and Maven")
	}
	return java, strings.Join([]string{filepath.Join(kafka, "*"), filepath.Join(plugins, "lib", "*")}, string(filepath.ListSeparator))
}
