package postgres

import (
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgtype"
)

// idCodec writes and reads a uuid.UUID as its 16 bytes. The driver alone prints it, as
// database/sql would have it, fails to write the text, and parses it: a sixth of the CPU of
// a worker that drained a backlog. Libraries for this change the writing only: the driver
// asks them after it took a uuid.UUID for one of database/sql's types.
type idCodec struct{ pgtype.UUIDCodec }

// PlanEncode is pgtype.Codec's.
func (c idCodec) PlanEncode(m *pgtype.Map, oid uint32, format int16, value any) pgtype.EncodePlan {
	if format == pgtype.BinaryFormatCode {
		switch value.(type) {
		case uuid.UUID:
			return idPlan{}
		case *uuid.UUID:
			return idPointerPlan{}
		}
	}
	return c.UUIDCodec.PlanEncode(m, oid, format, value)
}

// PlanScan is pgtype.Codec's.
func (c idCodec) PlanScan(m *pgtype.Map, oid uint32, format int16, target any) pgtype.ScanPlan {
	if _, ok := target.(*uuid.UUID); ok && format == pgtype.BinaryFormatCode {
		return idPlan{}
	}
	return c.UUIDCodec.PlanScan(m, oid, format, target)
}

type idPlan struct{}

// Encode is pgtype.EncodePlan's.
func (idPlan) Encode(value any, buf []byte) ([]byte, error) {
	id := value.(uuid.UUID)
	return append(buf, id[:]...), nil
}

// Scan is pgtype.ScanPlan's. NULL becomes uuid.Nil, as uuid.UUID's own Scan has it.
func (idPlan) Scan(src []byte, target any) error {
	id := target.(*uuid.UUID)
	if src == nil {
		*id = uuid.Nil
		return nil
	}
	if len(src) != len(id) {
		return fmt.Errorf("an id has %d bytes, and not %d", len(id), len(src))
	}
	copy(id[:], src)
	return nil
}

// idPointerPlan writes what a pointer points to. The driver has a detour of its own for it.
type idPointerPlan struct{}

// Encode is pgtype.EncodePlan's. A pointer to nothing is NULL.
func (idPointerPlan) Encode(value any, buf []byte) ([]byte, error) {
	id := value.(*uuid.UUID)
	if id == nil {
		return nil, nil
	}
	return append(buf, id[:]...), nil
}
