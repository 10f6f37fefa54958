package importer

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// shorthands are the words of systemd.time(7) for calendar events.
var shorthands = map[string]string{
	"minutely": "*-*-* *:*:00", "hourly": "*-*-* *:00:00", "daily": "*-*-* 00:00:00", "monthly": "*-*-01 00:00:00",
	"weekly": "Mon *-*-* 00:00:00", "yearly": "*-01-01 00:00:00", "annually": "*-01-01 00:00:00", "anually": "*-01-01 00:00:00",
	"quarterly": "*-01,04,07,10-01 00:00:00", "semiannually": "*-01,07-01 00:00:00", "biannually": "*-01,07-01 00:00:00",
}

// stopwatches are settings that count from something that a job does not know.
var stopwatches = []string{"OnActiveSec", "OnBootSec", "OnStartupSec", "OnUnitInactiveSec", "OnClockChange", "OnTimezoneChange"}

// readTimer reads a timer unit of systemd. Each OnCalendar is a job of its own.
func readTimer(text, zone string, f *found) {
	shared := Entry{Zone: zone, Retries: -1, Misfire: "skip"}
	name, number := "", 0
	for line := range strings.Lines(text) {
		number++
		m := setting.FindStringSubmatch(strings.TrimSpace(line))
		if m == nil {
			continue
		}
		switch key, value := m[1], m[2]; key {
		case "Description":
			name = value
		case "Unit":
			if name == "" {
				name = value
			}
			f.note(number, "the unit %s is left out", value)
		case "Persistent":
			if slices.Contains([]string{"true", "yes", "on", "1"}, strings.ToLower(value)) {
				shared.Misfire = "fire_once"
			}
		case "RandomizedDelaySec":
			d, err := timespan(value)
			if err != nil {
				f.left(number, "RandomizedDelaySec: %v", err)
				return
			}
			shared.Jitter = d
		}
	}
	readTimes(text, shared, name, f)
}

// readTimes makes the entries of a timer, once its other settings are known.
func readTimes(text string, shared Entry, name string, f *found) {
	number := 0
	for line := range strings.Lines(text) {
		number++
		m := setting.FindStringSubmatch(strings.TrimSpace(line))
		if m == nil {
			continue
		}
		e := shared
		e.Line, e.Name = number, name
		var err error
		switch key, value := m[1], m[2]; {
		case slices.Contains(stopwatches, key):
			f.left(number, "%s counts from what a job does not know", key)
			continue
		case key == "OnUnitActiveSec":
			e.Interval, err = timespan(value)
			e.Misfire = "" // it is no calendar's
		case key == "OnCalendar":
			e.Cron, e.Zone, err = calendarEvent(value, shared.Zone)
		default:
			continue
		}
		if err != nil {
			f.left(number, "%s: %v", m[1], err)
			continue
		}
		f.add(e)
	}
}

// units are those of systemd.time(7) that have one length.
var units = map[string]time.Duration{
	"": time.Second, "s": time.Second, "sec": time.Second, "second": time.Second, "seconds": time.Second,
	"m": time.Minute, "min": time.Minute, "minute": time.Minute, "minutes": time.Minute, "ms": time.Millisecond, "msec": time.Millisecond,
	"h": time.Hour, "hr": time.Hour, "hour": time.Hour, "hours": time.Hour, "d": 24 * time.Hour, "day": 24 * time.Hour, "days": 24 * time.Hour,
	"w": 7 * 24 * time.Hour, "week": 7 * 24 * time.Hour, "weeks": 7 * 24 * time.Hour,
}

var spanPart = regexp.MustCompile(`^\s*([0-9]{1,9})\s*([a-zA-Z]*)`)

// timespan reads "1h 30min".
func timespan(text string) (total time.Duration, err error) {
	rest := strings.TrimSpace(text)
	if rest == "" {
		return 0, errors.New("it is empty")
	}
	for rest != "" {
		m := spanPart.FindStringSubmatch(rest)
		if m == nil {
			return 0, fmt.Errorf("%q is no time span that can be read", text)
		}
		unit, known := units[m[2]]
		n, err := strconv.Atoi(m[1])
		if err != nil || !known {
			return 0, fmt.Errorf("%q has a unit that has no one length", text)
		}
		total += time.Duration(n) * unit
		rest = strings.TrimSpace(rest[len(m[0]):])
	}
	return total, nil
}

var (
	setting     = regexp.MustCompile(`^([A-Za-z]+)\s*=\s*(.*)$`) // a line of a unit file
	systemdYear = regexp.MustCompile(`^(\*|[0-9]{4}([,/]|\.\.|$))`)
	systemdDays = []string{"MON", "TUE", "WED", "THU", "FRI", "SAT", "SUN"}
)

