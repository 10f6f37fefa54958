package execution

import "time"

// WaitReason is why an execution that waits does not run or, of one that runs, why no
// worker runs it.
type WaitReason string

// The reasons, in the order in which they are looked for.
const (
	WaitRetry       WaitReason = "retry"           // its backoff is not over
	WaitBreaker     WaitReason = "circuit_breaker" // the host that its job calls fails, and calls are held back
	WaitRate        WaitReason = "rate"            // it is late, and late ones are started at a rate
	WaitDelayed     WaitReason = "delayed"         // it may start only later
	WaitWorker      WaitReason = "no_worker"       // no living worker runs its job type
	WaitJob         WaitReason = "job_limit"       // its job runs as many as it may
	WaitKey         WaitReason = "concurrency_key" // another run has its key
	WaitType        WaitReason = "type_limit"      // its tenant runs as many of its type as it may
	WaitTenant      WaitReason = "tenant_limit"    // its tenant runs as many as it may
	WaitCallback    WaitReason = "callback"        // its target took the call and reports the end later
	WaitStorage     WaitReason = "storage"         // it ran, and its outcome could not be stored
	WaitCancelling  WaitReason = "cancelling"      // its job was ended, or its tenant suspended: it is cancelled soon
	WaitDispatching WaitReason = "dispatching"     // nothing is in its way: a worker is about to claim it
)

// Wait is what an execution waits for, as it was when it was read.
type Wait struct {
	Reason WaitReason
	// Used and Limit are those of a limit; Limit is 0 where the reason is none.
	Used, Limit int
	Key         string     // the concurrency key that another run has; of WaitBreaker, the host
	Until       *time.Time // when it may start, where that is known; of WaitCallback, when the wait may end next
}

// rateAfter is how late a scheduled run must be for its start to be paced.
const rateAfter = 5 * time.Second

// obstacles are what could keep an execution from running, at one time.
type obstacles struct {
	at           time.Time
	status       Status
	trigger      Trigger
	scheduledAt  time.Time
	availableAt  time.Time
	held         string // the host whose breaker holds it back until availableAt
	served       bool
	cancelling   bool
	gate, taken  int // places of the job; gate 0: it has one
	key          string
	keyTaken     bool
	typeRunning  int
	typeLimit    *int
	running, max int // of the tenant
}

// wait is the first of the obstacles that is in the way.
func (o obstacles) wait() *Wait {
	if o.status == parked {
		until := o.availableAt
		return &Wait{Reason: WaitStorage, Until: &until}
	}
	if o.status == Running {
		until := o.availableAt
		return &Wait{Reason: WaitCallback, Until: &until}
	}
	if o.cancelling {
		return &Wait{Reason: WaitCancelling}
	}
	if o.availableAt.After(o.at) {
		until := o.availableAt
		switch {
		case o.held != "":
			return &Wait{Reason: WaitBreaker, Key: o.held, Until: &until}
		case o.status == Retrying:
			return &Wait{Reason: WaitRetry, Until: &until}
		case o.trigger == Scheduled && until.Sub(o.scheduledAt) > rateAfter:
			return &Wait{Reason: WaitRate, Until: &until}
		default:
			return &Wait{Reason: WaitDelayed, Until: &until}
		}
	}
	switch {
	case !o.served:
		return &Wait{Reason: WaitWorker}
	case o.gate > 0 && o.taken >= o.gate:
		return &Wait{Reason: WaitJob, Used: o.taken, Limit: o.gate}
	case o.keyTaken:
		return &Wait{Reason: WaitKey, Used: 1, Limit: 1, Key: o.key}
	case o.typeLimit != nil && o.typeRunning >= *o.typeLimit:
		return &Wait{Reason: WaitType, Used: o.typeRunning, Limit: *o.typeLimit}
	case o.running >= o.max:
		return &Wait{Reason: WaitTenant, Used: o.running, Limit: o.max}
	default:
		return &Wait{Reason: WaitDispatching}
	}
}
