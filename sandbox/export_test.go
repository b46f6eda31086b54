package sandbox

import (
	"context"
	"os"
	"strconv"
)

// Formatted formats the folder of a broker, as Kafka's start does, and returns its files by their names.
func Formatted(ctx context.Context, java, jars string, node int) (map[string]string, error) {
	dir, err := TempDir("kafka")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	f := formatting{java: java, jars: jars, cluster: kafkaID(), node: node, dir: dir}
	settings := "process.roles=broker,controller\nnode.id=" + strconv.Itoa(node) + "\ncontroller.quorum.voters=1@127.0.0.1:1,2@127.0.0.1:2\n" +
		"listeners=PLAINTEXT://127.0.0.1:3,CONTROLLER://127.0.0.1:4\ncontroller.listener.names=CONTROLLER\nlog.dirs=" + f.log() + "\n"
	if err := os.WriteFile(dir+"/server.properties", []byte(settings), 0o600); err != nil {
		return nil, err
	}
	if err := formatKafka(ctx, f); err != nil {
		return nil, err
	}
	entries, err := os.ReadDir(f.log())
	files := map[string]string{}
	for _, entry := range entries {
		content, _ := os.ReadFile(f.log() + "/" + entry.Name())
		files[entry.Name()] = string(content)
	}
	files["cluster"] = f.cluster
	return files, err
}
