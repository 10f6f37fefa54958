package schedctl

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/scheduler-service/scheduler/api/client"
	"github.com/scheduler-service/scheduler/internal/clock"
)

const (
	// lookFirst and lookMost are the pauses between two looks at what is waited for;
	// they grow by half.
	lookFirst = 200 * time.Millisecond
	lookMost  = 2 * time.Second
	// watchEvery is the pause between two looks at a list.
	watchEvery = 2 * time.Second
	barWidth   = 30
)

// awaited is what a call made and can be waited for.
type awaited struct {
	// path is where it is looked at: {id} is its own, others are arguments of the call.
	path string
	// over is the field that is set once it has ended.
	over string
}

var (
	awaitExecution = &awaited{path: "/executions/{id}", over: "completedAt"}
	awaitBackfill  = &awaited{path: "/jobs/{job}/backfills/{id}", over: "finishedAt"}
)

// waitFlags are those of a command that can wait.
func waitFlags(command *cobra.Command) {
	command.Flags().Bool("wait", false, "wait until it has ended; the exit code is 3 unless it completed")
	command.Flags().Duration("wait-timeout", 0, "wait at most so long, such as 90s; 0: for ever")
}

// await looks at what a call made until it has ended.
func (s *session) await(command *cobra.Command, service *client.Client, c call, args []string, made any) (any, error) {
	object, _ := made.(map[string]any)
	id, _ := object["id"].(string)
	if id == "" { // nothing was made, as by a dry run
		return made, nil
	}
	path := strings.ReplaceAll(c.wait.path, "{id}", url.PathEscape(id))
	if len(args) > 0 {
		path = strings.ReplaceAll(path, "{job}", url.PathEscape(args[0]))
	}
	ctx := command.Context()
	if most, _ := command.Flags().GetDuration("wait-timeout"); most > 0 { // it is defined above
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, most, fmt.Errorf("it has not ended within %s; it goes on", most))
		defer cancel()
	}
	return s.look(ctx, service, base+path, c.wait.over)
}

// look asks for an object until its field over is set.
func (s *session) look(ctx context.Context, service *client.Client, path, over string) (any, error) {
	for pause := lookFirst; ; pause = min(pause*3/2, lookMost) {
		text, err := service.Call(ctx, http.MethodGet, path, nil, nil, nil)
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		if err != nil {
			return nil, err
		}
		answer, err := decode(text)
		if err != nil {
			return nil, err
		}
		object, _ := answer.(map[string]any)
		s.progress(object)
		if object[over] != nil {
			s.progressEnds(object)
			return answer, nil
		}
		if clock.Sleep(ctx, pause); ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
	}
}

// progress draws how far something is, for a person only.
func (s *session) progress(object map[string]any) {
	percent, ok := number(object["progress"])
	if !ok || !s.env.Terminal {
		return
	}
	done := min(max(int(percent), 0), 100) * barWidth / 100
	fmt.Fprintf(s.env.Err, "\r[%s%s] %3.0f %%", strings.Repeat("#", done), strings.Repeat(".", barWidth-done), percent)
}

func (s *session) progressEnds(object map[string]any) {
	if _, ok := number(object["progress"]); ok && s.env.Terminal {
		fmt.Fprintln(s.env.Err)
	}
}

// endedWell says whether what was waited for completed.
func endedWell(answer any) bool {
	object, _ := answer.(map[string]any)
	return object["status"] == "completed"
}

// watch shows a list and then each item that is new or has another status, until ctx
// ends.
func (s *session) watch(ctx context.Context, service *client.Client, r request, limit int, columns []column) error {
	show, err := s.printer()
	if err != nil {
		return err
	}
	if limit == 0 {
		limit = pageSize
	}
	known := map[string]any{}
	for {
		r.query.Del("cursor")
		answer, err := list(ctx, service, r, limit)
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return err
		}
		items, _ := answer.(map[string]any)["items"].([]any)
		var news []any
		now := make(map[string]any, len(items))
		for _, item := range items {
			object, _ := item.(map[string]any)
			id, _ := object["id"].(string)
			now[id] = object["status"]
			if status, seen := known[id]; !seen || status != object["status"] {
				news = append(news, item)
			}
		}
		known = now
		if len(news) > 0 {
			slices.Reverse(news) // the newest stands last, as in a log
			if err := show(map[string]any{"items": news}, columns); err != nil {
				return err
			}
		}
		if clock.Sleep(ctx, watchEvery); ctx.Err() != nil {
			return nil
		}
	}
}

// waitCommand waits for an execution that somebody else made.
func (s *session) waitCommand() *cobra.Command {
	command := &cobra.Command{Use: "wait ID", Short: "Wait until an execution has ended; the exit code is 3 unless it completed", Args: exactly(1)}
	most := command.Flags().Duration("wait-timeout", 0, "wait at most so long, such as 90s; 0: for ever")
	command.RunE = func(command *cobra.Command, args []string) error {
		show, err := s.printer()
		if err != nil {
			return err
		}
		service, err := s.reach()
		if err != nil {
			return err
		}
		ctx := command.Context()
		if *most > 0 {
			var cancel context.CancelFunc
			ctx, cancel = context.WithTimeoutCause(ctx, *most, fmt.Errorf("it has not ended within %s; it goes on", *most))
			defer cancel()
		}
		answer, err := s.look(ctx, service, base+"/executions/"+url.PathEscape(args[0]), awaitExecution.over)
		if err != nil {
			return err
		}
		if err := show(answer, executionColumns); err != nil {
			return err
		}
		if !endedWell(answer) {
			return code{exit: exitEnded}
		}
		return nil
	}
	return command
}

// number is a value of an answer as a number.
func number(value any) (float64, bool) {
	text, ok := value.(json.Number)
	if !ok {
		return 0, false
	}
	n, err := text.Float64()
	return n, err == nil
}
