package rest

import (
	"net/url"
	"slices"

	"github.com/scheduler-service/scheduler/internal/fault"
	"github.com/scheduler-service/scheduler/internal/rest/cursor"
)

// defaultLimit is how many items a page has where the caller does not say.
const defaultLimit = 20

// page is what a caller wants to see of a list.
type page struct {
	list  cursor.List
	limit int
	after *cursor.Place // nil for the first page
}

// openPage reads limit and cursor. A cursor that is not this tenant's, of this
// list and of these filters is refused.
func (s *server) openPage(c *call, limit *int, at *string) (page, error) {
	p := page{
		list:  cursor.List{Tenant: c.who.Actor.TenantID, Route: c.url.Path, Filters: filtersOf(c.url.Query())},
		limit: defaultLimit,
	}
	override(&p.limit, limit)
	if at == nil {
		return p, nil
	}
	place, err := s.cursors.Decode(p.list, *at)
	if err != nil {
		return p, wrong(fault.Field{Path: "cursor", Rule: "cursor", Message: "is not a cursor of this list with these filters"})
	}
	p.after = &place
	return p, nil
}

// filtersOf is a canonical form of everything in a query that selects items.
func filtersOf(query url.Values) string {
	query.Del("cursor")
	query.Del("limit")
	query.Del("include") // selects what is shown of items, not items
	for _, values := range query {
		slices.Sort(values)
	}
	return query.Encode()
}

// cut shortens a list that was read one longer than the page, and makes the cursor
// of the next page where there is one.
func cut[T any](s *server, p page, items []T, place func(T) cursor.Place) ([]T, *string) {
	if len(items) <= p.limit {
		return items, nil
	}
	items = items[:p.limit]
	next := s.cursors.Encode(p.list, place(items[len(items)-1]))
	return items, &next
}

// onward is the cursor of the next page where the list says itself where that
// begins; nil: there is none.
func (s *server) onward(p page, next *cursor.Place) *string {
	if next == nil {
		return nil
	}
	text := s.cursors.Encode(p.list, *next)
	return &text
}
