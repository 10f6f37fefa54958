package catalogue_test

import (
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/scheduler-service/scheduler/internal/catalogue"
	"github.com/scheduler-service/scheduler/internal/executor/parameters"
	"github.com/scheduler-service/scheduler/internal/postgres"
	"github.com/scheduler-service/scheduler/internal/postgres/pgtest"
)

func TestMain(m *testing.M) { os.Exit(pgtest.Main(m)) }

// stores are one of a worker and one of an API, on one database.
func stores(t *testing.T) (worker, api *catalogue.Store) {
	t.Helper()
	database := pgtest.New(t)
	var made []*catalogue.Store
	for _, role := range []postgres.Role{postgres.Engine, postgres.API} {
		db, err := postgres.Open(t.Context(), postgres.Config{URL: database.URL, Role: role})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(db.Close)
		made = append(made, catalogue.NewStore(db))
	}
	return made[0], made[1]
}

func TestPublishedFunctionsAreKnown(t *testing.T) {
	t.Parallel()
	worker, api := stores(t)
	known := catalogue.NewKnown(api)
	if _, ok := known.Parameters("billing", "invoice"); ok || known.Modules() != nil {
		t.Error("something is known before anybody said so")
	}
	publish := func(schema *parameters.Schema) {
		t.Helper()
		err := worker.Publish(t.Context(), []catalogue.Function{
			{Module: "billing", Name: "void", Description: "Voids one."},
			{Module: "billing", Name: "invoice", Parameters: schema},
			{Module: "audit", Name: "run"},
		})
		if err != nil {
			t.Fatal(err)
		}
		if err := known.Refresh(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	publish(&parameters.Schema{Type: "object", Required: []string{"a"}})
	publish(&parameters.Schema{Type: "object", Required: []string{"b"}}) // a new version
	if diff := cmp.Diff([][]string{{"audit", "billing"}, {"invoice", "void"}, nil}, [][]string{known.Modules(), known.Functions("billing"), known.Functions("x")}); diff != "" {
		t.Errorf("known (-want +got):\n%s", diff)
	}
	if schema, ok := known.Parameters("billing", "invoice"); !ok || len(schema.Check("p", nil)) != 1 || schema.Check("p", nil)[0].Path != "p.b" {
		t.Errorf("the schema is %+v", schema)
	}
	if schema, ok := known.Parameters("billing", "void"); !ok || len(schema.Check("p", []byte(`{"x":1}`))) != 0 {
		t.Errorf("a function without a schema has %+v", schema)
	}
	if err := api.Publish(t.Context(), []catalogue.Function{{Module: "m", Name: "n"}}); err == nil {
		t.Error("the API's role may publish")
	}
}

func TestPublishHasBounds(t *testing.T) {
	t.Parallel()
	worker, _ := stores(t)
	for name, functions := range map[string][]catalogue.Function{
		"no name":            {{Module: "m"}},
		"a long name":        {{Module: "m", Name: strings.Repeat("n", 201)}},
		"a long description": {{Module: "m", Name: "n", Description: strings.Repeat("d", 1001)}},
		"a large schema":     {{Module: "m", Name: "n", Parameters: &parameters.Schema{Description: strings.Repeat("d", 33<<10)}}},
		"many":               make([]catalogue.Function, 1001),
	} {
		if err := worker.Publish(t.Context(), functions); err == nil {
			t.Errorf("%s: published", name)
		}
	}
	if err := worker.Publish(t.Context(), nil); err != nil {
		t.Error(err)
	}
}
