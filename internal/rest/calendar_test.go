package rest_test

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/scheduler-service/scheduler/api"
	"github.com/scheduler-service/scheduler/internal/calendar"
	"github.com/scheduler-service/scheduler/internal/identity"
)

// holidays is an iCalendar file that nothing is wrong with.
const holidays = "BEGIN:VCALENDAR\r\nBEGIN:VEVENT\r\nSUMMARY:Christmas\r\nDTSTART;VALUE=DATE:20261225\r\nDTEND;VALUE=DATE:20261227\r\nRRULE:FREQ=YEARLY\r\nEND:VEVENT\r\n" +
	"BEGIN:VEVENT\r\nDTSTART:20261127T180000\r\nDTEND:20261130T060000\r\nEND:VEVENT\r\nEND:VCALENDAR\r\n"

// details writes an answer's details as "field rule", sorted.
func details(t *testing.T, got answer) []string {
	t.Helper()
	var fields []string
	for _, d := range problem(t, got).Error.Details {
		fields = append(fields, d.Field+" "+d.Rule)
	}
	slices.Sort(fields)
	return fields
}

func TestTheLifeOfACalendar(t *testing.T) {
	t.Parallel()
	b := setup(t)
	token := b.token(t, b.ours, identity.Developer)
	do := func(method, path, body string, header ...string) answer {
		r := request{method: method, path: base + "/calendars" + path, token: token, body: body, header: map[string]string{}}
		for i := 0; i+1 < len(header); i += 2 {
			r.header[header[i]] = header[i+1]
		}
		return b.do(t, r)
	}
	got := do("POST", "", `{"name":"holidays","description":"closed","timezone":"Asia/Tokyo","days":[{"start":"2026-12-24","end":"2026-12-26","yearly":true},{"start":"2026-11-27T18:00","end":"2026-11-30T06:00"},{"start":"2026-04-06"}]}`)
	made := read[api.Calendar](t, got, http.StatusCreated)
	path := "/" + made.ID.String()
	if got.header.Get("Location") != base+"/calendars"+path || !tagged(got, 1) {
		t.Errorf("the headers are %v", got.header)
	}
	want := map[string]any{
		"name": "holidays", "description": "closed", "timezone": "Asia/Tokyo", "version": 1.0, "tenantId": b.ours.TenantID.String(), "days": []any{
			map[string]any{"start": "2026-12-24", "end": "2026-12-26", "yearly": true},
			map[string]any{"start": "2026-11-27T18:00:00", "end": "2026-11-30T06:00:00", "yearly": false},
			map[string]any{"start": "2026-04-06", "end": "2026-04-06", "yearly": false},
		},
	}
	shown := read[map[string]any](t, do("GET", path, ""), http.StatusOK)
	for _, name := range []string{"id", "createdAt", "updatedAt"} {
		delete(shown, name)
	}
	if diff := cmp.Diff(want, shown); diff != "" {
		t.Errorf("the calendar differs (-want +got):\n%s", diff)
	}
	// A calendar that was read may be sent again: it stays the same.
	again := fmt.Sprintf(`{"name":"holidays","timezone":"Asia/Tokyo","days":%s}`, got.body[strings.Index(got.body, `"days":`)+7:strings.Index(got.body, `]`)+1])
	put := read[api.Calendar](t, do("PUT", path, again, "If-Match", `"1"`), http.StatusOK)
	if diff := cmp.Diff(made.Days, put.Days); diff != "" || put.Version != 2 || put.Description != "" {
		t.Errorf("sent again it is version %d with %q and differs (-before +after):\n%s", put.Version, put.Description, diff)
	}
	for _, stale := range []string{`"1"`, `"3"`, `W/"2"`, `"x"`} {
		refused(t, do("PUT", path, again, "If-Match", stale), http.StatusPreconditionFailed, "PRECONDITION_FAILED")
	}
	// Names are the tenant's own.
	refused(t, do("POST", "", `{"name":"holidays","days":[]}`), http.StatusConflict, "CONFLICT")
	other := read[api.Calendar](t, do("POST", "", `{"name":"Holidays","days":[]}`), http.StatusCreated)
	refused(t, do("PUT", "/"+other.ID.String(), `{"name":"holidays","days":[]}`), http.StatusConflict, "CONFLICT")
	theirs := b.do(t, request{method: "POST", path: base + "/calendars", token: b.token(t, b.theirs, identity.Developer), body: `{"name":"holidays","days":[]}`})
	read[api.Calendar](t, theirs, http.StatusCreated)
	// One request, repeated.
	first := do("POST", "", `{"name":"once","days":[]}`, "Idempotency-Key", "k")
	if second := do("POST", "", `{"name":"once","days":[]}`, "Idempotency-Key", "k"); first.body != second.body || second.header.Get("Idempotent-Replayed") != "true" {
		t.Errorf("%s\nand then %d %s", first.body, second.status, second.body)
	}
	var listed []string
	for _, page := range b.walk(t, token, base+"/calendars?limit=2") {
		for _, id := range page {
			listed = append(listed, id.String())
		}
	}
	if diff := cmp.Diff([]string{read[api.Calendar](t, first, http.StatusCreated).ID.String(), other.ID.String(), made.ID.String()}, listed); diff != "" {
		t.Errorf("the list differs (-want +got):\n%s", diff)
	}
	list := read[api.CalendarPage](t, do("GET", "", ""), http.StatusOK)
	if last := list.Items[2]; last.DayCount != 3 || last.Name != "holidays" || last.Version != 2 {
		t.Errorf("the summary is %+v", last)
	}
	if got := do("DELETE", path, ""); got.status != http.StatusNoContent || got.body != "" {
		t.Errorf("deleted: %d %s", got.status, got.body)
	}
	for _, method := range []string{"GET", "DELETE"} {
		refused(t, do(method, path, ""), http.StatusNotFound, "CALENDAR_NOT_FOUND")
	}
	refused(t, do("PUT", path, again), http.StatusNotFound, "CALENDAR_NOT_FOUND")
}

