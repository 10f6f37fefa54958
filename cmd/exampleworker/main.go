// Command exampleworker is a worker with functions of its own: an example to copy. Its
// configuration is that of cmd/worker.
package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/scheduler-service/scheduler/api/functions"
)

func main() {
	if code, done := functions.Inside(os.Args); done {
		os.Exit(code)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	err := functions.Run(ctx, os.LookupEnv, slog.New(slog.NewJSONHandler(os.Stderr, nil)), functions.Module{
		Path: "billing", Functions: []functions.Function{
			functions.Define("invoice", "Writes the invoices of a month.", invoice, functions.HeartbeatWithin(time.Minute)),
		},
	})
	if err != nil {
		fmt.Fprintln(os.Stderr, "exampleworker:", err)
		stop()
		os.Exit(1) // stop was called
	}
}

// month is the parameters of invoice.
type month struct {
	Year      int      `json:"year" doc:"such as 2026"`
	Month     int      `json:"month" doc:"1 to 12"`
	Form      string   `json:"form,omitempty" enum:"pdf,xml" doc:"pdf where nothing is said"`
	Customers []string `json:"customers" doc:"their numbers"`
}

// invoices is the result of invoice.
type invoices struct {
	Written int    `json:"written"`
	Key     string `json:"key"`
	Form    string `json:"form"`
}

func invoice(ctx context.Context, call functions.Call, m month) (invoices, error) {
	if m.Month < 1 || m.Month > 12 {
		return invoices{}, fmt.Errorf("there is no month %d", m.Month) // not retried
	}
	form := m.Form
	if form == "" {
		form = "pdf"
	}
	for i, customer := range m.Customers {
		if ctx.Err() != nil { // the time is up, somebody cancelled it, or the worker stops
			return invoices{}, ctx.Err()
		}
		if customer == "busy" && call.Attempt == 1 {
			return invoices{}, functions.Retry(errors.New("the ledger is busy"), 10*time.Millisecond)
		}
		call.Heartbeat()
		call.Log.InfoContext(ctx, "write an invoice", "customer", customer)
		call.Progress(100*(i+1)/len(m.Customers), "invoice of "+customer)
	}
	return invoices{Written: len(m.Customers), Key: call.IdempotencyKey, Form: form}, nil
}
