package app

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/google/uuid"

	"github.com/scheduler-service/scheduler/internal/audit"
)

// verifyAudit follows the records of all tenants to their ends. It writes an
// anchor a line, to be kept elsewhere, and takes the file of an earlier run,
// whose anchors must still be in the records. It fails where a record does not
// hold.
func verifyAudit(ctx context.Context, o Order) error {
	anchors := make(map[uuid.UUID][]audit.Link)
	for _, name := range o.Args {
		if err := readAnchors(name, anchors); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	db, err := engineOf(ctx, o.Config)
	if err != nil {
		return err
	}
	defer db.Close()
	var unwritten error
	checked, problems := 0, 0
	err = audit.VerifyAll(ctx, db, anchors, func(tenant uuid.UUID, r audit.Report) {
		checked += r.Checked
		if p := r.Problem; p != nil {
			problems++
			o.Log.ErrorContext(ctx, "a record does not hold", "tenant_id", tenant, "shard", r.Last.Shard, "seq", p.Seq, "kind", p.Kind, "problem", p.Message)
		} else if r.Last.Seq > 0 {
			_, failed := fmt.Fprintln(o.Out, tenant, r.Last)
			unwritten = errors.Join(unwritten, failed)
		}
	})
	if err = errors.Join(err, unwritten); err != nil {
		return err
	}
	o.Log.InfoContext(ctx, "audit log verified", "entries", checked, "problems", problems)
	if problems > 0 {
		return fmt.Errorf("%d shards of the audit log do not hold", problems)
	}
	return nil
}

// readAnchors reads what an earlier run wrote.
func readAnchors(name string, into map[uuid.UUID][]audit.Link) error {
	file, err := os.Open(name)
	if err != nil {
		return err
	}
	defer file.Close() // it was only read
	return scanAnchors(file, into)
}

func scanAnchors(from io.Reader, into map[uuid.UUID][]audit.Link) error {
	lines := bufio.NewScanner(from)
	for n := 1; lines.Scan(); n++ {
		id, text, _ := strings.Cut(strings.TrimSpace(lines.Text()), " ")
		if id == "" {
			continue
		}
		tenant, err := uuid.Parse(id)
		if err != nil {
			return fmt.Errorf("line %d does not begin with a tenant's id", n)
		}
		link, err := audit.ParseLink(text)
		if err != nil {
			return fmt.Errorf("line %d %w", n, err)
		}
		into[tenant] = append(into[tenant], link)
	}
	return lines.Err()
}
