package secret

import "strings"

// Stream masks a text that comes in pieces. A secret that is cut by the border of two
// pieces is found, too: the end of a piece that may be the beginning of a secret comes out
// with the next piece.
type Stream struct {
	mask  Mask
	first [256]bool // bytes that a form begins with
	held  string
}

// Stream makes a stream of which nothing was read.
func (m Mask) Stream() *Stream {
	s := &Stream{mask: m}
	for _, form := range m.forms {
		s.first[form[0]] = true
	}
	return s
}

// Write takes the next piece and returns what can be shown by now.
func (s *Stream) Write(piece string) string {
	if s.mask.replacer == nil {
		return piece
	}
	text := s.held + piece
	s.held = ""
	var out strings.Builder
	shown := 0
	for i := 0; i < len(text); {
		if !s.first[text[i]] {
			i++
			continue
		}
		form, open := s.at(text[i:])
		switch {
		case open:
			out.WriteString(text[shown:i])
			s.held = text[i:]
			return out.String()
		case form == 0:
			i++
		default:
			out.WriteString(text[shown:i])
			out.WriteString(Masked)
			i += form
			shown = i
		}
	}
	out.WriteString(text[shown:])
	return out.String()
}

// at returns the length of the longest form that a text begins with; open says that the
// whole text is the beginning of a longer one.
func (s *Stream) at(text string) (form int, open bool) {
	for _, f := range s.mask.forms {
		if len(f) > len(text) {
			if f[:len(text)] == text {
				return 0, true
			}
			continue
		}
		if text[:len(f)] == f {
			return len(f), false
		}
	}
	return 0, false
}

// End returns what was held back, as Mask.Text masks it. Nothing is held afterwards.
func (s *Stream) End() string {
	held := s.held
	s.held = ""
	return s.mask.Text(held)
}
