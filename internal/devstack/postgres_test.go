package devstack

import (
	"testing"

	"github.com/jackc/pgx/v5"
)

// ask runs one query that answers with a text.
func ask(t *testing.T, url, query string) string {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	var answer string
	if err := conn.QueryRow(t.Context(), query).Scan(&answer); err != nil {
		t.Fatal(err)
	}
	return answer
}

func tell(t *testing.T, url, statement string) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	if _, err := conn.Exec(t.Context(), statement); err != nil {
		t.Fatal(err)
	}
}

func startPostgres(t *testing.T, o Options) *Postgres {
	t.Helper()
	p, err := StartPostgres(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Stop(); err != nil {
			t.Error(err)
		}
	})
	return p
}

func TestPostgresKeepsDurableData(t *testing.T) {
	t.Parallel()
	o := Options{Dir: t.TempDir(), Durable: true}
	first := startPostgres(t, o)
	tell(t, first.AdminURL, "CREATE TABLE kept AS SELECT 'still here' AS what")
	if err := first.Stop(); err != nil {
		t.Fatal(err)
	}
	<-first.Done()
	second := startPostgres(t, o)
	if got := ask(t, second.AdminURL, "SELECT what FROM kept"); got != "still here" {
		t.Errorf("got %q", got)
	}
	if second.AdminURL != first.AdminURL {
		t.Errorf("the address changed from %s to %s", first.AdminURL, second.AdminURL)
	}
	if got := ask(t, second.AdminURL, "SELECT current_setting('timezone') || ' ' || current_setting('fsync')"); got != "UTC on" {
		t.Errorf("settings: %s", got)
	}
}
