package live

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/scheduler-service/scheduler/db"
	"github.com/scheduler-service/scheduler/internal/config"
	"github.com/scheduler-service/scheduler/internal/fault"
	"github.com/scheduler-service/scheduler/internal/postgres"
	"github.com/scheduler-service/scheduler/internal/tenant"
)

// Source is where the value of a setting comes from.
type Source string

// The sources.
const (
	Database    Source = "database"    // somebody set it while the processes ran
	Environment Source = "environment" // each process was started with it
)

// Setting is a setting as an administrator sees it.
type Setting struct {
	config.Setting

	// Value is empty where nobody set it and this process does not read the variable.
	Value     string
	Source    Source
	ChangedAt *time.Time // also of one that was reset; nil: nobody ever set it
	ChangedBy string
}

// Store lists and changes the settings of the installation, as postgres.API.
type Store struct {
	db       *postgres.DB
	settings *Settings
}

// NewStore makes a store. The process follows what it changes at once.
func NewStore(on *postgres.DB, settings *Settings) *Store { return &Store{on, settings} }

// read reads what is stored, by name.
func read(ctx context.Context, on *postgres.DB) (map[string]Setting, error) {
	rows, err := db.New(on.Pool()).ListLiveSettings(ctx)
	if err != nil {
		return nil, fmt.Errorf("read the settings: %w", postgres.Fault(err))
	}
	stored := make(map[string]Setting, len(rows))
	for _, r := range rows {
		at := r.ChangedAt.UTC()
		one := Setting{ChangedAt: &at, ChangedBy: r.ChangedBy}
		if r.Value != nil {
			one.Value = *r.Value
		}
		stored[r.Name] = one
	}
	return stored, nil
}

// List lists all settings.
func (s *Store) List(ctx context.Context) ([]Setting, error) {
	stored, err := read(ctx, s.db)
	if err != nil {
		return nil, err
	}
	all := make([]Setting, len(s.settings.known))
	for i, one := range s.settings.known {
		all[i] = stored[one.Name]
		all[i].Setting, all[i].Source = one, Database
		if all[i].Value == "" {
			all[i].Value, all[i].Source = one.Value, Environment
		}
	}
	return all, nil
}

// Set stores the value of a setting. A value that is refused is a fault of the field value,
// and an unknown name is NotFound.
func (s *Store) Set(ctx context.Context, who tenant.Actor, name, text string) (Setting, error) {
	one, err := s.find(name)
	if err != nil {
		return Setting{}, err
	}
	n, err := one.Parse(text)
	if err != nil {
		return Setting{}, fault.Wrong(fault.CodeValidationFailed, fault.Field{Path: "value", Rule: "setting", Message: err.Error()})
	}
	value := one.Written(n)
	err = s.db.InTenant(ctx, who.TenantID, func(tx *postgres.Tx) error {
		if err := tx.PutLiveSetting(ctx, db.PutLiveSettingParams{Name: name, Value: value, ChangedBy: who.Subject, ChangedIn: who.TenantID}); err != nil {
			return fmt.Errorf("store a setting: %w", err)
		}
		return nil
	})
	if err != nil {
		return Setting{}, err
	}
	return s.shown(ctx, name)
}

// Reset has a setting follow the environments of the processes again.
func (s *Store) Reset(ctx context.Context, who tenant.Actor, name string) error {
	if _, err := s.find(name); err != nil {
		return err
	}
	err := s.db.InTenant(ctx, who.TenantID, func(tx *postgres.Tx) error {
		if err := tx.ResetLiveSetting(ctx, db.ResetLiveSettingParams{Name: name, ChangedBy: who.Subject, ChangedIn: who.TenantID}); err != nil {
			return fmt.Errorf("reset a setting: %w", err)
		}
		return nil
	})
	return errors.Join(err, s.settings.Refresh(ctx, s.db))
}

func (s *Store) find(name string) (config.Setting, error) {
	at := slices.IndexFunc(s.settings.known, func(one config.Setting) bool { return one.Name == name })
	if at < 0 {
		return config.Setting{}, fault.New(fault.NotFound, fault.CodeNotFound, "there is no setting with this name that changes while the processes run")
	}
	return s.settings.known[at], nil
}

// shown is a setting that was just changed, which this process follows from here on.
func (s *Store) shown(ctx context.Context, name string) (Setting, error) {
	if err := s.settings.Refresh(ctx, s.db); err != nil {
		return Setting{}, err
	}
	all, err := s.List(ctx)
	if err != nil {
		return Setting{}, err
	}
	return all[slices.IndexFunc(all, func(one Setting) bool { return one.Name == name })], nil
}