func TestBadCalendarsAreNamed(t *testing.T) {
	t.Parallel()
	b := setup(t)
	token := b.token(t, b.ours, identity.Developer)
	kept := b.makeCalendar(t, b.ours, calendar.Day{Start: "2026-12-25"})
	before := b.snapshot(t)
	for _, test := range []struct {
		name, body string
		want       []string
	}{
		{"nothing", `{}`, []string{"days required", "name required"}},
		{"everything at once", `{"name":" ","timezone":"Mars/Olympus","days":[{"start":"2026-02-30"},{"end":"2026-01-01"}],"colour":"x"}`, []string{"colour unknown", "days[1].start required", "name bounds", "timezone zone"}},
		{"days that do not exist", `{"name":"a","days":[{"start":"2026-02-30"},{"start":"2026-01-01","end":"2025-02-29T09:00"},{"start":"2026-01-01T25:00"}]}`, []string{"days[0].start pattern", "days[1].end pattern", "days[2].start pattern"}},
		{"days with an offset", `{"name":"a","days":[{"start":"2026-01-01T00:00:00Z"},{"start":"2026-01-01T00:00+08:00"}]}`, []string{"days[0].start pattern", "days[1].start pattern"}},
		{"an end before its start", `{"name":"a","days":[{"start":"2026-01-02","end":"2026-01-01"}]}`, []string{"days[0].end order"}},
		{"far away", `{"name":"a","days":[{"start":"1969-12-31"},{"start":"2499-12-31","end":"2500-01-01"}]}`, []string{"days[0] range", "days[1] range"}},
		{"yearly for a year", `{"name":"a","days":[{"start":"2026-01-01","end":"2026-12-31","yearly":true}]}`, []string{"days[0] range"}},
		{"too many", `{"name":"a","days":[` + strings.Repeat(`{"start":"2026-01-01"},`, 1000) + `{"start":"2026-01-01"}]}`, []string{"days maxItems"}},
		{"a zone that is ours", `{"name":"a","timezone":"Local","days":[]}`, []string{"timezone zone"}},
		{"null", `{"name":"a","days":null,"timezone":null,"description":null}`, []string{"days type", "description type", "timezone type"}},
		{"a day that is a text", `{"name":"a","days":["2026-01-01"]}`, []string{"days[0] type"}},
		{"a stranger in a day", `{"name":"a","days":[{"start":"2026-01-01","until":"x","yearly":"yes"}]}`, []string{"days[0].until unknown", "days[0].yearly type"}},
	} {
		for _, r := range []request{{method: "POST", path: base + "/calendars"}, {method: "PUT", path: base + "/calendars/" + kept.ID.String()}} {
			r.token, r.body = token, test.body
			got := b.do(t, r)
			refused(t, got, http.StatusBadRequest, "VALIDATION_FAILED")
			if diff := cmp.Diff(test.want, details(t, got)); diff != "" {
				t.Errorf("%s %s: details differ (-want +got):\n%s", r.method, test.name, diff)
			}
		}
	}
	if diff := cmp.Diff(before, b.snapshot(t)); diff != "" {
		t.Errorf("something was stored (-before +after):\n%s", diff)
	}
}

