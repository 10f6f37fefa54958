// Package suggest finds what somebody probably meant by a name that is not known.
//
// It owns the measure of likeness. It refuses to know any names: callers pass
// those that are there.
package suggest

import (
	"fmt"
	"slices"
	"strings"
)

// maxName bounds what is compared, because each comparison costs the product of
// both lengths.
const maxName = 64

// For is a hint to append to a message, such as "; did you mean maxRetries?", or
// "" where no known name is close to the given one.
func For(name string, known []string) string { return DidYouMean(Nearest(name, known)) }

// DidYouMean is the hint at a name, or "" at none.
func DidYouMean(name string) string {
	if name == "" {
		return ""
	}
	return "; did you mean " + name + "?"
}

// OneOf says which values are allowed instead of the given one, and which of them
// was probably meant.
func OneOf(given string, allowed []string) string {
	shown := given
	if len(shown) > maxName {
		shown = strings.ToValidUTF8(shown[:maxName], "") + "…"
	}
	return fmt.Sprintf("must be one of %s, not %q", strings.Join(allowed, ", "), shown) + For(given, allowed)
}

// Nearest is the known name that is most like the given one, whatever its case;
// "" where more than a third of it, and more than a letter, would have to change, and it
// begins none of them or several.
func Nearest(name string, known []string) string {
	if len(name) > maxName || len(name) < 2 {
		return ""
	}
	sorted, best, least := slices.Sorted(slices.Values(known)), "", max(1, len(name)/3)+1
	for _, one := range sorted {
		if len(one) > maxName {
			continue
		}
		n := distance(strings.ToLower(name), strings.ToLower(one))
		if stem, ok := strings.CutSuffix(strings.ToLower(name), "y"); ok && strings.EqualFold(stem+"ies", one) {
			n = 1 // the singular of it
		}
		if n < least && n < len(one) {
			best, least = one, n
		}
	}
	if begun := beginning(name, sorted); best == "" && len(begun) == 1 {
		return begun[0]
	}
	return best
}

// beginning are the known names that a name of three letters or more begins.
func beginning(name string, known []string) (all []string) {
	for _, one := range known {
		if len(name) >= 3 && strings.HasPrefix(strings.ToLower(one), strings.ToLower(name)) {
			all = append(all, one)
		}
	}
	return all
}

// distance is how many letters have to be changed, added, left out or swapped with
// their neighbour to make one text another (optimal string alignment).
func distance(a, b string) int {
	before, last, row := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range last {
		last[j] = j
	}
	for i := 1; i <= len(a); i++ {
		row[0] = i
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			row[j] = min(last[j]+1, row[j-1]+1, last[j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], before[j-2]+1)
			}
		}
		before, last, row = last, row, before
	}
	return last[len(b)]
}
