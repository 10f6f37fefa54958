package schedctl

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	"github.com/spf13/cobra"

	"github.com/scheduler-service/scheduler/api/client"
	"github.com/scheduler-service/scheduler/internal/clock"
)

// finding is one thing that the doctor looked at.
type finding struct {
	Well bool   `json:"well"`
	What string `json:"what"`
	// Do is the way out; empty where all is well.
	Do string `json:"do,omitempty"`
}

// wellLag is the promotion lag, in seconds, from which on runs are late.
const wellLag = 1

// clockMost is how far this machine's clock may be from the service's.
const clockMost = 5 * time.Second

// doctor says what is wrong with an installation, or with one job.
func (s *session) doctor() *cobra.Command {
	return &cobra.Command{
		Use: "doctor [JOB]", Short: "Say what is wrong with the installation, or why a job does not run",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 1 {
				return misuse("schedctl doctor: at most one job, not %d", len(args))
			}
			return nil
		},
		RunE: func(command *cobra.Command, args []string) error {
			service, err := s.reach()
			if err != nil {
				return err
			}
			var found []finding
			if len(args) == 0 {
				found = examine(command.Context(), service)
			} else if found, err = examineJob(command.Context(), service, args[0]); err != nil {
				return err
			}
			return s.report(found)
		},
	}
}

// report shows the findings; something that is not well is exit code 1.
func (s *session) report(found []finding) error {
	ill := 0
	for _, f := range found {
		if !f.Well {
			ill++
		}
	}
	if s.output != "table" {
		show, err := s.printer()
		if err != nil {
			return err
		}
		text, err := json.Marshal(map[string]any{"items": found})
		if err != nil {
			return err
		}
		answer, err := decode(text)
		if err != nil {
			return err
		}
		if err := show(answer, nil); err != nil {
			return err
		}
	} else {
		for _, f := range found {
			mark := "ok  "
			if !f.Well {
				mark = "FIX "
			}
			fmt.Fprintln(s.env.Out, mark+plain(f.What))
			if f.Do != "" {
				fmt.Fprintln(s.env.Out, "    -> "+plain(f.Do))
			}
		}
	}
	if ill > 0 {
		return code{exit: exitFailed}
	}
	return nil
}

// read asks for one object into into.
func read(ctx context.Context, service *client.Client, path string, into any) error {
	text, err := service.Call(ctx, http.MethodGet, path, nil, nil, nil)
	if err != nil {
		return err
	}
	return json.NewDecoder(bytes.NewReader(text)).Decode(into)
}

// examine looks at an installation: is it there, does it know the token, is it on time,
// and does somebody work.
func examine(ctx context.Context, service *client.Client) []finding {
	var found []finding
	var health struct {
		Status       string                     `json:"status"`
		Dependencies map[string]json.RawMessage `json:"dependencies"`
	}
	if err := read(ctx, service, "/health", &health); err != nil {
		return append(found, finding{false, "the service does not answer: " + err.Error(), "Is the address right (--url), and does the API run there?"})
	}
	found = append(found, finding{What: "the service answers: " + health.Status, Well: health.Status == "healthy" || health.Status == "ok" || health.Status == "up"})
	if !found[0].Well {
		found[0].Do = "GET /health names the part that is away"
	}
	var status struct {
		Time                string   `json:"time"`
		Version             string   `json:"version"`
		PromotionLagSeconds *float64 `json:"promotionLagSeconds"`
		ActiveWorkers       int      `json:"activeWorkers"`
	}
	if err := read(ctx, service, base+"/status", &status); err != nil {
		return append(found, finding{false, "the token is not good for /status: " + err.Error(), "Is it of this installation, not expired, and of a tenant that exists?"})
	}
	found = append(found, finding{Well: true, What: "the token is good; the service is version " + status.Version})
	if at, err := time.Parse(time.RFC3339Nano, status.Time); err == nil {
		away := clock.Now().Sub(at).Abs()
		found = append(found, verdict(away <= clockMost, fmt.Sprintf("the clocks here and there are %s apart", away.Round(time.Second)),
			"Set the clock of one of the two machines by NTP."))
	}
	found = append(found, verdict(status.ActiveWorkers > 0, fmt.Sprintf("%d workers live", status.ActiveWorkers), "Start a worker; without one nothing runs."))
	switch lag := status.PromotionLagSeconds; {
	case lag == nil:
		found = append(found, finding{false, "nobody knows how late promotion is", "Does a promoter run? It says so within a minute."})
	default:
		found = append(found, verdict(*lag < wellLag, fmt.Sprintf("promotion is %.1f s late", *lag), "Look at the promoters' log, and at PostgreSQL's load."))
	}
	return found
}

func verdict(well bool, what, otherwise string) finding {
	if well {
		return finding{Well: true, What: what}
	}
	return finding{Well: false, What: what, Do: otherwise}
}

// examineJob says why a job does not run: its state, its schedule, its last runs.
func examineJob(ctx context.Context, service *client.Client, id string) ([]finding, error) {
	var job struct {
		Name            string  `json:"name"`
		Status          string  `json:"status"`
		StatusReason    *string `json:"statusReason"`
		NextExecutionAt *string `json:"nextExecutionAt"`
		Trigger         *string `json:"trigger"`
	}
	path := base + "/jobs/" + id
	if err := read(ctx, service, path, &job); err != nil {
		return nil, err
	}
	reason := ""
	if job.StatusReason != nil {
		reason = ": " + *job.StatusReason
	}
	found := []finding{verdict(job.Status == "active", fmt.Sprintf("%q is %s%s", job.Name, job.Status, reason), "schedctl jobs resume "+id)}
	switch {
	case job.Trigger != nil:
		found = append(found, finding{Well: true, What: "it has no schedule and runs when it is triggered"})
	case job.NextExecutionAt != nil:
		found = append(found, finding{Well: true, What: "it runs next at " + *job.NextExecutionAt})
	default:
		found = append(found, finding{false, "it has no next run", "schedctl jobs next " + id + " says what its schedule gives"})
	}
	var runs struct {
		Items []struct {
			ID, Status   string
			Reason       *string
			ErrorType    *string
			ErrorMessage *string
			WaitingOn    json.RawMessage
		}
	}
	if err := read(ctx, service, path+"/executions", &runs); err != nil {
		return nil, err
	}
	if len(runs.Items) == 0 {
		return append(found, finding{Well: true, What: "it has no execution yet"}), nil
	}
	last := runs.Items[0]
	what := fmt.Sprintf("its newest execution %s is %s", last.ID, last.Status)
	for _, more := range []*string{last.Reason, last.ErrorType, last.ErrorMessage} {
		if more != nil && *more != "" {
			what += ": " + *more
		}
	}
	if len(last.WaitingOn) > 0 && string(last.WaitingOn) != "null" {
		what += "; it waits on " + string(last.WaitingOn)
	}
	return append(found, verdict(last.Status != "failed" && last.Status != "missed", what, "schedctl executions get "+last.ID)), nil
}
