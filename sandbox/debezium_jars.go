package sandbox

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
)

//go:embed debezium/pom.xml
var debeziumPOM []byte

// FetchDebezium has Maven put Kafka, Kafka Connect and Debezium into the cache,
// once for each version, and returns the folder of jars. log may be nil.
func FetchDebezium(ctx context.Context, log io.Writer) (string, error) {
	cache, err := CacheDir()
	if err != nil {
		return "", err
	}
	dir := filepath.Join(cache, "debezium-"+DebeziumVersion+"-kafka-"+ApacheVersion)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", fmt.Errorf("fetch Debezium: %w", err)
	}
	unlock, err := Locked(filepath.Join(dir, "lock"))
	if err != nil {
		return "", err
	}
	defer unlock()
	jars, whole := filepath.Join(dir, "lib"), filepath.Join(dir, "whole")
	if isFile(whole) {
		return jars, nil
	}
	maven, err := exec.LookPath("mvn")
	if err != nil {
		return "", fmt.Errorf("fetch Debezium: %w", err)
	}
	file := filepath.Join(dir, "pom.xml")
	if err := os.WriteFile(file, debeziumPOM, 0o644); err != nil {
		return "", fmt.Errorf("fetch Debezium: %w", err)
	}
	if log != nil {
		fmt.Fprintf(log, "downloading Debezium %s and Kafka Connect %s, about 60 MB, once, into %s\n", DebeziumVersion, ApacheVersion, jars)
	}
	cmd := exec.CommandContext(ctx, maven, "-q", "-B", "-f", file, "dependency:copy-dependencies", "-DoutputDirectory="+jars)
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("fetch Debezium with Maven: %w\n%s", err, out)
	}
	return jars, os.WriteFile(whole, nil, 0o644)
}

var javaVersionPattern = regexp.MustCompile(`version "(\d+)`)

// FindJava is the newest Java of the machine, or the one of JAVA_HOME, and its
// major version. Debezium prints floating-point numbers as its Java does, and
// that changed with Java 19.
func FindJava(ctx context.Context) (program string, major int, err error) {
	candidates := []string{filepath.Join(os.Getenv("JAVA_HOME"), "bin", "java")}
	if os.Getenv("JAVA_HOME") == "" {
		candidates, _ = filepath.Glob("/usr/lib/jvm/*/bin/java")
		if path, err := exec.LookPath("java"); err == nil {
			candidates = append(candidates, path)
		}
	}
	for _, candidate := range candidates {
		out, err := exec.CommandContext(ctx, candidate, "-version").CombinedOutput()
		match := javaVersionPattern.FindSubmatch(out)
		if err != nil || match == nil {
			continue
		}
		if version, err := strconv.Atoi(string(match[1])); err == nil && version > major {
			program, major = candidate, version
		}
	}
	if major < 17 {
		return "", 0, errors.New("find Java: no Java 17 or newer on PATH, in JAVA_HOME or under /usr/lib/jvm")
	}
	return program, major, nil
}
