package replication

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/fault"
	"github.com/cdc-relay/cdc-relay/postgres"
	"github.com/cdc-relay/cdc-relay/replication/pgoutput/pgoutputtest"
	"github.com/cdc-relay/cdc-relay/wording"
)

// What messages of any package point to has to be there: a page of docs, and the heading on it.
func TestMessagesPointToWhatTheRunbookHas(t *testing.T) {
	type source struct{ from, text string }
	sources := []source{
		{"HintRecreate", postgres.HintRecreate(fault.ReasonSlotLost, 0)},
		{"HintRecreate", postgres.HintRecreate(fault.ReasonPublicationMissing, 0)},
	}
	err := filepath.WalkDir("..", func(path string, entry fs.DirEntry, err error) error {
		switch name := entry.Name(); {
		case err != nil:
			return err
		case entry.IsDir() && (name == "testdata" || name == "node_modules" || len(name) > 2 && name[0] == '.'):
			return fs.SkipDir
		case entry.IsDir() || !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go"):
			return nil
		}
		text, err := os.ReadFile(path)
		sources = append(sources, source{filepath.ToSlash(path), string(text)})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	pointer := regexp.MustCompile(`(?:wording\.Docs ?\+ ?"|%s|` + regexp.QuoteMeta(wording.Docs) + `)([a-z][a-z/-]*\.md)(?:#([a-z][a-z_-]*))?`)
	pages, pointing := map[string]map[string]bool{}, map[string]int{}
	for _, s := range sources {
		for _, link := range pointer.FindAllStringSubmatch(s.text, -1) {
			page, heading := link[1], link[2]
			if pages[page] == nil {
				pages[page] = headings(t, page)
			}
			if heading != "" && !pages[page][heading] {
				t.Errorf("%s: docs/%s has no heading for #%s", s.from, page, heading)
			}
			pointing[s.from]++
		}
		if pointing[s.from] == 0 && strings.Contains(s.text, "wording.Docs") && s.from != "../docs/docs.go" { // it follows the links of the page
			t.Errorf("%s points to the documentation in a form that this test does not read", s.from)
		}
	}
	for _, from := range []string{"HintRecreate", "../check/relay.go", "../postgres/catalog/slot.go", "../postgres/preflight/table.go"} {
		if pointing[from] == 0 {
			t.Errorf("no pointer was found in %s", from)
		}
	}
}

// headings are the anchors of a page of docs.
func headings(t *testing.T, page string) map[string]bool {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "docs", page))
	if err != nil {
		t.Error(err)
	}
	anchors := make(map[string]bool)
	for _, heading := range regexp.MustCompile("(?m)^##+ (.+)$").FindAllStringSubmatch(string(text), -1) {
		anchors[strings.ReplaceAll(strings.ToLower(strings.Trim(heading[1], "`")), " ", "-")] = true
	}
	return anchors
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
					"send the rows since LSN 0/230 again (`cdc-relay replay`)", "docs/operations.md#publication_missing",
				} {
					if !strings.Contains(err.Error(), want) {
						t.Errorf("%q is not in %v", want, err)
					}
				}
			})
		})
	}
}
