package postgres_test

import (
	"slices"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/scheduler-service/scheduler/internal/postgres"
	"github.com/scheduler-service/scheduler/internal/postgres/pgtest"
)

// An id is written and read as its 16 bytes. The driver alone prints it, fails to write
// that, makes an error of it, and parses it: 20 allocations to write one, and 3 to read it.
func TestIDsAreWrittenAndReadAsTheyAre(t *testing.T) {
	d, err := postgres.Open(t.Context(), postgres.Config{URL: pgtest.New(t).URL, Role: postgres.Engine, Name: "test", MaxConns: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	conn, err := d.Pool().Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Release()
	types := conn.Conn().TypeMap()
	ids, read, buf := make([]uuid.UUID, 100), []uuid.UUID(nil), []byte(nil)
	for i := range ids {
		ids[i] = uuid.New()
	}
	written := testing.AllocsPerRun(10, func() { buf, err = types.Encode(pgtype.UUIDArrayOID, pgtype.BinaryFormatCode, ids, buf[:0]) })
	if most := 2.0 * float64(len(ids)); err != nil || written > most {
		t.Errorf("writing %d ids took %v allocations, want %v at most (%v)", len(ids), written, most, err)
	}
	took := testing.AllocsPerRun(10, func() { err = types.Scan(pgtype.UUIDArrayOID, pgtype.BinaryFormatCode, buf, &read) })
	if most := 2.0 * float64(len(ids)); err != nil || took > most {
		t.Errorf("reading %d ids took %v allocations, want %v at most (%v)", len(ids), took, most, err)
	}
	pointed := testing.AllocsPerRun(10, func() { _, err = types.Encode(pgtype.UUIDOID, pgtype.BinaryFormatCode, &ids[0], buf[:0]) })
	if err != nil || pointed > 1 {
		t.Errorf("writing an id by its pointer took %v allocations, want 1 at most (%v)", pointed, err)
	}
	if err := types.Scan(pgtype.UUIDOID, pgtype.BinaryFormatCode, ids[0][:15], &ids[1]); err == nil {
		t.Error("15 bytes were read as an id")
	}
	if !slices.Equal(read, ids) {
		t.Errorf("read %v, want %v", read, ids)
	}
}

// An id that is missing is written and read as such; NULL in a place for an id is none.
func TestMissingIDs(t *testing.T) {
	t.Parallel()
	d, err := postgres.Open(t.Context(), postgres.Config{URL: pgtest.New(t).URL, Role: postgres.API, Name: "test", MaxConns: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	id, none := uuid.New(), (*uuid.UUID)(nil)
	var same, missing *uuid.UUID
	var some []*uuid.UUID
	empty := uuid.New()
	err = d.Pool().QueryRow(t.Context(), "SELECT $1::uuid, $2::uuid, $3::uuid[], NULL::uuid", &id, none, []*uuid.UUID{&id, none}).Scan(&same, &missing, &some, &empty)
	if err != nil {
		t.Fatal(err)
	}
	if same == nil || *same != id || missing != nil || empty != uuid.Nil {
		t.Errorf("read %v, %v and %v, want %v, none and %v", same, missing, empty, id, uuid.Nil)
	}
	if len(some) != 2 || *some[0] != id || some[1] != nil {
		t.Errorf("read %v, want %v and none", some, id)
	}
}
