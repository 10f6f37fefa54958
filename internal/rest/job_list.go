package rest

import (
	"context"
	"strings"
	"time"

	"github.com/scheduler-service/scheduler/api"
	"github.com/scheduler-service/scheduler/internal/fault"
	"github.com/scheduler-service/scheduler/internal/job"
	"github.com/scheduler-service/scheduler/internal/rest/cursor"
)

// ListJobs is GET /jobs.
func (s *server) ListJobs(ctx context.Context, request api.ListJobsRequestObject) (api.ListJobsResponseObject, error) {
	c, p := callOf(ctx), request.Params
	page, err := s.openPage(c, p.Limit, p.Cursor)
	if err != nil {
		return nil, err
	}
	filter, err := jobFilter(p)
	if err != nil {
		return nil, err
	}
	filter.Limit = page.limit
	if page.after != nil {
		filter.After = &job.Position{CreatedAt: page.after.At, Key: page.after.Text, ID: page.after.ID}
	}
	jobs, after, err := s.Jobs.List(ctx, c.who.Actor, filter)
	if err != nil {
		return nil, err
	}
	next := s.onward(page, placeOfJob(after))
	answer := api.ListJobs200JSONResponse{Items: make([]api.Job, len(jobs)), NextCursor: orNull(next), HasMore: next != nil}
	for i, one := range jobs {
		answer.Items[i] = viewJob(one.Job)
	}
	return answer, nil
}

func placeOfJob(at *job.Position) *cursor.Place {
	if at == nil {
		return nil
	}
	return &cursor.Place{At: at.CreatedAt, Text: at.Key, ID: at.ID}
}

func jobFilter(p api.ListJobsParams) (job.Filter, error) {
	filter := job.Filter{
		Tags: orZero(p.Tags), AnyTag: orZero(p.TagMatch) == "any", Text: orZero(p.Q), CreatedBy: orZero(p.CreatedBy),
		CreatedFrom: p.CreatedFrom, CreatedTo: p.CreatedTo, UpcomingFrom: p.NextExecutionFrom, UpcomingTo: p.NextExecutionTo,
	}
	for _, status := range orZero(p.Status) {
		filter.Statuses = append(filter.Statuses, job.Status(status))
	}
	for _, jobType := range orZero(p.JobType) {
		filter.Types = append(filter.Types, string(jobType))
	}
	sort := "-createdAt"
	if p.Sort != nil {
		sort = string(*p.Sort)
	}
	filter.Sort, filter.Descending = strings.CutPrefix(sort, "-")
	fields := disordered("createdTo", p.CreatedFrom, p.CreatedTo)
	fields = append(fields, disordered("nextExecutionTo", p.NextExecutionFrom, p.NextExecutionTo)...)
	if len(fields) > 0 {
		return filter, wrong(fields...)
	}
	return filter, nil
}

// disordered finds a range that ends where it begins, or before.
func disordered(path string, from, to *time.Time) []fault.Field {
	if from == nil || to == nil || from.Before(*to) {
		return nil
	}
	return []fault.Field{{Path: path, Rule: "order", Message: "must lie after " + strings.Replace(strings.Replace(path, "To", "From", 1), "to", "from", 1)}}
}
