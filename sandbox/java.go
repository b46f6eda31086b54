package sandbox

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
)

// quick are options for a Java that runs for minutes at most.
var quick = []string{"-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"}

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