func TestImportACalendar(t *testing.T) {
	t.Parallel()
	b := setup(t)
	token := b.token(t, b.ours, identity.Developer)
	send := func(query, media, body string) answer {
		return b.do(t, request{method: "POST", path: base + "/calendars/import?" + query, token: token, body: body, header: map[string]string{"Content-Type": media, "Idempotency-Key": "k" + query}})
	}
	got := send("name=%E4%BC%91%E6%97%A5&timezone=Asia%2FTokyo", "text/calendar; charset=utf-8", holidays)
	made := read[api.Calendar](t, got, http.StatusCreated)
	var days []string
	for _, d := range made.Days {
		days = append(days, fmt.Sprint(d.Start, " ", *d.End, " ", *d.Yearly))
	}
	if diff := cmp.Diff([]string{"2026-12-25 2026-12-26 true", "2026-11-27T18:00:00 2026-11-30T06:00:00 false"}, days); diff != "" || made.Name != "休日" || made.Timezone != "Asia/Tokyo" {
		t.Errorf("%q in %s differs (-want +got):\n%s", made.Name, made.Timezone, diff)
	}
	if again := send("name=%E4%BC%91%E6%97%A5&timezone=Asia%2FTokyo", "text/calendar", holidays); again.body != got.body || again.header.Get("Idempotent-Replayed") != "true" {
		t.Errorf("repeated: %d %s", again.status, again.body)
	}
	refused(t, b.do(t, request{
		method: "POST", path: base + "/calendars/import?name=other", token: token, body: holidays,
		header: map[string]string{"Content-Type": "text/calendar", "Idempotency-Key": "kname=%E4%BC%91%E6%97%A5&timezone=Asia%2FTokyo"},
	}), http.StatusUnprocessableEntity, "IDEMPOTENCY_KEY_REUSED")

	before := b.snapshot(t)
	for _, test := range []struct {
		name, query, body string
		want              []string
		says              string
	}{
		{"no name", "timezone=UTC", holidays, []string{"name required"}, ""},
		{"a blank name", "name=%20", holidays, []string{"name bounds"}, ""},
		{"a NUL in the name", "name=a%00b", holidays, []string{"name pattern"}, ""},
		{"no zone", "name=a&timezone=Nowhere", holidays, []string{"timezone zone"}, ""},
		{"nothing", "name=a", "", []string{"body required"}, ""},
		{"blanks", "name=a", " \r\n ", []string{"body required"}, ""},
		{"no calendar", "name=a", "hello", []string{"body icalendar"}, "line 1: "},
		{"what is not supported, by its line", "name=a", strings.Replace(holidays, "FREQ=YEARLY", "FREQ=HOURLY", 1), []string{"body icalendar"}, "RRULE in line 6: FREQ=HOURLY"},
		{"lines count from the first", "name=a", "\r\n\r\n" + strings.Replace(holidays, "FREQ=YEARLY", "FREQ=DAILY", 1), []string{"body icalendar"}, "RRULE in line 8: "},
		{"an exception by a rule", "name=a", strings.Replace(holidays, "RRULE:FREQ=YEARLY", "EXRULE:FREQ=DAILY", 1), []string{"body icalendar"}, "line 6: "},
		{"cut", "name=a", holidays[:len(holidays)-20], []string{"body icalendar"}, "line "},
		{"no event", "name=a", "BEGIN:VCALENDAR\nEND:VCALENDAR\n", []string{"body icalendar"}, "no event"},
		{"a day far away", "name=a", strings.ReplaceAll(holidays, "2026", "1926"), []string{"body range", "body range"}, "days[0]"},
		{"a stray parameter", "name=a&url=http://10.0.0.1/", holidays, []string{"url unknown"}, ""},
		{"the name twice", "name=a&name=b", holidays, []string{"name duplicate"}, ""},
	} {
		got := send(test.query, "text/calendar", test.body)
		refused(t, got, http.StatusBadRequest, "VALIDATION_FAILED")
		if diff := cmp.Diff(test.want, details(t, got)); diff != "" || !strings.Contains(got.body, test.says) {
			t.Errorf("%s: %s\ndetails differ (-want +got):\n%s", test.name, got.body, diff)
		}
	}
	for _, media := range []string{"application/json", "text/plain", "", "text/calendar; charset=utf-16"} {
		refused(t, send("name=a", media, holidays), http.StatusUnsupportedMediaType, "UNSUPPORTED_MEDIA_TYPE")
	}
	refused(t, send("name=a", "text/calendar", holidays+strings.Repeat(" ", 1<<20)), http.StatusRequestEntityTooLarge, "BODY_TOO_LARGE")
	if diff := cmp.Diff(before, b.snapshot(t)); diff != "" {
		t.Errorf("something was stored (-before +after):\n%s", diff)
	}
}

