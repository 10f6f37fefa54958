package arch_test

import (
	"fmt"
	"io/fs"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// forbidden are words of an earlier dialect, each with the field's word. They are
// looked for in identifiers (split at capitals and underscores), comments, SQL,
// messages, the contract and docs.
var forbidden = []struct{ word, use string }{
	{`instants?`, "scheduled time, or time"},
	{`owe[sd]?|owing`, "due, missed, catch up"},
	{`(?:is|are|was|were|be) over(?: ?[,.;:)"]| ?$| and | or | when | already )`, "finished"},
	{`crowds?|crowded`, "backlog"},
	{`hand(?:s|ed|ing)? (?:it |them )?on(?: ?[,.;:)"]| ?$| and | after | by )`, "reassign"},
	{`hand(?:s|ed|ing)? (?:it |them )?back|give[ -]?backs?`, "release"},
	{`strands?`, "shard"},
	{`custody|autopilot|upkeep`, "maintenance, suspend"},
	{`recounts?|recounted`, "reconcile"},
	{`corpses?|seekers?|tempo|unrun`, "what the thing is"},
	{`wish(?:es)?`, "claimRequest"},
	{`stretch(?:es)?`, "batch, page, interval"},
	{`whoever`, "the one that acts: a caller, a tenant, a worker"},
}

// clause is a sentence of a comment or a page that has a clause for its subject.
var clause = regexp.MustCompile(`(?:^|[.:] )(?:What|Whatever|Who|Whoever) [a-z]`)

// wordy are the places where one of these is right, each with the reason.
var wordy = map[string]string{
	"CHANGELOG.md":                      "it names what earlier versions had",
	"internal/proof/arch/words_test.go": "the list itself",
	"internal/proof/arch/size_test.go":  "another list of words",
	"migrations/before":                 "it is history: databases have it as it is",
}

// Names of the schema, which only a migration can change, and processes of the version
// before still use.
const (
	shardNames   = `strand|of_strand|trim_audit_strand`
	backlogNames = `crowded_at|crowded_since`
)

// schemaNames are the files that must spell such names. They may do so in code, and in
// comments after the word "column".
var schemaNames = map[string]string{
	"sqlc.yaml":                                shardNames + "|" + backlogNames, // gives them right names in Go
	"db/queries/audit_log.sql":                 shardNames,
	"internal/audit/audit_test.go":             shardNames,
	"internal/audit/list_test.go":              shardNames,
	"internal/audit/trim_test.go":              shardNames,
	"internal/postgres/migrate_rule_test.go":   shardNames,
	"internal/postgres/shards_test.go":         backlogNames,
	"internal/proof/bench/store_bounded.go":    shardNames,
	"internal/rest/list_plan_test.go":          shardNames,
	"migrations/000102_jobs.sql":               shardNames,
	"migrations/000103_executions.sql":         backlogNames,
	"migrations/000202_count_in_shards.sql":    backlogNames,
	"migrations/000220_record_change.sql":      shardNames,
	"migrations/000620_record_change_cost.sql": shardNames,
	"migrations/000700_record_change_row.sql":  shardNames,
	"migrations/000106_secrets_and_audit.sql":  shardNames,
}

// installed are comments in the bodies of functions. Databases have them as they are,
// and a test compares a new database with an upgraded one byte for byte.
var installed = map[string]string{
	"-- One strand for a whole transaction, so that no two of them hold one and":           "migrations/000106_secrets_and_audit.sql",
	"-- The record of another strand's anchor may just have been removed: write it again.": "migrations/000106_secrets_and_audit.sql",
	"-- Who makes partitions holds the same.":                                              "migrations/000104_history.sql",
}

func TestWordsAreTheGlossarys(t *testing.T) {
	t.Parallel()
	for _, file := range texts(t) {
		for number, line := range strings.Split(readText(t, file), "\n") {
			for _, wrong := range wrongWords(file, line) {
				t.Errorf("%s:%d: %s", file, number+1, wrong)
			}
		}
	}
}

func TestWrongWordsAreFound(t *testing.T) {
	t.Parallel()
	for line, want := range map[string]int{
		"// the run is over, and":                1,
		"// it reads over 100 rows":              0,
		"func (s *Schedule) maxOwedInstants() {": 2,
		"// and it allowed a constant":           0,
		"	last_strand int":                       1,
		"// What it does not have is refused.":   1,
		"// Says what it does. Who asks, waits.": 1,
		`	if what == "What is it" {`:             0,
	} {
		if got := wrongWords("x.go", line); len(got) != want {
			t.Errorf("%q: %v, want %d", line, got, want)
		}
	}
}

func TestSchemaNamesAreExcusedOnlyWhereTheyStand(t *testing.T) {
	t.Parallel()
	const file = "migrations/000106_secrets_and_audit.sql"
	for line, want := range map[string]int{
		"    strand smallint NOT NULL, -- its shard":  0,
		"    strand smallint NOT NULL, -- its strand": 1,
		"-- eight shards (column strand)":             0,
		"    last_strand smallint":                    1,
	} {
		if got := wrongWords(file, line); len(got) != want {
			t.Errorf("%q: %v, want %d", line, got, want)
		}
	}
	for file, names := range schemaNames {
		if !regexp.MustCompile(`\b(?:` + names + `)\b`).MatchString(readText(t, file)) {
			t.Errorf("%s spells none of %s: take it off the list", file, names)
		}
	}
	for said, file := range installed {
		if !strings.Contains(readText(t, file), said) {
			t.Errorf("%s does not say %q: take it off the list", file, said)
		}
	}
}

// texts are the files of the tree that people write and read.
func texts(t *testing.T) (files []string) {
	t.Helper()
	kinds := []string{".go", ".sql", ".md", ".yaml", ".yml", ".lua", ".sh", ".example"}
	err := filepath.WalkDir(root, func(name string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && foreign(name, entry.Name()):
			return fs.SkipDir
		case entry.IsDir() || !slices.Contains(kinds, path.Ext(name)):
			return nil
		}
		relative, err := filepath.Rel(root, name)
		file := filepath.ToSlash(relative)
		made := strings.Contains(file, ".gen.") || strings.HasPrefix(file, "api/")
		if !made && wordy[file] == "" && wordy[path.Dir(file)] == "" {
			files = append(files, file)
		}
		return err
	})
	if err != nil || len(files) < 500 {
		t.Fatalf("%d files: %v", len(files), err)
	}
	return files
}

