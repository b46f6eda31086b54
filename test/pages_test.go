package test

import (
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/cdc-relay/cdc-relay/sandbox"
	"github.com/cdc-relay/cdc-relay/test/harness"
	"github.com/cdc-relay/cdc-relay/test/harness/relaytest"
)

// The index leads to every page; decisions have an index of their own.
func TestPages_AreInTheIndex(t *testing.T) {
	index := read(t, "docs/README.md")
	for _, page := range documents(t) {
		inside, ours := strings.CutPrefix(page, "docs/")
		if decision := strings.HasPrefix(inside, "adr/0"); ours && !decision && inside != "README.md" && !strings.Contains(index, "]("+inside+")") {
			t.Errorf("docs/README.md has no link to %s", page)
		}
	}
	for _, kind := range []string{"Tutorial", "How to", "Reference", "Explanation"} {
		section(t, index, kind)
	}
}

// A page of many sections begins with their list.
func TestPages_LongOnesHaveAListOfContents(t *testing.T) {
	long := 0
	for _, page := range documents(t) {
		if page == "README.md" || page == "docs/README.md" || page == "docs/commands.md" {
			continue
		}
		text := fence.ReplaceAllString(read(t, page), "")
		headings := regexp.MustCompile(`(?m)^## (.+)$`).FindAllStringSubmatch(text, -1)
		if len(headings) < 5 {
			continue
		}
		long++
		top, _, _ := strings.Cut(text, "\n## ")
		for _, heading := range headings {
			if !strings.Contains(top, "](#"+anchor(heading[1])+")") && heading[1] != "Where to go next" && heading[1] != "Where a simpler design was left" {
				t.Errorf("%s does not list its section %q", page, heading[1])
			}
		}
	}
	if long < 8 {
		t.Errorf("found %d long pages only", long)
	}
}

// The statements of a page run one after the other, beside the table that setup makes.
func TestPages_StatementsRun(t *testing.T) {
	binary := relaytest.Binary(t)
	for _, page := range []string{"docs/how-to/keep-the-outbox-small.md", "docs/how-to/consume.md", "docs/consuming.md"} {
		t.Run(filepath.Base(page), func(t *testing.T) {
			db := harness.Postgres(t)
			place := workplace{binary: binary, dir: t.TempDir(), environ: []string{"HOME=" + t.TempDir(), "CDC_RELAY_POSTGRES_URL=" + db.URL,
				"CDC_RELAY_POSTGRES_SLOT=" + harness.Unique(t, "pages"), "CDC_RELAY_KAFKA_BROKERS=" + strings.Join(harness.Kfake(t, sandbox.KafkaOptions{}).Addrs, ","), "CDC_RELAY_OUTBOX_TABLE=public.outbox"}}
			place.must(t, "setup", "--create-table")
			if page == "docs/consuming.md" {
				sql, err := place.command(t.Context(), "sql", "--inbox").Output()
				if err != nil {
					t.Fatal(err)
				}
				db.Exec(t, string(sql))
			}
			ran := 0
			for _, block := range fence.FindAllStringSubmatch(read(t, page), -1) {
				if block[1] == "sql" {
					ran++
					db.Exec(t, block[2])
				}
			}
			if ran < 2 {
				t.Errorf("%d statements only", ran)
			}
			place.must(t, "teardown", "--yes")
		})
	}
}

// The light and the dark picture differ in their colours alone, and the recording has
// the size that its program gives it.
func TestPages_PicturesFitTheirPages(t *testing.T) {
	colours := regexp.MustCompile(`#[0-9a-f]{6}`)
	light, dark := read(t, "docs/images/way-of-a-row.svg"), read(t, "docs/images/way-of-a-row-dark.svg")
	if light == dark || colours.ReplaceAllString(light, "") != colours.ReplaceAllString(dark, "") {
		t.Error("the two pictures of the way of a row differ in more than colours, or not at all")
	}
	recording := read(t, "docs/images/demo.svg")
	if !strings.Contains(recording[:400], `width="860" height="470"`) || len(recording) > 200_000 {
		t.Errorf("the recording has another size, or %d bytes: %.300s", len(recording), recording)
	}
	if !strings.Contains(recording, "every committed event was delivered") || !strings.Contains(recording, "brokers are gone") {
		t.Error("the recording shows neither the outage nor the end")
	}
	for _, page := range []string{"README.md", "docs/how-it-works.md"} {
		for _, m := range regexp.MustCompile(`(?:src|srcset)="([^"]+)"`).FindAllStringSubmatch(read(t, page), -1) {
			read(t, filepath.ToSlash(filepath.Join(filepath.Dir(page), m[1])))
		}
	}
}

