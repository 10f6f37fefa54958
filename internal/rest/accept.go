package rest

import (
	"mime"
	"net/http"
	"regexp"
	"strings"

	"github.com/scheduler-service/scheduler/internal/fault"
	"github.com/scheduler-service/scheduler/internal/rest/contract"
)

// qvalue is the weight of a media range: RFC 9110, section 12.4.2.
var qvalue = regexp.MustCompile(`^(0(\.[0-9]{0,3})?|1(\.0{0,3})?)$`)

// negotiate refuses a request that could not read its answer, before
// anything is done. Pings are taken all the same: a caller that reads no answer still says
// that its run is done, and one that is refused makes a false alert.
func (s *server) negotiate(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		accept := r.Header.Values("Accept")
		c := callOf(r.Context())
		if c.operation.Permission == contract.Ping || c.follows() && admits(accept, eventStream) {
			next.ServeHTTP(w, r)
			return
		}
		if !admits(accept, "application/json") {
			s.refuse(w, r, fault.New(fault.Invalid, fault.CodeNotAcceptable, "answers are JSON: let Accept admit application/json, or leave it out"))
			return
		}
		next.ServeHTTP(w, r)
	})
}

// admits says whether a header Accept, of one line or several, admits a media
// type (RFC 9110, section 12.5.1). The closest range decides;
// parameters other than q narrow nothing, since JSON has none. A header that is
// empty or malformed asks for nothing: some clients send what no grammar has
// and take what they get.
func admits(lines []string, wanted string) bool {
	family, _, _ := strings.Cut(wanted, "/")
	ranges := elements(strings.Join(lines, ","))
	closest, fits := 0, len(ranges) == 0
	for _, one := range ranges {
		media, parameters, err := mime.ParseMediaType(one)
		kind, subtype, two := strings.Cut(media, "/")
		if err != nil || !two || kind == "*" && subtype != "*" {
			return true
		}
		q, weighed := parameters["q"]
		if weighed && !qvalue.MatchString(q) {
			return true
		}
		near := map[string]int{"*/*": 1, family + "/*": 2, wanted: 3}[media]
		asked := !weighed || strings.Trim(q, "0.") != ""
		switch {
		case near == 0 || near < closest:
		case near == closest:
			fits = fits || asked
		default:
			closest, fits = near, asked
		}
	}
	return fits
}

// elements splits a list at its commas, but not at those in quotes, and drops
// empty elements.
func elements(list string) []string {
	var found []string
	add := func(part string) {
		if part = strings.TrimSpace(part); part != "" {
			found = append(found, part)
		}
	}
	begin, quoted, escaped := 0, false, false
	for i := range len(list) {
		switch c := list[i]; {
		case escaped:
			escaped = false
		case quoted && c == '\\':
			escaped = true
		case c == '"':
			quoted = !quoted
		case c == ',' && !quoted:
			add(list[begin:i])
			begin = i + 1
		}
	}
	add(list[begin:])
	return found
}
