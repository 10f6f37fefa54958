package schedctl

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"

	"github.com/scheduler-service/scheduler/api/client"
	"github.com/scheduler-service/scheduler/internal/importer"
)

// intake is how the entries of a file become jobs.
type intake struct {
	format, zone string
	// as is the job type; url is where an http job of it goes.
	as, url string
	tags    []string
	create  bool
}

// importCommand turns the schedules of other schedulers into jobs.
func (s *session) importCommand() *cobra.Command {
	var in intake
	command := &cobra.Command{
		Use: "import FORMAT FILE", Short: "Turn the schedules of another scheduler into jobs",
		Long: `Turns the schedules of another scheduler into jobs, and writes them as YAML,
one document each. With --create it makes them.

Formats: ` + strings.Join(importer.Formats(), ", ") + `.

A schedule that a job cannot say is named with its line on the standard error and
left out: nothing is approximated. Then the exit code is 2.`,
		Args: exactly(2),
		RunE: func(command *cobra.Command, args []string) error {
			in.format = args[0]
			return s.takeIn(command, in, args[1])
		},
	}
	flags := command.Flags()
	flags.StringVar(&in.zone, "timezone", "UTC", "the zone of schedules that name none")
	flags.StringVar(&in.as, "as", "command", "the type of the jobs: command, or http, which sends what would run to --target")
	flags.StringVar(&in.url, "target", "", "with --as http: the URL that is called")
	flags.StringSliceVar(&in.tags, "tag", nil, "a tag for each job; may be given several times")
	flags.BoolVar(&in.create, "create", false, "make the jobs instead of writing them")
	return command
}

func (s *session) takeIn(command *cobra.Command, in intake, file string) error {
	if in.as != "command" && in.as != "http" || in.as == "http" && in.url == "" {
		return misuse("--as is command, or http with --target URL")
	}
	text, err := s.read(file)
	if err != nil {
		return err
	}
	entries, notes, err := importer.Read(in.format, string(text), in.zone)
	if err != nil {
		return misuse("%s: %w", file, err)
	}
	var jobs [][]byte
	for _, e := range entries {
		if in.as == "command" && len(e.Args) == 0 {
			notes = append(notes, importer.Note{Line: e.Line, Left: true, Text: e.Name + " names no command: use --as http --target URL"})
			continue
		}
		job, err := json.Marshal(in.job(e))
		if err != nil {
			return err
		}
		jobs = append(jobs, job)
		if e.Suspended {
			notes = append(notes, importer.Note{Line: e.Line, Text: "it is suspended there: pause the job"})
		}
	}
	left := 0
	for _, n := range notes {
		if n.Left {
			left++
		}
		fmt.Fprintf(s.env.Err, "%s: %s\n", plain(file), plain(n.String()))
	}
	if err := s.giveOut(command, in, jobs); err != nil {
		return err
	}
	fmt.Fprintf(s.env.Err, "%d imported, %d left out\n", len(jobs), left)
	if left > 0 {
		return code{exit: exitDiffers}
	}
	return nil
}

// read reads a file of the user, or the standard input.
func (s *session) read(file string) ([]byte, error) {
	in := s.env.In
	if file == "" {
		return nil, misuse("which file? Name it with -f, or use -f - for the standard input")
	}
	if file != "-" {
		opened, err := os.Open(file) //nolint:gosec // the user's own file
		if err != nil {
			return nil, misuse("%w", err)
		}
		defer func() { _ = opened.Close() }() // it is read
		in = opened
	}
	text, err := io.ReadAll(io.LimitReader(in, maxFile+1))
	if err == nil && len(text) > maxFile {
		err = fmt.Errorf("%s is longer than %d MiB", file, maxFile>>20)
	}
	if err != nil {
		return nil, misuse("%w", err)
	}
	return text, nil
}

// giveOut writes the jobs, or makes them.
func (s *session) giveOut(command *cobra.Command, in intake, jobs [][]byte) error {
	if !in.create {
		for i, job := range jobs {
			text, err := yaml.JSONToYAML(job)
			if err != nil {
				return err
			}
			if i > 0 {
				fmt.Fprintln(s.env.Out, "---")
			}
			if _, err := io.Copy(s.env.Out, bytes.NewReader(text)); err != nil {
				return err
			}
		}
		return nil
	}
	service, err := s.reach()
	if err != nil {
		return err
	}
	for _, job := range jobs {
		header := http.Header{"Idempotency-Key": {*client.Key()}, "Content-Type": {"application/json"}}
		made, err := service.Call(command.Context(), http.MethodPost, base+"/jobs", nil, header, job)
		if err != nil {
			return fmt.Errorf("%s: %w", job, err)
		}
		var answer struct{ ID, Name string }
		if err := json.Unmarshal(made, &answer); err != nil {
			return err
		}
		fmt.Fprintf(s.env.Out, "%s  %s\n", answer.ID, plain(answer.Name))
	}
	return nil
}

// job is an entry as the API takes it.
func (in intake) job(e importer.Entry) map[string]any {
	job := map[string]any{"name": e.Name, "jobType": in.as, "config": in.config(e)}
	set := func(name string, value any, isSet bool) {
		if isSet {
			job[name] = value
		}
	}
	set("cronExpression", e.Cron, e.Cron != "")
	set("timezone", e.Zone, e.Cron != "")
	set("interval", e.Interval.String(), e.Interval > 0)
	set("runAt", e.RunAt.Format(time.RFC3339), !e.RunAt.IsZero())
	set("startDate", e.Start.Format(time.RFC3339), !e.Start.IsZero())
	set("endDate", e.End.Format(time.RFC3339), !e.End.IsZero())
	set("jitterSeconds", int(e.Jitter.Seconds()), e.Jitter > 0)
	set("misfireGraceSeconds", int(e.Grace.Seconds()), e.Grace > 0)
	set("misfirePolicy", e.Misfire, e.Misfire != "")
	set("overlapPolicy", e.Overlap, e.Overlap != "")
	set("timeout", int(e.Timeout.Seconds()), e.Timeout > 0)
	set("retryConfig", map[string]any{"maxRetries": e.Retries}, e.Retries >= 0)
	set("tags", in.tags, len(in.tags) > 0)
	return job
}

// config says what the job does: the same command, or a call that names it.
func (in intake) config(e importer.Entry) map[string]any {
	if in.as == "http" {
		body := map[string]any{"name": e.Name}
		if len(e.Args) > 0 {
			body["args"] = e.Args
		}
		if e.Input != "" {
			body["input"] = e.Input
		}
		return map[string]any{"url": in.url, "method": http.MethodPost, "body": body}
	}
	config := map[string]any{"command": e.Args[0], "args": e.Args[1:]}
	if len(e.Env) > 0 {
		config["environment"] = e.Env
	}
	return config
}