// A file is imported again into the same calendar: its days change, with the names of
// the holidays, and nothing else; its jobs are rescheduled.
func TestImportACalendarAgain(t *testing.T) {
	t.Parallel()
	b := setup(t)
	token := b.token(t, b.ours, identity.Developer)
	old := b.makeCalendar(t, b.ours, calendar.Day{Start: "2026-12-25", Name: "Christmas"})
	path := base + "/calendars/" + old.ID.String()
	send := func(body string, header ...string) answer {
		h := map[string]string{"Content-Type": "text/calendar"}
		if len(header) == 2 {
			h[header[0]] = header[1]
		}
		return b.do(t, request{method: "PUT", path: path + "/import", token: token, body: body, header: h})
	}
	file := "BEGIN:VCALENDAR\nBEGIN:VEVENT\nSUMMARY:Labour Day\nDTSTART;VALUE=DATE:20270501\nEND:VEVENT\nEND:VCALENDAR\n"
	refused(t, send(file, "If-Match", `"7"`), http.StatusPreconditionFailed, "PRECONDITION_FAILED")
	refused(t, send("BEGIN:VCALENDAR\nEND:VCALENDAR\n"), http.StatusBadRequest, "VALIDATION_FAILED")
	made := read[api.Calendar](t, send(file, "If-Match", `"1"`), http.StatusOK)
	if made.Name != old.Name || made.Timezone != old.Timezone || made.Version != 2 || len(made.Days) != 1 || made.Days[0].Start != "2027-05-01" || *made.Days[0].Name != "Labour Day" {
		t.Errorf("imported again: %+v", made)
	}
	if got := read[api.Calendar](t, b.do(t, request{method: "GET", path: path, token: token}), http.StatusOK); *got.Days[0].Name != "Labour Day" {
		t.Errorf("stored: %+v", got)
	}
	path = base + "/calendars/" + uuid.NewString()
	refused(t, send(file), http.StatusNotFound, "CALENDAR_NOT_FOUND")
}

// bound makes a job that a calendar bounds.
func (b *bundle) bound(t *testing.T, token, members string, named ...string) answer {
	t.Helper()
	var list []string
	for i := 0; i+1 < len(named); i += 2 {
		list = append(list, fmt.Sprintf(`{"calendarId":%q,"mode":%q}`, named[i], named[i+1]))
	}
	return b.do(t, request{method: "POST", path: base + "/jobs", token: token, body: more(members + `,"calendars":[` + strings.Join(list, ",") + `]`)})
}

