package rest

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/scheduler-service/scheduler/api"
	"github.com/scheduler-service/scheduler/internal/executor"
	"github.com/scheduler-service/scheduler/internal/output"
)

// linesOfPage is how many lines a page has where the request names no limit.
const linesOfPage = 200

// ListExecutionLogs is GET /executions/{id}/logs.
func (s *server) ListExecutionLogs(ctx context.Context, request api.ListExecutionLogsRequestObject) (api.ListExecutionLogsResponseObject, error) {
	who, p := callOf(ctx).who.Actor, request.Params
	if _, err := s.Executions.Get(ctx, who, request.ID); err != nil {
		return nil, err
	}
	filter := output.Filter{After: positionOf(orZero(p.Cursor)), Attempt: orZero(p.Attempt), Limit: linesOfPage}
	override(&filter.Limit, p.Limit)
	for _, stream := range orZero(p.Stream) {
		filter.Streams = append(filter.Streams, executor.Stream(stream))
	}
	lines, to, more, err := s.Output.List(ctx, who, request.ID, filter)
	if err != nil {
		return nil, err
	}
	answer := api.ListExecutionLogs200JSONResponse{Items: make([]api.LogLine, len(lines)), HasMore: more}
	if more {
		answer.NextCursor = new(placeOfLine(to))
	}
	for i, line := range lines {
		answer.Items[i] = viewLine(line)
	}
	return answer, nil
}

func viewLine(l output.Line) api.LogLine {
	view := api.LogLine{
		ID: placeOfLine(l.Position()), Attempt: l.Attempt, Number: l.Number, At: l.At, Text: l.Text, Continues: l.Continues,
	}
	if l.Stream != "" {
		view.Stream = new(api.LogStream(l.Stream))
	}
	if l.Dropped != nil {
		view.Dropped = new(api.LogDropped{Lines: l.Dropped.Lines, Bytes: l.Dropped.Bytes})
	}
	return view
}

// placeOfLine is the id of a line.
func placeOfLine(p output.Position) string { return fmt.Sprintf("%d.%d", p.Attempt, p.Line) }

// positionOf reads the id of a line as the contract allows it; an empty one is before the first.
func positionOf(id string) (p output.Position) {
	attempt, line, _ := strings.Cut(id, ".")
	p.Attempt, _ = strconv.Atoi(attempt)
	p.Line, _ = strconv.Atoi(line)
	return p
}
