package sandbox

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
)

// formatting says what Kafka's StorageTool makes for a broker: the folder log in dir, whose
// server.properties are there already.
type formatting struct {
	java, jars string
	cluster    string
	node       int
	dir        string
	args       []string // of StorageTool
	settings   string   // what may make two brokers' folders different, beside args, cluster and node
}

// kafkaID is a random id as Kafka has them.
func kafkaID() string {
	id := make([]byte, 16)
	_, _ = rand.Read(id) // never fails
	id[0] &= 0x7f        // in base64 a leading - would be read as an option
	return base64.RawURLEncoding.EncodeToString(id)
}

// formatKafka formats the folder of a broker. With a folder of templates StorageTool, which takes more than a
// second of CPU, runs once in the run, and others get a copy with ids of their own.
func formatKafka(ctx context.Context, f formatting) error {
	folder := os.Getenv(TemplatesVariable)
	if folder == "" {
		return f.run(ctx)
	}
	key := fmt.Sprintf("kafka %d %s %q %s", os.Geteuid(), f.jars, f.args, f.settings)
	made := false
	template, err := (&runner{}).template(folder, key, func(path string) error {
		made = true
		if err := f.run(ctx); err != nil {
			return err
		}
		return copyFolder(ctx, f.log(), path)
	})
	if err != nil || made {
		return err
	}
	if err := copyFolder(ctx, template, f.log()); err != nil {
		return err
	}
	return f.rename()
}

func (f formatting) log() string { return filepath.Join(f.dir, "log") }

func (f formatting) run(ctx context.Context) error {
	args := slices.Concat(quick, []string{"-cp", filepath.Join(f.jars, "*"), "kafka.tools.StorageTool", "format",
		"-t", f.cluster, "-c", filepath.Join(f.dir, "server.properties")}, f.args)
	if out, err := exec.CommandContext(ctx, f.java, args...).CombinedOutput(); err != nil {
		return fmt.Errorf("format Kafka: %w\n%s", err, out)
	}
	return nil
}

var kafkaIDs = regexp.MustCompile(`(?m)^(node\.id|cluster\.id|directory\.id)=.*$`)

// rename gives a copied folder the broker's own ids. Nothing else of it has one.
func (f formatting) rename() error {
	name := filepath.Join(f.log(), "meta.properties")
	meta, err := os.ReadFile(name)
	if err != nil {
		return fmt.Errorf("format Kafka: %w", err)
	}
	ids := map[string]string{"node.id": strconv.Itoa(f.node), "cluster.id": f.cluster, "directory.id": kafkaID()}
	meta = kafkaIDs.ReplaceAllFunc(meta, func(line []byte) []byte {
		key := kafkaIDs.FindSubmatch(line)[1]
		return fmt.Appendf(nil, "%s=%s", key, ids[string(key)])
	})
	if err := os.WriteFile(name, meta, 0o600); err != nil {
		return fmt.Errorf("format Kafka: %w", err)
	}
	return nil
}