func TestJobsNameCalendars(t *testing.T) {
	t.Parallel()
	b := setup(t)
	token := b.token(t, b.ours, identity.Developer)
	always := calendar.Day{Start: "1970-01-01", End: "2499-12-31"}
	closed := b.makeCalendar(t, b.ours, calendar.Day{Start: "2090-01-01", End: "2090-01-03"}).ID.String()
	all := b.makeCalendar(t, b.ours, always).ID.String()
	none := b.makeCalendar(t, b.ours).ID.String()
	foreign := b.makeCalendar(t, b.theirs, calendar.Day{Start: "2090-01-01"}).ID.String()

	const daily = `"cronExpression":"@daily","startDate":"2090-01-01T00:00:00Z"`
	made := read[api.Job](t, b.bound(t, token, daily, closed, "exclude", all, "include"), http.StatusCreated)
	if at := *made.NextExecutionAt; !at.Equal(time.Date(2090, 1, 4, 0, 0, 0, 0, time.UTC)) || len(made.Calendars) != 2 || made.Calendars[1].Mode != "include" {
		t.Errorf("the job is due at %s by %v", at, made.Calendars)
	}
	seen := read[api.SchedulePreview](t, b.do(t, request{method: "GET", path: base + "/jobs/" + made.ID.String() + "/schedule?count=3", token: token}), http.StatusOK)
	if diff := cmp.Diff([]string{
		"- 2090-01-01T00:00:00  calendar", "- 2090-01-02T00:00:00  calendar", "- 2090-01-03T00:00:00  calendar",
		"2090-01-04T00:00:00Z 2090-01-04T00:00:00", "2090-01-05T00:00:00Z 2090-01-05T00:00:00", "2090-01-06T00:00:00Z 2090-01-06T00:00:00",
	}, lines(seen.Occurrences)); diff != "" {
		t.Errorf("the preview differs (-want +got):\n%s", diff)
	}

	path := base + "/jobs/" + made.ID.String()
	due := b.makeJob(t, b.ours).ID // due since a minute ago: what it names counts all the same
	if _, err := b.engine.Pool().Exec(t.Context(), "UPDATE scheduled_jobs SET next_execution_at = now() - interval '1 minute' WHERE id = $1", due); err != nil {
		t.Fatal(err)
	}
	before := b.snapshot(t)
	for _, test := range []struct {
		name  string
		named []string
		want  []string
	}{
		{"one that excludes everything", []string{all, "exclude"}, []string{"calendars never"}},
		{"one that includes nothing", []string{none, "include"}, []string{"calendars never"}},
		{"two that leave nothing", []string{closed, "include", closed, "exclude"}, []string{"calendars never"}},
		{"unknown and another tenant's", []string{uuid.NewString(), "exclude", closed, "exclude", foreign, "include"}, []string{"calendars[0].calendarId exists", "calendars[2].calendarId exists"}},
	} {
		var list []string
		for i := 0; i+1 < len(test.named); i += 2 {
			list = append(list, fmt.Sprintf(`{"calendarId":%q,"mode":%q}`, test.named[i], test.named[i+1]))
		}
		body := more(daily + `,"calendars":[` + strings.Join(list, ",") + `]`)
		for _, r := range []request{
			{method: "POST", path: base + "/jobs"},
			{method: "PUT", path: path},
			{method: "PUT", path: base + "/jobs/" + due.String()},
			{method: "POST", path: base + "/jobs/validate"},
			{method: "POST", path: path + "/validate"},
		} {
			r.token, r.body = token, body
			got := b.do(t, r)
			refused(t, got, http.StatusBadRequest, "VALIDATION_FAILED")
			if diff := cmp.Diff(test.want, details(t, got)); diff != "" {
				t.Errorf("%s %s, %s: details differ (-want +got):\n%s", r.method, r.path, test.name, diff)
			}
		}
	}
	// Another tenant's answers byte for byte as one that is not there, and so
	// it does together with other faults.
	for _, members := range []string{daily, `"cronExpression":"99 * * * * *"`} {
		a, z := b.bound(t, token, members, foreign, "exclude"), b.bound(t, token, members, uuid.NewString(), "exclude")
		if diff := cmp.Diff(problem(t, a).Error, problem(t, z).Error); a.status != http.StatusBadRequest || diff != "" {
			t.Errorf("another tenant's and an unknown one differ: %d\n%s", a.status, diff)
		}
	}
	if diff := cmp.Diff(before, b.snapshot(t)); diff != "" {
		t.Errorf("something was stored (-before +after):\n%s", diff)
	}
}

