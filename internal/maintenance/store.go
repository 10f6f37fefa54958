package maintenance

import (
	"github.com/scheduler-service/scheduler/db"
	"github.com/scheduler-service/scheduler/internal/postgres"
)

// store is the door to the database. Its queries see all tenants; they are a
// short, named list in package arch.
type store struct{ db *postgres.DB }

func (s *store) queries() *db.Queries { return db.New(s.db.Pool()) }