var (
	hump    = regexp.MustCompile(`([a-z0-9])([A-Z])`)
	comment = regexp.MustCompile(`(?:^|\s)(?://|--|#) ?(.*)`)
	anyWord = func() *regexp.Regexp {
		var all []string
		for _, f := range forbidden {
			all = append(all, f.word)
		}
		return regexp.MustCompile(`(?i)\b(?:` + strings.Join(all, "|") + `)`)
	}()
)

// withoutSchemaNames is a line without the names of the schema that its file may spell.
func withoutSchemaNames(file, line string) string {
	names := schemaNames[file]
	if names == "" {
		return line
	}
	code, said := line, ""
	if at := comment.FindStringIndex(line); at != nil {
		code, said = line[:at[0]], line[at[0]:]
	}
	code = regexp.MustCompile(`\b(?:`+names+`)\b`).ReplaceAllString(code, "")
	return code + regexp.MustCompile(`\bcolumn (?:`+names+`)\b`).ReplaceAllString(said, "")
}

// wrongWords says what is wrong with a line of a file.
func wrongWords(file, line string) (wrong []string) {
	if installed[strings.TrimSpace(line)] == file {
		return nil
	}
	split := strings.ReplaceAll(hump.ReplaceAllString(withoutSchemaNames(file, line), "$1 $2"), "_", " ")
	if anyWord.MatchString(split) {
		for _, f := range forbidden {
			if regexp.MustCompile(`(?i)\b(?:` + f.word + `)(?:\W|$)`).MatchString(split + " ") {
				wrong = append(wrong, fmt.Sprintf("%q: say %s", strings.TrimSpace(line), f.use))
			}
		}
	}
	prose := line
	if path.Ext(file) != ".md" {
		said := comment.FindStringSubmatch(line)
		if said == nil {
			return wrong
		}
		prose = said[1]
	}
	if clause.MatchString(prose) {
		wrong = append(wrong, fmt.Sprintf("%q: name the subject", strings.TrimSpace(line)))
	}
	return wrong
}