// The changelog is a list of features and no diary: one list for each version, the newest first.
func TestPages_ChangelogIsAListOfFeatures(t *testing.T) {
	text := read(t, "CHANGELOG.md")
	for i, heading := range regexp.MustCompile(`(?m)^## (.+)$`).FindAllStringSubmatch(text, -1) {
		if !regexp.MustCompile(`^\d+\.\d+\.\d+(, not released yet| – \d{4}-\d\d-\d\d)$`).MatchString(heading[1]) || i > 0 && strings.Contains(heading[1], "not released") {
			t.Errorf("section %q: only the first version may be one that is not released yet", heading[1])
		}
	}
	for line := range strings.Lines(text) {
		if len(line) > 400 {
			t.Errorf("%d characters for one change: %.80s", len(line), line)
		}
	}
	seen := map[string]bool{}
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, "#") {
			if seen[line] {
				t.Errorf("%q is there twice", strings.TrimSpace(line))
			}
			seen[line] = true
		}
		if strings.HasPrefix(line, "  ") {
			t.Errorf("an entry goes on in a second line: %s", strings.TrimSpace(line))
		}
	}
}

// A renderer ends a table at an empty line, and drops the cells that a heading has no column for.
func TestPages_TablesAreWhole(t *testing.T) {
	divider := regexp.MustCompile(`^\|(\s*:?-+:?\s*\|)+$`)
	for _, page := range append(documents(t), "ARCHITECTURE.md", "CHANGELOG.md", "test/README.md") {
		lines := strings.Split(read(t, page), "\n")
		columns, fenced := 0, false // of the table that the line before belongs to
		for i, line := range lines {
			if strings.HasPrefix(strings.TrimSpace(line), "```") {
				fenced = !fenced
			}
			switch cells := len(regexp.MustCompile(`(?:^|[^\\])\|`).FindAllString(line, -1)) - 1; {
			case fenced || !strings.HasPrefix(line, "|"):
				columns = 0
			case columns == 0 && (i+1 == len(lines) || !divider.MatchString(lines[i+1])):
				t.Errorf("%s:%d: a table's row without a heading above it: %.60s", page, i+1, line)
			case columns == 0:
				columns = cells
			case cells != columns:
				t.Errorf("%s:%d: a row of %d cells in a table of %d columns: %.60s", page, i+1, cells, columns, line)
			}
		}
	}
}

// TestPages_ParagraphsHaveOneWidth: a paragraph of Markdown is one line, or its lines end at 100
// columns.
func TestPages_ParagraphsHaveOneWidth(t *testing.T) {
	beginsItem := regexp.MustCompile(`^\s*([*+-]|\d+\.)\s`)
	pages := append(documents(t), "ARCHITECTURE.md", "CHANGELOG.md")
	for _, rooms := range []string{"*/README.md", "*/*/README.md"} {
		paths, err := filepath.Glob(filepath.Join(root, rooms))
		if err != nil || len(paths) == 0 {
			t.Fatalf("no page is named %s: %v", rooms, err)
		}
		for _, path := range paths {
			pages = append(pages, strings.TrimPrefix(path, root+"/"))
		}
	}
	for _, page := range pages {
		length, fenced := 0, false // of the paragraph's line before; 0: there is none
		for i, line := range strings.Split(read(t, page), "\n") {
			text := strings.TrimSpace(line)
			switch {
			case strings.HasPrefix(text, "```"):
				length, fenced = 0, !fenced
			case fenced, text == "", strings.ContainsRune("|#<>!", rune(text[0])):
				length = 0
			case beginsItem.MatchString(line):
				length = utf8.RuneCountInString(line)
			default:
				if length > 0 && max(length, utf8.RuneCountInString(line)) > 100 {
					t.Errorf("%s:%d: a paragraph of several lines, one of them over 100 columns", page, i+1)
				}
				length = utf8.RuneCountInString(line)
			}
		}
	}
}
