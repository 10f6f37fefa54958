package postgres_test

import (
	"slices"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/scheduler-service/scheduler/db"
	"github.com/scheduler-service/scheduler/internal/postgres"
	"github.com/scheduler-service/scheduler/internal/postgres/pgtest"
)

// engine is a pool of one connection, and how to take its round trips, but for
// preparations.
func engine(t *testing.T) (d *postgres.DB, taken func() []string) {
	t.Helper()
	var mu sync.Mutex
	var trips []string
	d, err := postgres.Open(t.Context(), postgres.Config{
		URL: pgtest.New(t).URL, Role: postgres.Engine, Name: "test", MaxConns: 1,
		RoundTrip: func(statement string) {
			mu.Lock()
			defer mu.Unlock()
			trips = append(trips, statement)
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(d.Close)
	taken = func() []string {
		mu.Lock()
		defer mu.Unlock()
		defer func() { trips = nil }()
		return slices.DeleteFunc(trips, func(s string) bool { return s == "prepare" })
	}
	taken() // the check of the role
	return d, taken
}

func read(t *testing.T, tx *postgres.Tx) error {
	_, err := tx.ListDeletingTenants(t.Context())
	return err
}

// What travels together is one round trip, by the name of what leads it.
func TestRoundTripsAreCounted(t *testing.T) {
	t.Parallel()
	d, taken := engine(t)
	write := func(q *db.Queries) error {
		return q.SetGauges(t.Context(), db.SetGaugesParams{Names: []string{"x", "y"}, Values: []int64{1, 2}})
	}
	for _, test := range []struct {
		name string
		do   func() error
		want []string
	}{
		{"a statement by itself", func() error { return write(db.New(d.Pool())) }, []string{"SetGauges"}},
		{"a transaction", func() error {
			return d.InTx(t.Context(), func(tx *postgres.Tx) error { return read(t, tx) })
		}, []string{"begin", "ListDeletingTenants", "commit"}},
		{"writes at the end", func() error {
			return d.InTx(t.Context(), func(tx *postgres.Tx) error { return tx.CommitWith(t.Context(), write) })
		}, []string{"begin", "SetGauges"}},
	} {
		err := test.do()
		if diff := cmp.Diff(test.want, taken()); diff != "" || err != nil {
			t.Errorf("%s: %v (-want +got)\n%s", test.name, err, diff)
		}
	}
}