// calendarEvent reads an OnCalendar expression: [weekdays] [date] [time] [zone].
func calendarEvent(text, zone string) (cron, in string, err error) {
	if long, known := shorthands[strings.ToLower(strings.TrimSpace(text))]; known {
		text = long
	}
	parts := strings.Fields(text)
	weekdays, dates, clock := "*", "", ""
	for i, part := range parts {
		switch {
		case i == len(parts)-1 && i > 0 && isZone(part):
			zone = part
		case strings.Contains(part, ":"):
			clock = part
		case part[0] >= 'A' && part[0] <= 'z':
			if weekdays, err = systemdWeekdays(part); err != nil {
				return "", "", err
			}
		case dates == "":
			dates = part
		default:
			return "", "", fmt.Errorf("%q cannot be read", part)
		}
	}
	times, err := systemdTime(clock, dates == "" && weekdays == "*")
	if err != nil {
		return "", "", err
	}
	year, months, days, err := systemdDate(dates)
	if err != nil {
		return "", "", err
	}
	if days != "*" && weekdays != "*" { // both have to fit
		if days, weekdays, err = nthWeekday(days, weekdays); err != nil {
			return "", "", err
		}
	}
	fields := []string{times[2], times[1], times[0], days, months, weekdays}
	if year != "*" {
		fields = append(fields, year)
	}
	return strings.Join(fields, " "), zone, nil
}

func isZone(text string) bool {
	if text == "UTC" || strings.Contains(text, "/") && text[0] >= 'A' && text[0] <= 'Z' {
		_, err := time.LoadLocation(text)
		return err == nil
	}
	return false
}

// nthWeekday says a weekday within seven days of the month as the nth of the month.
func nthWeekday(days, weekday string) (string, string, error) {
	nth := slices.Index([]string{"1-7", "8-14", "15-21", "22-28"}, days)
	if nth < 0 || len(weekday) != 1 {
		return "", "", errors.New("the day has to fit weekday and date, which a job cannot say but for one weekday in 1..7, 8..14, 15..21 or 22..28")
	}
	return "*", fmt.Sprintf("%s#%d", weekday, nth+1), nil
}

// systemdWeekdays reads Mon..Fri,Sun.
func systemdWeekdays(text string) (string, error) {
	v := values{kind: kind{name: "day of week", min: 0, max: 6}}
	day := func(text string) (int, error) {
		if len(text) >= 3 {
			if at := slices.Index(systemdDays, strings.ToUpper(text[:3])); at >= 0 && (len(text) == 3 || strings.HasSuffix(strings.ToLower(text), "day")) {
				return at, nil
			}
		}
		return 0, fmt.Errorf("%q is no weekday", text)
	}
	for item := range strings.SplitSeq(text, ",") {
		from, to, ranged := strings.Cut(item, "..")
		if !ranged {
			if from, to, ranged = strings.Cut(item, "-"); !ranged {
				to = from
			}
		}
		first, err := day(from)
		if err != nil {
			return "", err
		}
		last, err := day(to)
		if err != nil {
			return "", err
		}
		if last < first {
			return "", fmt.Errorf("%q runs backwards", item)
		}
		for at := first; at <= last; at++ {
			v.set |= 1 << ((at + 1) % 7) // Sunday is 0 here
		}
	}
	return v.String(), nil
}

// systemdDate reads [[year-]month-]day; nothing is every day.
func systemdDate(text string) (year, months, days string, err error) {
	if text == "" {
		return "*", "*", "*", nil
	}
	if strings.Contains(text, "~") {
		head, last, _ := strings.Cut(text, "~")
		if n, err := strconv.Atoi(last); err != nil || n != 1 {
			return "", "", "", fmt.Errorf("%q counts days from the end of the month, which a job can say only of the last", text)
		}
		year, months, _, err = systemdDate(head + "-1")
		return year, months, "L", err
	}
	parts := strings.Split(text, "-")
	switch len(parts) {
	case 2:
		parts = append([]string{"*"}, parts...)
	case 3:
	default:
		return "", "", "", fmt.Errorf("%q is no date that can be read", text)
	}
	if year = parts[0]; year != "*" {
		if !systemdYear.MatchString(year) {
			return "", "", "", fmt.Errorf("%q is no year that can be read", year)
		}
		year = strings.ReplaceAll(year, "..", "-")
	}
	if months, err = systemdField(month, parts[1]); err != nil {
		return "", "", "", err
	}
	days, err = systemdField(dayOfMonth, parts[2])
	return year, months, days, err
}

// systemdTime reads hour:minute[:second]; nothing is midnight.
func systemdTime(text string, alone bool) (fields [3]string, err error) {
	if text == "" {
		if alone {
			return fields, errors.New("it is empty")
		}
		return [3]string{"0", "0", "0"}, nil
	}
	parts := strings.Split(text, ":")
	if len(parts) == 2 {
		parts = append(parts, "0")
	}
	if len(parts) != 3 {
		return fields, fmt.Errorf("%q is no time that can be read", text)
	}
	for i, k := range []kind{hour, minute, second} {
		if fields[i], err = systemdField(k, parts[i]); err != nil {
			return fields, err
		}
	}
	return fields, nil
}

// systemdField reads a list of values, ranges (a..b) and repetitions (a/b).
func systemdField(k kind, text string) (string, error) {
	if strings.Contains(text, "-") || strings.Contains(text, ".") && !strings.Contains(text, "..") {
		return "", fmt.Errorf("%s: %q cannot be read", k.name, text)
	}
	v, err := dialect{open: true}.read(k, strings.ReplaceAll(text, "..", "-"))
	if err != nil {
		return "", err
	}
	return v.String(), nil
}
