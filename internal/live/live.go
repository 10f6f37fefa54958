// Package live is the settings that change while the processes run.
//
// It owns the values that a process goes by, the table that they are changed in, and who
// changed what. It refuses values that package config refuses: the value before stays in
// force. It does not know what a setting is for; readers ask for a value each time that they
// need it.
package live

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/scheduler-service/scheduler/internal/config"
	"github.com/scheduler-service/scheduler/internal/loop"
	"github.com/scheduler-service/scheduler/internal/postgres"
	"github.com/scheduler-service/scheduler/internal/telemetry"
)

// Every is the distance between two reads of the table: how much later a change holds in
// other processes than the one that made it.
const Every = 10 * time.Second

// logLevel is the setting that a logger follows.
const logLevel = "LOG_LEVEL"

// Settings are the values that a process goes by. Its methods may be called concurrently.
type Settings struct {
	log    *slog.Logger
	known  []config.Setting
	values map[string]*atomic.Int64 // of those that the process reads

	mu      sync.Mutex
	refused map[string]string // the stored values that were refused last, by name
}

// New makes the settings of a process, with the values that it was started with. The level
// of the logger follows LOG_LEVEL.
func New(known []config.Setting, log *slog.Logger) *Settings {
	s := &Settings{log: log, known: known, values: map[string]*atomic.Int64{}, refused: map[string]string{}}
	for _, one := range known {
		n, err := one.Parse(one.Value)
		if err != nil {
			continue // the process does not read it
		}
		s.values[one.Name] = &atomic.Int64{}
		s.values[one.Name].Store(int64(n))
	}
	return s
}

// Int is how to ask for the present value of a setting; of one that the process does not read
// it is 0.
func (s *Settings) Int(name string) func() int {
	value, ok := s.values[name]
	if !ok {
		return func() int { return 0 }
	}
	return func() int { return int(value.Load()) }
}

// Refresh reads the table. After an error the values stay as they are.
func (s *Settings) Refresh(ctx context.Context, on *postgres.DB) error {
	stored, err := read(ctx, on)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, one := range s.known {
		if _, reads := s.values[one.Name]; reads {
			s.follow(ctx, one, stored[one.Name].Value)
		}
	}
	return nil
}

// follow has a setting follow what is stored of it; the empty text is nothing.
func (s *Settings) follow(ctx context.Context, one config.Setting, stored string) {
	text, source := stored, Database
	if stored == "" {
		text, source = one.Value, Environment
	}
	n, err := one.Parse(text)
	if err != nil {
		if s.refused[one.Name] != text {
			s.log.WarnContext(ctx, "a stored setting is refused, the value before stays", "setting", one.Name, "error", err)
		}
		s.refused[one.Name] = text
		return
	}
	delete(s.refused, one.Name)
	if s.values[one.Name].Swap(int64(n)) == int64(n) {
		return
	}
	if one.Name == logLevel {
		telemetry.SetLevel(s.log, slog.Level(n))
	}
	s.log.InfoContext(ctx, "a setting changed", "setting", one.Name, "value", text, "source", source)
}

// Pass reads the table again and again.
func (s *Settings) Pass(on *postgres.DB) loop.Pass {
	return loop.Pass{Name: "refresh-settings", Every: Every, Do: func(ctx context.Context, _ *loop.Turn) error { return s.Refresh(ctx, on) }}
}