func TestACalendarInUseIsNotDeleted(t *testing.T) {
	t.Parallel()
	b := setup(t)
	token := b.token(t, b.ours, identity.Developer)
	used := b.makeCalendar(t, b.ours, calendar.Day{Start: "2090-01-01"}).ID.String()
	remove := func() answer {
		return b.do(t, request{method: "DELETE", path: base + "/calendars/" + used, token: token})
	}
	var jobs []string
	for i := range 3 {
		jobs = append(jobs, read[api.Job](t, b.bound(t, token, fmt.Sprintf(`"priority":%d`, i), used, "exclude"), http.StatusCreated).ID.String())
	}
	for i, want := range []string{"3 jobs use", "2 jobs use", "1 job uses"} {
		if e := refused(t, remove(), http.StatusConflict, "CONFLICT"); !strings.HasPrefix(e.Error.Message, want) {
			t.Errorf("the message is %q, want %q", e.Error.Message, want)
		}
		if got := b.do(t, request{method: "DELETE", path: base + "/jobs/" + jobs[i], token: token}); got.status != http.StatusNoContent {
			t.Fatalf("delete a job: %d %s", got.status, got.body)
		}
	}
	if got := remove(); got.status != http.StatusNoContent {
		t.Errorf("with deleted jobs only: %d %s", got.status, got.body)
	}
}

func TestAnEditReschedulesTheJobs(t *testing.T) {
	t.Parallel()
	b := setup(t)
	token := b.token(t, b.ours, identity.Developer)
	used := b.makeCalendar(t, b.ours, calendar.Day{Start: "2090-01-01"}).ID.String()
	const daily = `"cronExpression":"@daily","startDate":"2090-01-01T00:00:00Z"`
	post := func(path string) {
		t.Helper()
		read[api.Job](t, b.do(t, request{method: "POST", path: path, token: token}), http.StatusOK)
	}
	create := func(members, mode string) string {
		return base + "/jobs/" + read[api.Job](t, b.bound(t, token, members, used, mode), http.StatusCreated).ID.String()
	}
	active, paused, due, byHand := create(daily, "exclude"), create(daily, "exclude"), create(daily, "exclude"), create(`"priority":1`, "exclude")
	once := create(`"runAt":"2090-01-02T00:00:00Z"`, "exclude")
	post(paused + "/pause")
	past := b.now.Add(-time.Minute).UTC().Truncate(time.Microsecond)
	if _, err := b.engine.Pool().Exec(t.Context(), "UPDATE scheduled_jobs SET next_execution_at = $1 WHERE id = $2", past, due[len(base+"/jobs/"):]); err != nil {
		t.Fatal(err)
	}
	get := func(path string) api.Job {
		t.Helper()
		return read[api.Job](t, b.do(t, request{method: "GET", path: path, token: token}), http.StatusOK)
	}
	edit := func(days string) answer {
		return b.do(t, request{method: "PUT", path: base + "/calendars/" + used, token: token, body: `{"name":"x","days":[` + days + `]}`})
	}
	january := func(day int) time.Time { return time.Date(2090, 1, day, 0, 0, 0, 0, time.UTC) }

	was := get(active)
	read[api.Calendar](t, edit(`{"start":"2090-01-01"}`), http.StatusOK) // another name only
	if now := get(active); !now.UpdatedAt.Equal(was.UpdatedAt) {
		t.Error("another name of the calendar touches its jobs")
	}
	read[api.Calendar](t, edit(`{"start":"2090-01-01"},{"start":"2090-01-03","end":"2090-01-09"}`), http.StatusOK)
	if at := *get(active).NextExecutionAt; !at.Equal(january(2)) {
		t.Errorf("the active job is due at %s", at)
	}
	// It never runs again: refused, it is named, and nothing changed.
	before := b.snapshot(t)
	e := refused(t, edit(`{"start":"2090-01-01","end":"2090-01-09"}`), http.StatusConflict, "CONFLICT")
	if id := once[len(base+"/jobs/"):]; !strings.Contains(e.Error.Message, id) || !strings.Contains(e.Error.Message, `"a"`) || strings.Contains(e.Error.Message, active[len(base+"/jobs/"):]) {
		t.Errorf("the message is %q", e.Error.Message)
	}
	if diff := cmp.Diff(before, b.snapshot(t)); diff != "" {
		t.Errorf("something was stored (-before +after):\n%s", diff)
	}
	if got := b.do(t, request{method: "DELETE", path: once, token: token}); got.status != http.StatusNoContent {
		t.Fatal(got.body)
	}
	read[api.Calendar](t, edit(`{"start":"2090-01-01","end":"2090-01-09"}`), http.StatusOK)
	now := get(active)
	if at := *now.NextExecutionAt; !at.Equal(january(10)) || now.Version != 1 || !now.UpdatedAt.After(was.UpdatedAt) {
		t.Errorf("the active job is due at %s, version %d, updated at %s", at, now.Version, now.UpdatedAt)
	}
	if at := *get(due).NextExecutionAt; !at.Equal(past) {
		t.Errorf("what was due at %s is due at %s", past, at)
	}
	if get(byHand).NextExecutionAt != nil || get(byHand).Status != "active" {
		t.Error("a job without a schedule got a scheduled time")
	}
	post(paused + "/resume")
	if at := *get(paused).NextExecutionAt; !at.Equal(january(10)) {
		t.Errorf("the resumed job is due at %s", at)
	}
}

