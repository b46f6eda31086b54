package sandbox

import (
	"context"
	_ "embed"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
)

//go:embed debezium/pom.xml
var debeziumPOM []byte

//go:embed converter/pom.xml
var converterPOM []byte

// ConverterVersion is the version of Apicurio's converter that FetchAvroConverter brings. Of newer ones
// Maven Central has no parent POM.
const ConverterVersion = "2.6.13.Final"

// AvroConverter is its class.
const AvroConverter = "io.apicurio.registry.utils.converter.AvroConverter"

// FetchDebezium has Maven put Kafka, Kafka Connect and Debezium into the cache,
// once for each version, and returns the folder of jars. log may be nil.
func FetchDebezium(ctx context.Context, log io.Writer) (string, error) {
	dir, err := fetchJars(ctx, log, debeziumPOM, "debezium-"+DebeziumVersion+"-kafka-"+ApacheVersion,
		"Debezium "+DebeziumVersion+" and Kafka Connect "+ApacheVersion, "60 MB")
	if err != nil {
		return "", err
	}
	return filepath.Join(dir, "lib"), nil
}

// FetchAvroConverter has Maven put Apicurio's Avro converter into the cache, once for each version, and
// returns the folder that a worker has to have as plugin.path. log may be nil.
func FetchAvroConverter(ctx context.Context, log io.Writer) (string, error) {
	return fetchJars(ctx, log, converterPOM, "apicurio-converter-"+ConverterVersion, "Apicurio's converter "+ConverterVersion, "15 MB")
}

// fetchJars has Maven put what a pom.xml names into the folder lib below the folder that it returns.
func fetchJars(ctx context.Context, log io.Writer, pom []byte, name, what, size string) (string, error) {
	cache, err := CacheDir()
	if err != nil {
		return "", err
	}
	dir := filepath.Join(cache, name)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", fmt.Errorf("fetch %s: %w", what, err)
	}
	unlock, err := Locked(filepath.Join(dir, "lock"))
	if err != nil {
		return "", err
	}
	defer unlock()
	jars, whole := filepath.Join(dir, "lib"), filepath.Join(dir, "whole")
	if isFile(whole) {
		return dir, nil
	}
	maven, err := exec.LookPath("mvn")
	if err != nil {
		return "", fmt.Errorf("fetch %s: %w", what, err)
	}
	file := filepath.Join(dir, "pom.xml")
	if err := os.WriteFile(file, pom, 0o644); err != nil {
		return "", fmt.Errorf("fetch %s: %w", what, err)
	}
	if log != nil {
		fmt.Fprintf(log, "downloading %s, about %s, once, into %s\n", what, size, jars)
	}
	cmd := exec.CommandContext(ctx, maven, "-q", "-B", "-f", file, "dependency:copy-dependencies", "-DoutputDirectory="+jars)
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("fetch %s with Maven: %w\n%s", what, err, out)
	}
	return dir, os.WriteFile(whole, nil, 0o644)
}
