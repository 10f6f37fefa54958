package queue

import (
	"bytes"
	"errors"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"pgregory.net/rapid"
)

// someIDs makes n ids that differ.
func someIDs(n int) []uuid.UUID {
	ids := make([]uuid.UUID, n)
	for i := range ids {
		ids[i] = uuid.New()
	}
	return ids
}

func TestLaneFor(t *testing.T) {
	t.Parallel()
	want := []Lane{Low, Low, Low, Normal, Normal, Normal, Normal, High, High, High}
	for priority, lane := range want {
		if got := LaneFor(priority); got != lane {
			t.Errorf("LaneFor(%d) = %q, want %q", priority, got, lane)
		}
	}
	if got := LaneFor(-1); got != Low {
		t.Errorf("LaneFor(-1) = %q", got)
	}
	if got := LaneFor(10); got != High {
		t.Errorf("LaneFor(10) = %q", got)
	}
}

func TestDecodeRefuses(t *testing.T) {
	t.Parallel()
	id := uuid.New()
	full := func(n int) []byte {
		wire := []byte{codecVersion}
		for _, id := range someIDs(n) {
			wire = append(wire, id[:]...)
		}
		return wire
	}
	tests := []struct {
		name string
		lane Lane
		wire []byte
	}{
		{"nothing", High, nil},
		{"version alone", High, []byte{codecVersion}},
		{"version 0", High, append([]byte{0}, id[:]...)},
		{"version 2", High, append([]byte{2}, id[:]...)},
		{"one byte short", High, full(1)[:16]},
		{"one byte long", High, append(full(1), 0)},
		{"one more than the most", High, full(MaxIDs + 1)},
		{"an id twice", High, slices.Concat([]byte{codecVersion}, id[:], id[:])},
		{"unknown lane", "urgent", full(1)},
		{"json", High, []byte(`{"ids":["x"]}`)},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			if h, err := decode(tc.lane, tc.wire); !errors.Is(err, errHint) {
				t.Fatalf("decode = %v, %v; want it refused", h, err)
			}
		})
	}
	if h, err := decode(Low, full(MaxIDs)); err != nil || len(h.IDs) != MaxIDs {
		t.Fatalf("a full hint is refused: %v", err)
	}
}

func TestEncodeRefusesWhatDecodeWould(t *testing.T) {
	t.Parallel()
	id := uuid.New()
	for _, h := range []Hint{
		{Lane: High},
		{Lane: High, IDs: someIDs(MaxIDs + 1)},
		{Lane: High, IDs: []uuid.UUID{id, id}},
		{Lane: "", IDs: []uuid.UUID{id}},
	} {
		if _, err := h.encode(); !errors.Is(err, errHint) {
			t.Errorf("encode(%q, %d ids): %v", h.Lane, len(h.IDs), err)
		}
	}
}

// FuzzDecode demands that what is accepted is well formed and has one spelling.
func FuzzDecode(f *testing.F) {
	id := uuid.New()
	f.Add([]byte{})
	f.Add([]byte{codecVersion})
	f.Add(append([]byte{codecVersion}, id[:]...))
	f.Add(slices.Concat([]byte{codecVersion}, id[:], id[:]))
	f.Add(bytes.Repeat([]byte{1}, 1+16*MaxIDs))
	f.Add(bytes.Repeat([]byte{1}, 1+16*(MaxIDs+1)))
	f.Fuzz(func(t *testing.T, wire []byte) {
		h, err := decode(Normal, wire)
		if err != nil {
			return
		}
		if len(h.IDs) < 1 || len(h.IDs) > MaxIDs || len(distinct(h.IDs)) != len(h.IDs) {
			t.Fatalf("accepted %d ids", len(h.IDs))
		}
		again, err := h.encode()
		if err != nil || !bytes.Equal(again, wire) {
			t.Fatalf("round trip: %x, %v", again, err)
		}
	})
}

func TestSplitSizes(t *testing.T) {
	t.Parallel()
	tests := []struct{ ids, least, hints, largest int }{
		{0, 1, 0, 0},
		{1, 1, 1, 1},
		{16, 1, 16, 1},
		{17, 1, 9, 2},
		{160, 1, 16, 10},
		{1024, 1, 16, 64},
		{1025, 1, 17, 64},
		{10_000, 1, 157, 64},
		{1, together, 1, 1},
		{4, together, 1, 4},
		{10, together, 3, 4},
		{64, together, 16, 4},
		{160, together, 16, 10},
		{10_000, together, 157, 64},
	}
	for _, tc := range tests {
		hints := split(High, someIDs(tc.ids), tc.least)
		largest := 0
		for _, h := range hints {
			largest = max(largest, len(h.IDs))
		}
		if len(hints) != tc.hints || largest != tc.largest {
			t.Errorf("%d ids, at least %d in a hint: %d hints of at most %d, want %d of %d", tc.ids, tc.least, len(hints), largest, tc.hints, tc.largest)
		}
	}
}

// Every id is sent exactly once, however they are split, in order, in hints that
// the other side accepts.
func TestSplitKeepsEveryID(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		// Ids of one small byte, so that repetitions are likely.
		given := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) uuid.UUID {
			return uuid.UUID{15: rapid.Byte().Draw(t, "last"), 14: rapid.ByteRange(0, 9).Draw(t, "before")}
		}), 0, 3000).Draw(t, "ids")
		before := slices.Clone(given)
		lane := rapid.SampledFrom([]Lane{High, Normal, Low}).Draw(t, "lane")

		var got []uuid.UUID
		for _, h := range split(lane, given, rapid.SampledFrom([]int{1, together}).Draw(t, "least")) {
			wire, err := h.encode()
			if err != nil {
				t.Fatalf("a hint that cannot be sent: %v", err)
			}
			read, err := decode(lane, wire)
			if err != nil {
				t.Fatalf("a hint that cannot be read: %v", err)
			}
			if diff := cmp.Diff(h, read); diff != "" {
				t.Fatalf("changed on the way: %s", diff)
			}
			got = append(got, read.IDs...)
		}
		if !slices.Equal(got, distinct(given)) {
			t.Fatalf("sent %d ids of %d", len(got), len(distinct(given)))
		}
		if !slices.Equal(given, before) {
			t.Fatal("split changed its argument")
		}
	})
}
