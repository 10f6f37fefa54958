package function

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/scheduler-service/scheduler/db"
	"github.com/scheduler-service/scheduler/internal/fault"
	"github.com/scheduler-service/scheduler/internal/postgres"
	"github.com/scheduler-service/scheduler/internal/postgres/columns"
	"github.com/scheduler-service/scheduler/internal/tenant"
)

// Store keeps a tenant's functions. Each method acts for one tenant; the name of another
// tenant's function is answered as one that does not exist.
type Store struct{ db *postgres.DB }

// NewStore makes a store.
func NewStore(db *postgres.DB) *Store { return &Store{db: db} }

// Position is a place in a list of functions, newest first.
type Position struct {
	CreatedAt time.Time
	ID        uuid.UUID
}

// Put stores a module as a further version of a function, or as the first of a new one,
// which it reports. The module that is the newest already changes nothing. The oldest
// versions go, but none that a job names. Somebody has checked the module.
func (s *Store) Put(ctx context.Context, who tenant.Actor, name string, module []byte) (stored Function, fresh bool, err error) {
	sum := sha256.Sum256(module)
	digest := hex.EncodeToString(sum[:])
	err = s.db.InTenant(ctx, who.TenantID, func(tx *postgres.Tx) error {
		if _, err := tx.LockTenantBounds(ctx, who.TenantID); err != nil { // what is counted stays so
			return fmt.Errorf("lock the tenant: %w", err)
		}
		row, err := tx.LockFunction(ctx, db.LockFunctionParams{TenantID: who.TenantID, Name: name})
		if fresh = fault.KindOf(postgres.Fault(err)) == fault.NotFound; err != nil && !fresh {
			return fmt.Errorf("lock function: %w", err)
		}
		if !fresh && row.Digest == digest {
			stored = fromRow(Function(row))
			return nil
		}
		if err := checkQuota(ctx, tx, who.TenantID, fresh, len(module)); err != nil {
			return err
		}
		if fresh {
			row, err = insert(ctx, tx, who, name, digest, len(module))
		} else {
			row, err = tx.UpdateFunction(ctx, db.UpdateFunctionParams{
				TenantID: who.TenantID, ID: row.ID, Digest: digest, SizeBytes: int32(len(module)), UpdatedBy: who.Subject, Now: tx.At,
			})
		}
		if err != nil {
			return fmt.Errorf("store function: %w", err)
		}
		stored = fromRow(Function(row))
		return insertVersion(ctx, tx, who, stored, module)
	})
	return stored, fresh, err
}

// insert makes a function. The tenant's row is locked: nobody takes the name meanwhile.
func insert(ctx context.Context, tx *postgres.Tx, who tenant.Actor, name, digest string, size int) (db.Function, error) {
	id, err := uuid.NewV7()
	if err != nil {
		return db.Function{}, fmt.Errorf("make a function's id: %w", err)
	}
	return tx.InsertFunction(ctx, db.InsertFunctionParams{
		ID: id, TenantID: who.TenantID, Name: name, Digest: digest, SizeBytes: int32(size), CreatedBy: who.Subject, Now: tx.At,
	})
}

// insertVersion stores the newest version of a function, and removes old ones.
func insertVersion(ctx context.Context, tx *postgres.Tx, who tenant.Actor, f Function, module []byte) error {
	if err := tx.InsertFunctionVersion(ctx, db.InsertFunctionVersionParams{
		FunctionID: f.ID, Version: f.Version, TenantID: who.TenantID, Digest: f.Digest, SizeBytes: f.SizeBytes, CreatedBy: who.Subject, Now: tx.At,
	}); err != nil {
		return fmt.Errorf("insert function version: %w", err)
	}
	if err := tx.InsertFunctionModule(ctx, db.InsertFunctionModuleParams{FunctionID: f.ID, Version: f.Version, TenantID: who.TenantID, Module: module}); err != nil {
		return fmt.Errorf("insert module: %w", err)
	}
	if f.Version <= keptVersions {
		return nil
	}
	if err := tx.DeleteOldFunctionVersions(ctx, db.DeleteOldFunctionVersionsParams{
		TenantID: who.TenantID, FunctionID: f.ID, JobType: jobType, Reference: reference(f.Name), Last: f.Version - keptVersions,
	}); err != nil {
		return fmt.Errorf("remove old function versions: %w", err)
	}
	return nil
}

func checkQuota(ctx context.Context, tx *postgres.Tx, tenant uuid.UUID, fresh bool, size int) error {
	has, err := tx.CountFunctions(ctx, tenant)
	switch {
	case err != nil:
		return fmt.Errorf("count functions: %w", err)
	case fresh && has.Functions >= maxFunctions:
		return exceeded("maxFunctions", maxFunctions, "functions", tx.At)
	case has.Bytes+int64(size) > maxBytes:
		return exceeded("maxFunctionBytes", maxBytes, "bytes of modules, all versions together", tx.At)
	}
	return nil
}

