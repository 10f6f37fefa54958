package notification_test

import (
	"testing"
	"time"

	"github.com/scheduler-service/scheduler/internal/notification"
)

func TestQuietUntil(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ from, to, zone, at, want string }{
		{"22:00", "07:00", "Europe/Berlin", "2026-01-10T20:59:59Z", "2026-01-10T20:59:59Z"},
		{"22:00", "07:00", "Europe/Berlin", "2026-01-10T21:00:00Z", "2026-01-11T06:00:00Z"},
		{"22:00", "07:00", "Europe/Berlin", "2026-01-11T05:59:59Z", "2026-01-11T06:00:00Z"},
		{"22:00", "07:00", "Europe/Berlin", "2026-01-11T06:00:00Z", "2026-01-11T06:00:00Z"},
		{"22:00", "07:00", "Europe/Berlin", "2026-03-28T23:00:00Z", "2026-03-29T05:00:00Z"}, // the clock goes forward
		{"22:00", "07:00", "Europe/Berlin", "2026-10-24T23:00:00Z", "2026-10-25T06:00:00Z"}, // and back
		{"12:00", "13:30", "Asia/Kolkata", "2026-01-10T07:00:00Z", "2026-01-10T08:00:00Z"},
		{"12:00", "13:30", "Asia/Kolkata", "2026-01-10T08:00:00Z", "2026-01-10T08:00:00Z"},
		{"22:00", "07:00", "Nowhere/At_all", "2026-01-10T23:00:00Z", "2026-01-10T23:00:00Z"},
	} {
		at, err := time.Parse(time.RFC3339, test.at)
		if err != nil {
			t.Fatal(err)
		}
		quiet := &notification.Quiet{From: test.from, To: test.to, Zone: test.zone}
		if got := quiet.Until(at).Format(time.RFC3339); got != test.want {
			t.Errorf("%+v at %s: %s, want %s", *quiet, test.at, got, test.want)
		}
	}
}

func TestQuietHoursThatAreRefused(t *testing.T) {
	t.Parallel()
	for _, quiet := range []notification.Quiet{
		{From: "22", To: "07:00", Zone: "UTC"},
		{From: "24:00", To: "07:00", Zone: "UTC"},
		{From: "7:00 ", To: "08:00", Zone: "UTC"},
		{From: "07:00", To: "07:00", Zone: "UTC"},
		{From: "07:00", To: "08:00", Zone: "Local"},
		{From: "07:00", To: "08:00", Zone: "../etc"},
	} {
		spec := notification.Spec{Name: "a", Kind: notification.Email, To: []string{"a@example.com"}, Quiet: &quiet}
		if fields := notification.Validate(spec, nil); len(fields) != 1 {
			t.Errorf("%+v: %v", quiet, fields)
		}
	}
}