// One change moves a bounded number of jobs.
func TestACalendarOfTooManyJobs(t *testing.T) {
	t.Parallel()
	b := setup(t)
	token := b.token(t, b.ours, identity.Developer)
	used := b.makeCalendar(t, b.ours, calendar.Day{Start: "2090-01-01"}).ID.String()
	one := read[api.Job](t, b.bound(t, token, `"cronExpression":"@daily","startDate":"2090-01-01T00:00:00Z"`, used, "exclude"), http.StatusCreated).ID
	copies := func(n int, one uuid.UUID) {
		t.Helper()
		err := pgx.BeginFunc(t.Context(), b.db.Pool(), func(tx pgx.Tx) error {
			if _, err := tx.Exec(t.Context(), "SELECT set_config('app.tenant_id', $1, true)", b.ours.TenantID.String()); err != nil {
				return err
			}
			_, err := tx.Exec(t.Context(), `INSERT INTO scheduled_jobs SELECT (jsonb_populate_record(j, jsonb_build_object('id', gen_random_uuid()))).*
				FROM scheduled_jobs j, generate_series(1, $1) WHERE j.id = $2`, n, one)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	edit := func(days string) answer {
		return b.do(t, request{method: "PUT", path: base + "/calendars/" + used, token: token, body: `{"name":"` + used + `","days":[` + days + `]}`})
	}
	copies(999, one)
	read[api.Calendar](t, edit(`{"start":"2090-01-01","end":"2090-01-02"}`), http.StatusOK)
	var moved int
	if err := b.engine.Pool().QueryRow(t.Context(), "SELECT count(*) FROM scheduled_jobs WHERE next_execution_at = '2090-01-03 00:00:00+00'").Scan(&moved); err != nil || moved != 1000 {
		t.Errorf("%d jobs moved, want 1000 (%v)", moved, err)
	}
	copies(1, one)
	e := refused(t, edit(`{"start":"2090-01-01"}`), http.StatusConflict, "CONFLICT")
	if !strings.Contains(e.Error.Message, "1000") {
		t.Errorf("the message is %q", e.Error.Message)
	}
	read[api.Calendar](t, edit(`{"start":"2090-01-01","end":"2090-01-02"}`), http.StatusOK) // another name only

	// Few jobs with very many days are as much work.
	days := slices.Repeat([]calendar.Day{{Start: "2026-12-25", Yearly: true}}, 1000)
	var named []string
	for range 10 {
		used = b.makeCalendar(t, b.ours, days...).ID.String()
		named = append(named, used, "exclude")
	}
	copies(300, read[api.Job](t, b.bound(t, token, `"cronExpression":"@daily"`, named...), http.StatusCreated).ID)
	if e := refused(t, edit(`{"start":"2090-01-01"},`+strings.TrimSuffix(strings.Repeat(`{"start":"2026-12-25"},`, 999), ",")), http.StatusConflict, "CONFLICT"); !strings.Contains(e.Error.Message, "3010000 days") {
		t.Errorf("the message is %q", e.Error.Message)
	}
}
