package calls

import (
	"context"

	"github.com/scheduler-service/scheduler/db"
	"github.com/scheduler-service/scheduler/internal/postgres"
)

// store sends notifications.
type store struct{ db *postgres.DB }

// notify notifies those who listen on channels.
func (s store) notify(ctx context.Context, channels []string) error {
	return postgres.Fault(db.New(s.db.Pool()).NotifyListeners(ctx, channels))
}
