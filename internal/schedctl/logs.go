package schedctl

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"

	"github.com/spf13/cobra"

	"github.com/scheduler-service/scheduler/api/client"
	"github.com/scheduler-service/scheduler/internal/clock"
)

const (
	// followAgain is the pause before a stream that broke off is asked for again.
	followAgain = time.Second
	// maxEvent bounds one event of a stream, in bytes.
	maxEvent = 1 << 20
)

// logs is one reading of an execution's output.
type logs struct {
	session *session
	path    string
	query   url.Values
	raw     bool
	stamps  bool
	last    string // the id of the last line that was shown
}

// logsCommand shows the output of an execution.
func (s *session) logsCommand() *cobra.Command {
	command := &cobra.Command{
		Use: "logs ID", Short: "Show the output of an execution; its standard error goes to that of this program", Args: exactly(1),
	}
	flags := command.Flags()
	follow := flags.Bool("follow", false, "go on until the execution has ended")
	raw := flags.Bool("raw", false, "leave escape sequences in")
	stamps := flags.Bool("timestamps", false, "show when each line was written")
	attempt := flags.Int("attempt", 0, "only of this attempt; 0: of all")
	stream := flags.String("stream", "", "only of this one: stdout, stderr or log")
	command.RunE = func(command *cobra.Command, args []string) error {
		service, err := s.reach()
		if err != nil {
			return err
		}
		l := logs{session: s, path: base + "/executions/" + url.PathEscape(args[0]) + "/logs", query: url.Values{}, raw: *raw, stamps: *stamps}
		if *attempt > 0 {
			l.query.Set("attempt", fmt.Sprint(*attempt))
		}
		if *stream != "" {
			l.query.Set("stream", *stream)
		}
		if *follow {
			return l.follow(command.Context())
		}
		return l.all(command.Context(), service)
	}
	return command
}

// logLine is a line of output as the API answers it.
type logLine struct {
	At      string `json:"at"`
	Stream  string `json:"stream"`
	Text    string `json:"text"`
	Dropped *struct {
		Lines int   `json:"lines"`
		Bytes int64 `json:"bytes"`
	} `json:"dropped"`
}

// all shows the lines that there are, page by page.
func (l *logs) all(ctx context.Context, service *client.Client) error {
	for {
		text, err := service.Call(ctx, http.MethodGet, l.path, l.query, nil, nil)
		if err != nil {
			return err
		}
		var page struct {
			Items      []logLine `json:"items"`
			NextCursor *string   `json:"nextCursor"`
			HasMore    bool      `json:"hasMore"`
		}
		if err := json.Unmarshal(text, &page); err != nil {
			return fmt.Errorf("read the output: %w", err)
		}
		for _, line := range page.Items {
			l.show(line)
		}
		if !page.HasMore || page.NextCursor == nil {
			return nil
		}
		l.query.Set("cursor", *page.NextCursor)
	}
}

// follow shows the lines that there are and those that come, until the execution has
// ended. A stream that breaks off is asked for again, from the line after the last one.
func (l *logs) follow(ctx context.Context) error {
	p, err := l.session.target()
	if err != nil {
		return err
	}
	service, err := client.New(client.Config{URL: p.URL, Token: p.Token, HTTP: &http.Client{}}) // a stream has no end of its own
	if err != nil {
		return err
	}
	l.query.Set("follow", "true")
	for ctx.Err() == nil {
		header := http.Header{"Accept": {"text/event-stream"}}
		if l.last != "" {
			header.Set("Last-Event-ID", l.last)
		}
		stream, err := service.Open(ctx, http.MethodGet, l.path, l.query, header, nil)
		var refusal *client.Error
		if errors.As(err, &refusal) {
			return err
		}
		if err == nil {
			ended, err := l.events(stream)
			_ = stream.Close() // it is read
			if ended || err != nil {
				return err
			}
		}
		clock.Sleep(ctx, followAgain)
	}
	return nil
}

// events shows the lines of a stream, and says whether the execution has ended. An event
// that was cut off is not shown: it comes again.
func (l *logs) events(stream io.Reader) (ended bool, err error) {
	scanner := bufio.NewScanner(stream)
	scanner.Buffer(nil, maxEvent)
	event, id, data := "", "", []byte(nil)
	for scanner.Scan() {
		name, value, _ := bytes.Cut(scanner.Bytes(), []byte(":"))
		value = bytes.TrimPrefix(value, []byte(" "))
		switch {
		case string(name) == "event":
			event = string(value)
		case string(name) == "data":
			data = append(data, value...)
		case string(name) == "id":
			id = string(value)
		case len(scanner.Bytes()) > 0: // a comment, or nothing of ours
		case event == "line":
			var line logLine
			if err := json.Unmarshal(data, &line); err != nil {
				return false, fmt.Errorf("read a line of the stream: %w", err)
			}
			l.show(line)
			l.last, event, data = id, "", nil
		case event == "end":
			return true, nil
		case event == "expired":
			return false, code{exitNotAllowed, errors.New("the token is no longer good")}
		default:
			event, data = "", nil
		}
	}
	return false, nil // it broke off
}

// show writes a line to the output that it came from.
func (l *logs) show(line logLine) {
	out := l.session.env.Out
	if line.Stream == "stderr" {
		out = l.session.env.Err
	}
	text := line.Text
	if line.Dropped != nil {
		text = fmt.Sprintf("(%d lines, %d bytes were not kept)", line.Dropped.Lines, line.Dropped.Bytes)
	}
	if !l.raw {
		text = plain(text)
	}
	if l.stamps {
		text = line.At + " " + text
	}
	fmt.Fprintln(out, text)
}
