// Command exampleremote is a worker of a tenant's own, which runs outside the service: an
// example to copy. It knows an address and an API key with workers:run (SCHEDULER_URL,
// SCHEDULER_API_KEY), and nothing has to reach it.
package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/google/uuid"

	"github.com/scheduler-service/scheduler/api"
	"github.com/scheduler-service/scheduler/api/client"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Getenv("SCHEDULER_URL"), os.Getenv("SCHEDULER_API_KEY")); err != nil {
		fmt.Fprintln(os.Stderr, "exampleremote:", err)
		stop()
		os.Exit(1) // stop was called
	}
}

func run(ctx context.Context, address, key string) error {
	c, err := client.New(client.Config{URL: address, Token: key})
	if err != nil {
		return err
	}
	schema := map[string]any{"type": "object", "properties": map[string]any{"text": map[string]any{"type": "string"}}, "required": []string{"text"}}
	w := &worker{api: c, log: slog.New(slog.NewTextHandler(os.Stderr, nil)), slots: make(chan struct{}, 4), claimID: uuid.New(), running: map[string]context.CancelCauseFunc{}, functions: map[string]function{
		"count-words":  {run: countWords, description: "Counts the words of a text.", parameters: schema},
		"wait-for-end": {run: waitForEnd, description: "Goes on until somebody cancels it."},
	}}
	return w.work(ctx)
}

// countWords is a function of the worker. Its value becomes the result, as JSON.
func countWords(ctx context.Context, e api.RemoteExecution, tell teller) (any, error) {
	var text string
	if e.Parameters != nil {
		text, _ = (*e.Parameters)["text"].(string) // by the schema it is one
	}
	words := strings.Fields(text)
	tell.print(fmt.Sprintf("counts %d words", len(words)))
	for i := range words {
		if ctx.Err() != nil { // the time is up, somebody cancelled it, or the attempt was lost
			return nil, context.Cause(ctx)
		}
		tell.progress(100 * (i + 1) / len(words))
	}
	if len(words) == 0 {
		return nil, errors.New("there is no word in it")
	}
	return map[string]any{"words": len(words), "key": e.IdempotencyKey}, nil
}

func waitForEnd(ctx context.Context, _ api.RemoteExecution, tell teller) (any, error) {
	tell.progress(50)
	<-ctx.Done()
	return nil, context.Cause(ctx)
}