// Get reads a function and its versions, the newest first.
func (s *Store) Get(ctx context.Context, who tenant.Actor, name string) (found Function, versions []Version, err error) {
	err = s.db.InTenant(ctx, who.TenantID, func(tx *postgres.Tx) error {
		row, err := tx.GetFunction(ctx, db.GetFunctionParams{TenantID: who.TenantID, Name: name})
		if err != nil {
			return missing(err)
		}
		found = fromRow(Function(row))
		rows, err := tx.ListFunctionVersions(ctx, db.ListFunctionVersionsParams{TenantID: who.TenantID, FunctionID: row.ID})
		if err != nil {
			return fmt.Errorf("list function versions: %w", err)
		}
		for _, row := range rows {
			one := Version(row)
			one.CreatedAt = one.CreatedAt.UTC()
			versions = append(versions, one)
		}
		return nil
	})
	return found, versions, err
}

// List reads a page of functions, newest first, from after a position on (nil: from the
// first).
func (s *Store) List(ctx context.Context, who tenant.Actor, limit int, after *Position) (list []Function, err error) {
	p := db.ListFunctionsParams{TenantID: who.TenantID, PageSize: int32(limit), BeforeCreatedAt: columns.Never, BeforeID: uuid.Max}
	if after != nil {
		p.BeforeCreatedAt, p.BeforeID = after.CreatedAt, after.ID
	}
	err = s.db.InTenant(ctx, who.TenantID, func(tx *postgres.Tx) error {
		rows, err := tx.ListFunctions(ctx, p)
		if err != nil {
			return fmt.Errorf("list functions: %w", err)
		}
		for _, row := range rows {
			list = append(list, fromRow(Function(row)))
		}
		return nil
	})
	return list, err
}

// Delete removes a function that no job names; another is a Conflict that says how many
// do. A run of an older definition that names it fails.
func (s *Store) Delete(ctx context.Context, who tenant.Actor, name string) error {
	return s.db.InTenant(ctx, who.TenantID, func(tx *postgres.Tx) error {
		row, err := tx.LockFunction(ctx, db.LockFunctionParams{TenantID: who.TenantID, Name: name})
		if err != nil {
			return missing(err)
		}
		n, err := tx.CountJobsByFunction(ctx, db.CountJobsByFunctionParams{TenantID: who.TenantID, JobType: jobType, Reference: reference(name)})
		switch {
		case err != nil:
			return fmt.Errorf("count the jobs of a function: %w", err)
		case n > 0:
			return fault.New(fault.Conflict, fault.CodeConflict, fmt.Sprintf("jobs that run this function: %d; delete them or have them run another first", n))
		}
		if _, err := tx.DeleteFunction(ctx, db.DeleteFunctionParams{TenantID: who.TenantID, ID: row.ID}); err != nil {
			return fmt.Errorf("delete function: %w", err)
		}
		return nil
	})
}

// Has lists what is wrong with a job's naming of a version of a function, 0 for the
// newest, at paths below "config".
func (s *Store) Has(ctx context.Context, who tenant.Actor, name string, version int32) (faults []fault.Field, err error) {
	err = s.db.InTenant(ctx, who.TenantID, func(tx *postgres.Tx) error {
		_, err := tx.FindFunctionVersion(ctx, db.FindFunctionVersionParams{TenantID: who.TenantID, Name: name, Version: version})
		if fault.KindOf(postgres.Fault(err)) != fault.NotFound {
			return err
		}
		faults = []fault.Field{{Path: "config.function", Rule: "unknown", Message: "there is no function with this name: upload it first"}}
		if version != 0 {
			faults = []fault.Field{{Path: "config.version", Rule: "unknown", Message: "there is no such version of this function, or no such function"}}
		}
		return nil
	})
	return faults, err
}

// jobType is the type of the jobs that run functions.
const jobType = "wasm"

// reference is how the config of a job names a function.
func reference(name string) json.RawMessage {
	return json.RawMessage(`{"function":"` + name + `"}`) // a name needs no escapes
}

// fromRow is a row as the domain sees it: in UTC.
func fromRow(f Function) Function {
	f.CreatedAt, f.UpdatedAt = f.CreatedAt.UTC(), f.UpdatedAt.UTC()
	return f
}

// missing turns "no row" into the answer for a function that is not there.
func missing(err error) error {
	if fault.KindOf(postgres.Fault(err)) == fault.NotFound {
		return NotFound()
	}
	return fmt.Errorf("read function: %w", err)
}

// Modules reads, for a worker, what jobs name. Its database acts as the engine.
type Modules struct{ db *postgres.DB }

// NewModules makes a reader of modules.
func NewModules(db *postgres.DB) *Modules { return &Modules{db: db} }

// Find finds a version of a tenant's function, 0 for the newest.
func (m *Modules) Find(ctx context.Context, tenant uuid.UUID, name string, version int32) (Module, error) {
	row, err := db.New(m.db.Pool()).FindFunctionVersion(ctx, db.FindFunctionVersionParams{TenantID: tenant, Name: name, Version: version})
	if err != nil {
		return Module{}, missing(err)
	}
	return Module(row), nil
}

// Load reads the bytes of a module.
func (m *Modules) Load(ctx context.Context, tenant uuid.UUID, module Module) ([]byte, error) {
	code, err := db.New(m.db.Pool()).GetFunctionModule(ctx, db.GetFunctionModuleParams{TenantID: tenant, FunctionID: module.FunctionID, Version: module.Version})
	if err != nil {
		return nil, missing(err)
	}
	return code, nil
}
