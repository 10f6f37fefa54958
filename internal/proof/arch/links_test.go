package arch_test

import (
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const maxReadmeLines = 120

func TestREADMEStaysShort(t *testing.T) {
	t.Parallel()
	if lines := strings.Count(readText(t, "README.md"), "\n"); lines > maxReadmeLines {
		t.Errorf("README.md has %d lines, more than %d: details belong to docs", lines, maxReadmeLines)
	}
}

var (
	linked = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	headed = regexp.MustCompile(`(?m)^#{1,6} +(.*)$`)
	fenced = regexp.MustCompile("(?ms)^```.*?^```$")
)

func TestLinksOfPagesResolve(t *testing.T) {
	t.Parallel()
	found := 0
	for _, page := range pages(t) {
		for _, link := range linked.FindAllStringSubmatch(fenced.ReplaceAllString(readText(t, page), ""), -1) {
			target, anchor, _ := strings.Cut(link[1], "#")
			if strings.Contains(target, "://") || strings.HasPrefix(target, "mailto:") {
				continue
			}
			found++
			file := page
			if target != "" {
				file = path.Join(path.Dir(page), target)
			}
			if _, err := os.Stat(filepath.Join(root, filepath.FromSlash(file))); err != nil {
				t.Errorf("%s links to %s, which is not there", page, link[1])
				continue
			}
			if anchor != "" && !slices.Contains(anchors(readText(t, file)), anchor) {
				t.Errorf("%s links to %s, which has no such heading", page, link[1])
			}
		}
	}
	if found < 50 {
		t.Errorf("only %d links were found", found)
	}
}

// TestPagesAreNamedRightly looks up every path below docs that any text mentions.
func TestPagesAreNamedRightly(t *testing.T) {
	t.Parallel()
	named := regexp.MustCompile(`\bdocs/[a-z/-]+\.md\b`)
	for _, file := range texts(t) {
		for _, page := range named.FindAllString(readText(t, file), -1) {
			if _, err := os.Stat(filepath.Join(root, filepath.FromSlash(page))); err != nil {
				t.Errorf("%s names %s, which is not there", file, page)
			}
		}
	}
}

func TestIndexListsEveryPage(t *testing.T) {
	t.Parallel()
	index := readText(t, "docs/README.md")
	for _, page := range pages(t) {
		below, inside := strings.CutPrefix(page, "docs/")
		if inside && below != "README.md" && !strings.Contains(index, "("+below+")") {
			t.Errorf("docs/README.md does not list %s", below)
		}
	}
}

// pages are the Markdown files that people write.
func pages(t *testing.T) (all []string) {
	t.Helper()
	for _, file := range texts(t) {
		if path.Ext(file) == ".md" {
			all = append(all, file)
		}
	}
	if len(all) < 10 {
		t.Fatalf("only %d pages", len(all))
	}
	return all
}

// anchors are the names that headings get where Markdown is shown.
func anchors(text string) (all []string) {
	drop := regexp.MustCompile(`[^\p{L}\p{N} _-]`)
	for _, heading := range headed.FindAllStringSubmatch(fenced.ReplaceAllString(text, ""), -1) {
		all = append(all, strings.ReplaceAll(drop.ReplaceAllString(strings.ToLower(heading[1]), ""), " ", "-"))
	}
	return all
}
