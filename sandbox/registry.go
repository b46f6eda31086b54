package sandbox

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

// RegistryVersion is the version of the schema registry that StartRegistry runs.
const RegistryVersion = "3.0.9"

// FetchRegistry has Maven put the Apicurio registry into the cache, once for each version, and
// returns its folder. log may be nil.
func FetchRegistry(ctx context.Context, log io.Writer) (string, error) {
	cache, err := CacheDir()
	if err != nil {
		return "", err
	}
	dir := filepath.Join(cache, "apicurio-"+RegistryVersion)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", fmt.Errorf("fetch the schema registry: %w", err)
	}
	unlock, err := Locked(filepath.Join(dir, "lock"))
	if err != nil {
		return "", err
	}
	defer unlock()
	program, whole := filepath.Join(dir, "program"), filepath.Join(dir, "whole")
	if isFile(whole) {
		return program, nil
	}
	maven, err := exec.LookPath("mvn")
	if err != nil {
		return "", fmt.Errorf("fetch the schema registry: %w", err)
	}
	if log != nil {
		fmt.Fprintf(log, "downloading the Apicurio registry %s, 109 MB, once, into %s\n", RegistryVersion, program)
	}
	// Newer versions of the plugin want the parent POM, which the repository does not have.
	cmd := exec.CommandContext(ctx, maven, "-q", "-B", "org.apache.maven.plugins:maven-dependency-plugin:2.8:unpack",
		"-Dartifact=io.apicurio:apicurio-registry-app:"+RegistryVersion+":tar.gz:all", "-DoutputDirectory="+program)
	cmd.Dir = dir // where no pom.xml is
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("fetch the schema registry with Maven: %w\n%s", err, out)
	}
	return program, os.WriteFile(whole, nil, 0o644)
}

// RegistryOptions says how to run a schema registry.
type RegistryOptions struct {
	Java    string    // the program; at least Java 17
	Program string    // the folder of FetchRegistry
	Log     io.Writer // the registry's log; may be nil
}

// Registry is an Apicurio registry, with the API of Confluent's. It keeps its schemas when it is
// killed and started again.
type Registry struct {
	options RegistryOptions
	addr    string
	dir     string
	out     *tail
	process *process
}

// StartRegistry starts a registry without schemas, and returns once it answers. The caller calls
// Close.
func StartRegistry(ctx context.Context, options RegistryOptions) (*Registry, error) {
	addr, err := freeAddr("127.0.0.1")
	if err != nil {
		return nil, err
	}
	dir, err := TempDir("registry")
	if err != nil {
		return nil, err
	}
	r := &Registry{options: options, addr: addr, dir: dir, out: &tail{to: options.Log}}
	if err := r.Start(ctx); err != nil {
		return nil, errors.Join(err, r.Close())
	}
	return r, nil
}

// URL is the address of the API.
func (r *Registry) URL() string { return "http://" + r.addr + "/apis/ccompat/v7" }

// NativeURL is the address of Apicurio's own API, in the version that AvroConverter asks.
func (r *Registry) NativeURL() string { return "http://" + r.addr + "/apis/registry/v2" }

// tooSlow is what the registry ends with at its start, on a machine that takes five seconds for a connection
// to its database.
const tooSlow = "Acquisition timeout while waiting for new connection"

// Start starts the registry after Kill, on the same port with its schemas.
func (r *Registry) Start(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 4*time.Minute)
	defer cancel()
	for {
		err := r.launch(ctx)
		if err == nil || ctx.Err() != nil || !strings.Contains(r.out.String(), tooSlow) {
			return err
		}
		r.out.reset()
	}
}

func (r *Registry) launch(ctx context.Context) error {
	jars, err := filepath.Glob(filepath.Join(r.options.Program, "*-runner.jar"))
	if err != nil || len(jars) != 1 {
		return fmt.Errorf("start the schema registry: %s has no program: remove it, so that it is downloaded again", r.options.Program)
	}
	host, port, err := net.SplitHostPort(r.addr)
	if err != nil {
		return err
	}
	cmd := exec.Command(r.options.Java, append(slices.Clone(quick), "-Xmx256m",
		"-Dquarkus.http.host="+host, "-Dquarkus.http.port="+port, "-Dquarkus.http.access-log.enabled=false",
		// Written at once, so that a kill loses nothing.
		"-Dapicurio.datasource.url=jdbc:h2:file:"+filepath.Join(r.dir, "schemas")+";WRITE_DELAY=0",
		"-Dapicurio.datasource.jdbc.initial-size=1", "-Dapicurio.datasource.jdbc.min-size=1", // else twenty before it answers
		"-jar", jars[0])...)
	cmd.Dir = r.dir
	cmd.Stdout, cmd.Stderr = r.out, r.out
	process, err := startProcess(cmd, r.dir)
	if err != nil {
		return fmt.Errorf("start the schema registry: %w", err)
	}
	r.process = process
	return process.await(ctx, "the schema registry", 100*time.Millisecond, r.out, r.answers)
}

func (r *Registry) answers(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	response, err := request(ctx, r.URL()+"/subjects")
	if err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, response.Body)
	return errors.Join(err, response.Body.Close())
}

// Pause freezes the registry: it takes connections and does not answer.
func (r *Registry) Pause() error { return r.process.signal(syscall.SIGSTOP) }

// Continue ends a Pause.
func (r *Registry) Continue() error { return r.process.signal(syscall.SIGCONT) }

// Kill ends the registry at once.
func (r *Registry) Kill() {
	if r.process != nil {
		r.process.kill()
		r.process = nil
	}
}

// Close ends the registry and removes its directory.
func (r *Registry) Close() error {
	r.Kill()
	return os.RemoveAll(r.dir)
}
