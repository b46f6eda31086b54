package replication

import (
	"github.com/cdc-relay/cdc-relay/fault"
	"github.com/cdc-relay/cdc-relay/postgres"
	"github.com/cdc-relay/cdc-relay/replication/pgoutput/pgoutputtest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

// What messages point to has to be there.
func TestMessagesPointToWhatTheRunbookHas(t *testing.T) {
	text, err := os.ReadFile("../docs/operations.md")
	if err != nil {
		t.Fatal(err)
	}
	anchors := make(map[string]bool)
	for _, heading := range regexp.MustCompile("(?m)^##+ (.+)$").FindAllStringSubmatch(string(text), -1) {
		anchors[strings.ReplaceAll(strings.ToLower(strings.Trim(heading[1], "`")), " ", "-")] = true
	}
	messages := []string{postgres.HintRecreate(fault.ReasonSlotLost, 0), postgres.HintRecreate(fault.ReasonPublicationMissing, 0)}
	var files []string
	for _, pattern := range []string{"*.go", "pgoutput/*.go", "../fault/*.go", "../postgres/*.go", "../postgres/*/*.go"} {
		found, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, found...)
	}
	for _, file := range files {
		source, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		messages = append(messages, string(source))
	}
	found := regexp.MustCompile(`operations\.md#([a-z_-]+)`).FindAllStringSubmatch(strings.Join(messages, "\n"), -1)
	if len(found) < 4 {
		t.Errorf("only %d pointers", len(found))
	}
	for _, link := range found {
		if !anchors[link[1]] {
			t.Errorf("docs/operations.md has no heading for #%s", link[1])
		}
	}
}

// Behind a restart the publication is there again, and the slot is stuck before it.
func TestStream_SaysWhatTakesASlotPastAMissingPublication(t *testing.T) {
	fields := func(kv ...string) (b pgoutputtest.Message) {
		for _, s := range kv {
			b = b.Str(s)
		}
		return b.U8(0)
	}
	for name, last := range map[string][]byte{
		"an error": pgoutputtest.Frame('E', fields("SERROR", "VERROR", "C42704", `Mpublication "pub" does not exist`, "Fpg_publication.c",
			`Wslot "s", output plugin "pgoutput", in the change callback, associated LSN 0/300`)),
		"a notice": pgoutputtest.Frame('N', fields("SWARNING", "VWARNING", "C55000", `Mskipped loading publication "pub"`)),
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, Options{}, func(t *testing.T, f *fakeServer) {
				go f.wal(txn(0x200, 7, "1")...)
				for b := f.take(); b != nil; b = f.take() {
				}
				f.confirm(0x230)
				pass(5 * time.Second)
				f.send(last)
				err := <-f.ended
				if postgres.Reason(err) != fault.ReasonPublicationMissing {
					t.Fatalf("got %v", err)
				}
				select {
				case <-f.stream.Lost():
					if name != "an error" {
						t.Error("lost, and the copy goes on")
					}
				default:
					if name == "an error" {
						t.Error("not lost, and the server let go of the slot")
					}
				}
				for _, want := range []string{
					"did not exist when", "stop the relay, then `cdc-relay teardown --yes`, `cdc-relay setup`, `cdc-relay run`",
					"insert the rows since LSN 0/230 again", "docs/operations.md#publication_missing",
				} {
					if !strings.Contains(err.Error(), want) {
						t.Errorf("%q is not in %v", want, err)
					}
				}
			})
		})
	}
}
