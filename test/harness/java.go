package harness

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/cdc-relay/cdc-relay/sandbox"
)

// Java is the program, and the folder of the jars that a pom.xml names. Maven fetches them once; name
// is theirs in the cache, with a version.
func Java(t testing.TB, name, pom string) (java, jars string) {
	t.Helper()
	NeedsServer(t, "Java")
	java, err := findJava(t.Context())
	if err == nil {
		jars, err = jarsOf(t.Context(), name, pom)
	}
	if err != nil {
		missing(t, "Java with "+name, err, "install a JDK of Java 17 or newer and Maven")
	}
	return java, jars
}

// jarsOf has Maven put the jars of a pom.xml into the cache, once; more are properties of it.
func jarsOf(ctx context.Context, name, pom string, more ...string) (string, error) {
	cache, err := sandbox.CacheDir()
	if err != nil {
		return "", err
	}
	dir := filepath.Join(cache, name)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", fmt.Errorf("fetch %s: %w", name, err)
	}
	unlock, err := sandbox.Locked(filepath.Join(dir, "lock"))
	if err != nil {
		return "", err
	}
	defer unlock()
	jars, whole := filepath.Join(dir, "lib"), filepath.Join(dir, "whole")
	if _, err := os.Stat(whole); err == nil {
		return jars, nil
	}
	maven, err := exec.LookPath("mvn")
	if err != nil {
		return "", fmt.Errorf("fetch %s: %w", name, err)
	}
	fmt.Fprintf(notice{}, "downloading %s, once, into %s\n", name, jars)
	cmd := exec.CommandContext(ctx, maven, append([]string{"-q", "-B", "-f", pom, "dependency:copy-dependencies", "-DoutputDirectory=" + jars}, more...)...)
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("fetch %s with Maven: %w\n%s", name, err, out)
	}
	return jars, os.WriteFile(whole, nil, 0o644)
}
