package postgres

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/scheduler-service/scheduler/internal/fault"
)

// NoPartition is the code of the fault that an insert into a partitioned table
// meets when no partition holds the row. Clients do not see it.
const NoPartition fault.Code = "NO_PARTITION"

// Fault turns a driver's error into one that callers branch on: the only place
// that reads PostgreSQL's codes. An error that is a fault already, or that it
// does not know, comes back as it is.
func Fault(err error) error {
	var known *fault.Error
	if err == nil || errors.As(err, &known) {
		return err
	}
	if errors.Is(err, pgx.ErrNoRows) {
		return fault.Wrap(fault.NotFound, "", "not found", err)
	}
	var pe *pgconn.PgError
	if errors.As(err, &pe) {
		return fromCode(pe, err)
	}
	var ne net.Error
	var ce *pgconn.ConnectError
	if errors.As(err, &ne) || errors.As(err, &ce) || pgconn.SafeToRetry(err) ||
		errors.Is(err, net.ErrClosed) || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return fault.Wrap(fault.Unavailable, "", "the database is not reachable", err)
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return fault.Wrap(fault.Unavailable, "", "the database did not answer in time", err)
	}
	return err
}

// TimedOut reports whether a statement ran, or waited for a lock, for longer than
// the server lets one. Fault makes Unavailable of it, since most statements are short and the
// server is to blame; who asks for one as long as a caller likes can tell.
func TimedOut(err error) bool {
	var pe *pgconn.PgError
	return errors.As(err, &pe) && (pe.Code == canceled || pe.Code == lockNotAvailable)
}

// LockTimedOut reports whether a statement waited for one lock for longer than the server lets
// it. The session that holds the lock is to blame, and not a row. TimedOut reports it, too.
func LockTimedOut(err error) bool {
	var pe *pgconn.PgError
	return errors.As(err, &pe) && pe.Code == lockNotAvailable
}

// Refused reports whether the database refused what a statement wrote, so that
// repeating the statement fails again: a constraint, a trigger, a value that no
// column holds, a row that is too large, a partition that is missing. The caller
// divides its rows until the refused one is alone. Everything that passes by
// itself is not refused: a lost connection, a lock, a time-out, a full disk, a
// server that stops, a primary that became a standby.
func Refused(err error) bool {
	var pe *pgconn.PgError
	return errors.As(err, &pe) && !passes(pe.Code)
}

// Why is what the database said about an error, with its SQLSTATE, in one line
// that a tenant may see: no statement and no row.
func Why(err error) string {
	var pe *pgconn.PgError
	if !errors.As(err, &pe) {
		return "the database did not say why"
	}
	message, _, _ := strings.Cut(pe.Message, "\n")
	return fmt.Sprintf("%.200s (SQLSTATE %s)", message, pe.Code)
}

// passes says whether what a SQLSTATE stands for ends by itself.
func passes(code string) bool {
	switch code[:2] {
	case "08", "53", "57", "58", "F0": // connection, resources, an operator, the system, its files
		return true
	case "XX": // a defect of its own, unless a row or an index entry is corrupt
		return code != "XX001" && code != "XX002"
	}
	switch code {
	case "40001", "40P01", "55P03", "55006", "25P03", "25006": // locks and roles of servers
		return true
	case "42501", "42P01", "42703", "42883", "3D000", "28000", "28P01":
		// A schema or a grant that is not as it should be refuses every row,
		// whatever it holds; dividing them finds none that is to blame.
		return true
	}
	return false
}

// canceled is what a statement ends with that took too long. We cancel none
// ourselves, see withoutCancel.
const canceled = "57014"

// lockNotAvailable is what a statement ends with that waited too long for a lock.
const lockNotAvailable = "55P03"

// tooManyConnections is what a connection ends with for which the server, or the login, has no
// session free.
const tooManyConnections = "53300"

// fromCode reads a SQLSTATE; see appendix A of PostgreSQL's manual.
func fromCode(pe *pgconn.PgError, err error) error {
	switch {
	case pe.Code == "23514" && pe.ConstraintName == "" && pe.TableName == "job_executions":
		return fault.Wrap(fault.Internal, NoPartition, "no partition holds the row", err)
	case pe.Code == "23505":
		return fault.Wrap(fault.Conflict, fault.CodeConflict, "it exists already", err)
	case pe.Code == "40001", pe.Code == "40P01", pe.Code == "55P03", pe.Code == canceled,
		pe.Code == "25P03", pe.Code == "25006",
		pe.Code[:2] == "08", pe.Code[:2] == "53", pe.Code[:2] == "57", pe.Code[:2] == "58":
		return fault.Wrap(fault.Unavailable, "", "the database is busy or restarting", err)
	default:
		return err
	}
}
