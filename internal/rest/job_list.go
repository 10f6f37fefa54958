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
	filter, err := jobFilter(&p)
	if err != nil {
		return nil, err
	}
	if p.Sort != nil {
		filter.Sort, filter.Descending = strings.CutPrefix(string(*p.Sort), "-")
	}
	filter.Limit = page.limit
	if page.after != nil {
		filter.After = &job.Position{CreatedAt: page.after.At, Key: page.after.Text, ID: page.after.ID}
	}
	list, err := s.Jobs.List(ctx, c.who.Actor, filter)
	if err != nil {
		return nil, err
	}
	var total *int
	if unconditional := (api.ListJobsParams{Limit: p.Limit, Sort: p.Sort}); p == unconditional {
		n, err := s.totalOf(ctx, c, &list)
		if err != nil {
			return nil, err
		}
		total = &n
	}
	next := s.onward(page, placeOfJob(list.Next))
	answer := api.ListJobs200JSONResponse{Total: total, Items: make([]api.Job, len(list.Jobs)), NextCursor: next, HasMore: next != nil}
	for i := range list.Jobs {
		showJob(&answer.Items[i], &list.Jobs[i])
	}
	return answer, nil
}

// totalOf is how many jobs a tenant has.
func (s *server) totalOf(ctx context.Context, c *call, list *job.Page) (int, error) {
	if list.Total != nil {
		return *list.Total, nil
	}
	return s.Jobs.Count(ctx, c.who.Actor)
}

func placeOfJob(at *job.Position) *cursor.Place {
	if at == nil {
		return nil
	}
	return &cursor.Place{At: at.CreatedAt, Text: at.Key, ID: at.ID}
}

// jobFilter takes the conditions on jobs from the parameters of a list or from the
// filter of a bulk call, given by its address, by their names in the contract. The
// newest jobs come first.
func jobFilter(conditions any) (job.Filter, error) {
	filter := job.Filter{Sort: "createdAt", Descending: true}
	if err := carry(&filter, conditions); err != nil {
		return filter, err
	}
	fields := disordered("createdTo", filter.CreatedFrom, filter.CreatedTo)
	fields = append(fields, disordered("nextExecutionTo", filter.UpcomingFrom, filter.UpcomingTo)...)
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
