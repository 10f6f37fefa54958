package executor

import (
	"bytes"
	"slices"
	"strconv"
)

// findings is what PostgreSQL's jsonb would refuse in a JSON text that
// encoding/json accepts.
type findings struct {
	// escapes are the positions of six-byte escapes that stand for NUL or for
	// half a surrogate pair.
	escapes []int
	// problem is what cannot be mended: nesting or a number. Empty is none.
	problem string
	// names are those of all objects, the first manyNames of them, as they are written.
	names [][]byte
	// twins says that an object may hold a name twice: the text has one twice anywhere, or
	// writes one with an escape, or has more than manyNames.
	twins bool
}

const manyNames = 32

// name notes the name of a member.
func (f *findings) name(text []byte) {
	same := func(other []byte) bool { return bytes.Equal(text, other) }
	f.twins = f.twins || len(f.names) == manyNames || bytes.IndexByte(text, '\\') >= 0 || slices.ContainsFunc(f.names, same)
	if !f.twins {
		f.names = append(f.names, text)
	}
}

// survey walks a valid JSON text once.
func survey(valid []byte) findings {
	var found findings
	depth := 0
	for i := 0; i < len(valid); {
		switch c := valid[i]; {
		case c == '"':
			end := surveyString(valid, i+1, &found)
			if next := bytes.TrimLeft(valid[end:], " \t\r\n"); len(next) > 0 && next[0] == ':' {
				found.name(valid[i+1 : end-1])
			}
			i = end
			continue
		case c == '{' || c == '[':
			if depth++; depth > maxDepth {
				found.problem = "is nested deeper than " + strconv.Itoa(maxDepth) + " levels"
				return found
			}
		case c == '}' || c == ']':
			depth--
		case c == '-' || (c >= '0' && c <= '9'):
			end := numberEnd(valid, i)
			if numberTooLong(valid[i:end]) {
				found.problem = "holds a number out of range"
				return found
			}
			i = end
			continue
		}
		i++
	}
	return found
}

// surveyString notes the escapes of the string whose text begins at i, and
// returns the position after its closing quote.
func surveyString(valid []byte, i int, found *findings) int {
	for valid[i] != '"' {
		if valid[i] != '\\' {
			i++
			continue
		}
		if valid[i+1] != 'u' {
			i += 2
			continue
		}
		code := hex4(valid[i+2:])
		switch {
		case code >= 0xD800 && code < 0xDC00 && valid[i+6] == '\\' && valid[i+7] == 'u' && isLow(hex4(valid[i+8:])):
			i += 6 // a proper pair: pass over its second half too
		case code == 0 || (code >= 0xD800 && code < 0xE000):
			found.escapes = append(found.escapes, i)
		}
		i += 6
	}
	return i + 1
}

func isLow(code uint64) bool { return code >= 0xDC00 && code < 0xE000 }

// hex4 reads four hexadecimal digits, which a valid JSON text has after "\u".
func hex4(digits []byte) uint64 {
	code, err := strconv.ParseUint(string(digits[:4]), 16, 16)
	if err != nil {
		return 0
	}
	return code
}

func numberEnd(valid []byte, i int) int {
	for i < len(valid) {
		switch c := valid[i]; {
		case c >= '0' && c <= '9', c == '-', c == '+', c == '.', c == 'e', c == 'E':
			i++
		default:
			return i
		}
	}
	return i
}

func numberTooLong(number []byte) bool {
	if len(number) > maxDigits {
		return true
	}
	for i, c := range number {
		if c == 'e' || c == 'E' {
			exponent, err := strconv.Atoi(string(number[i+1:]))
			return err != nil || exponent > maxDigits || exponent < -maxDigits
		}
	}
	return false
}
