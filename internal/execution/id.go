package execution

import (
	"crypto/sha256"
	"encoding/binary"
	"time"

	"github.com/google/uuid"
)

// The id of an execution is a UUIDv8 (RFC 9562, section 5.8): 48 bits of the
// scheduled time in milliseconds, then a hash. So inserting a run twice is a no-op,
// the id alone names the partition, and a target that de-duplicates on it is
// right even when a failover repeats the insert.

// ScheduledID is the id of the run of a job at one of its scheduled times. It is
// a function of the two, so every promoter that sees the time makes the
// same id. The time counts in whole microseconds.
func ScheduledID(job uuid.UUID, at time.Time) uuid.UUID {
	return stamped(at, "scheduled", job[:], timeBytes(at))
}

// RequestedID is the id of a run that somebody asked for: a function of the
// tenant, the job, the time and a seed, which is the caller's idempotency
// key or random bytes.
func RequestedID(tenant, job uuid.UUID, at time.Time, seed []byte) uuid.UUID {
	return stamped(at, "requested", tenant[:], job[:], seed)
}

// BackfillID is the id of the run that a backfill makes for a scheduled time: another
// one than the scheduled run's, and than any other backfill's.
func BackfillID(backfill uuid.UUID, at time.Time) uuid.UUID {
	return stamped(at, "backfill", backfill[:], timeBytes(at))
}

// ScheduledTimeOf is the scheduled time in an id, in whole milliseconds.
func ScheduledTimeOf(id uuid.UUID) time.Time {
	var b [8]byte
	copy(b[2:], id[:6])
	return time.UnixMilli(int64(binary.BigEndian.Uint64(b[:]))).UTC()
}

func timeBytes(at time.Time) []byte {
	return binary.BigEndian.AppendUint64(nil, uint64(at.UnixMicro()))
}

// stamped builds the UUIDv8. The parts have fixed lengths but for the last,
// so no two different lists of parts hash the same bytes.
func stamped(at time.Time, domain string, parts ...[]byte) uuid.UUID {
	h := sha256.New()
	h.Write([]byte(domain))
	for _, p := range parts {
		h.Write(p)
	}
	var id uuid.UUID
	copy(id[:], h.Sum(nil))
	var ms [8]byte
	binary.BigEndian.PutUint64(ms[:], uint64(at.UnixMilli()))
	copy(id[:6], ms[2:])
	id[6] = id[6]&0x0f | 0x80 // version 8
	id[8] = id[8]&0x3f | 0x80 // variant of RFC 9562
	return id
}
