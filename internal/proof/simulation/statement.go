package simulation

import (
	"time"

	"github.com/google/uuid"

	"github.com/scheduler-service/scheduler/internal/execution"
	"github.com/scheduler-service/scheduler/internal/job"
)

// op is one operation on the database: what a process sends and the database
// carries out at once, at a time of its own clock. It is a value that can
// be sent twice, late, or not at all, and printed.
type op interface {
	do(t *tables, at time.Time) answer
}

// answer is what comes back; each operation fills in what it has.
type answer struct {
	IDs      []uuid.UUID // what is to be hinted, or may be claimed, or who is dead
	Claims   []claimed
	Verdicts []verdict
	Held     []workerRun
	Stands   bool        // the lease does
	Count    int         // rows
	SlotJobs []uuid.UUID // jobs of which an execution waits for a concurrency slot
	Unpooled []uuid.UUID // executions that nobody looks for yet
	Refused  string      // why it was not done; never for what a fault did
	At       time.Time   // the time of a transaction that goes on
	due      []dueJob
}

// claimed is an attempt that a worker was given.
type claimed struct {
	ID, Job uuid.UUID
	Attempt int
	Max     int
	Token   uuid.UUID
}

// verdict is what became of an outcome, or of a run that was taken away.
type verdict struct {
	ID     uuid.UUID
	Status execution.Status
	Lost   bool        // its worker was
	Next   []uuid.UUID // of the same job, whose turn it is
	Tenant uuid.UUID
	Key    string // that is free now
	// Backlogged says that the tenant's limit left something behind lately.
	Backlogged bool
}

type workerRun struct {
	ID, Token  uuid.UUID
	Cancelling bool
}

// outcome is how an attempt ended.
type outcome struct {
	ID, Token uuid.UUID
	Attempt   int
	Succeeded bool
	Error     string        // its type
	Retry     time.Duration // negative: not tried again
}

// locked are rows that another transaction holds while a statement runs that
// skips such rows.
type locked []uuid.UUID

func (l locked) holds(id uuid.UUID) bool {
	for _, held := range l {
		if held == id {
			return true
		}
	}
	return false
}

// The operations, named after their statements or transactions.
type (
	// registerWorker is fleet.Store.Register.
	registerWorker struct {
		Worker uuid.UUID
		Lease  time.Duration
		Types  []string
	}
	renewWorker struct {
		Worker uuid.UUID
		Lease  time.Duration
	}
	retireWorker    struct{ Worker uuid.UUID }
	markDeadWorkers struct{}

	claimExecutions struct {
		Worker, Token uuid.UUID
		IDs           []uuid.UUID
		Types         []string
		Limit         int // of runs of tenants that have none of their own; 0: none
		Locked        locked
	}
	listUnclaimedExecutions struct {
		IDs   []uuid.UUID
		Types []string
	}
	// lockJobs begins the transaction that claimLimitedExecutions ends.
	lockJobs struct {
		Session int
		Jobs    []uuid.UUID
	}
	claimLimitedExecutions struct {
		Session       int
		Worker, Token uuid.UUID
		IDs           []uuid.UUID
		Types         []string
		Limit         int
		Locked        locked
	}
	listPooledExecutions struct {
		Types []string
		Limit int
	}
	listUnblockedExecutions struct {
		Types []string
		Limit int
	}
	listNextExecutions struct {
		Tenants []uuid.UUID // that have room again
		Keys    []lockKey
		Limit   int
	}
	completeExecutions     struct{ Outcomes []outcome }
	releaseExecutions      struct{ Rows []workerRun }
	listExecutionsOfWorker struct{ Worker uuid.UUID }

	reassignExecutions struct{ Locked locked }
	poolLateExecutions struct {
		Ahead  time.Duration
		Locked locked
	}
	poolExecutions struct {
		IDs    []uuid.UUID
		Locked locked
	}

	// claimDueJobs begins the transaction that writePromotion ends; the answer
	// has the jobs with their places counted.
	claimDueJobs struct {
		Session int
		Since   time.Time
		Locked  locked
	}
	writePromotion struct {
		Session int
		plan    *plan
	}
	// promote is both, and the plan between them: what promoter.Pass does.
	promote struct{ Locked locked }

	// setLimits is what the platform lets a tenant run.
	setLimits struct {
		Tenant uuid.UUID
		Most   counts
	}
	createJob struct {
		Tenant, Job uuid.UUID
		Spec        job.Spec
	}
	pauseJob struct {
		Tenant, Job uuid.UUID
		Until       time.Time // zero: until it is resumed
	}
	resumeJob struct {
		Tenant, Job uuid.UUID
		Missed      job.MisfirePolicy // empty: as the job's own
	}
	deleteJob        struct{ Tenant, Job uuid.UUID }
	triggerJob       struct{ Tenant, Job, ID uuid.UUID }
	resumePausedJobs struct{ Locked locked }
)
