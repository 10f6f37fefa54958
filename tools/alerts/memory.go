package main

import (
	"cmp"
	"context"
	"errors"
	"io"
	"math"
	"slices"

	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/textparse"
	"github.com/prometheus/prometheus/model/value"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb/chunkenc"
	"github.com/prometheus/prometheus/tsdb/chunks"
	"github.com/prometheus/prometheus/util/annotations"
)

// memory keeps every series that was scraped.
type memory struct {
	series   map[string]*kept
	answered map[string]map[string]bool // the series of the last scrape, by instance
}

type kept struct {
	labels  labels.Labels
	samples []chunks.Sample
}

func newMemory() *memory {
	return &memory{series: map[string]*kept{}, answered: map[string]map[string]bool{}}
}

// append keeps one scrape. A series that it does not have any more is stale, as all
// are where nobody answered.
func (m *memory) append(at int64, s scrape) error {
	up, now := 0.0, map[string]bool{}
	if s.Up {
		up = 1
		p := textparse.NewPromParser([]byte(s.Text), labels.NewSymbolTable(), false)
		for {
			entry, err := p.Next()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				return err
			}
			if entry != textparse.EntrySeries {
				continue
			}
			var of labels.Labels
			p.Labels(&of)
			_, _, v := p.Series()
			now[m.add(of, s.Instance, at, v)] = true
		}
	}
	for key := range m.answered[s.Instance] {
		if !now[key] {
			gone := m.series[key]
			gone.samples = append(gone.samples, sample{at, math.Float64frombits(value.StaleNaN)})
		}
	}
	m.answered[s.Instance] = now
	m.add(labels.FromStrings(labels.MetricName, "up"), s.Instance, at, up)
	return nil
}

func (m *memory) add(of labels.Labels, instance string, at int64, v float64) (key string) {
	b := labels.NewBuilder(of)
	b.Set("instance", instance)
	b.Set("job", "scheduler")
	all := b.Labels()
	key = all.String()
	found, ok := m.series[key]
	if !ok {
		found = &kept{labels: all}
		m.series[key] = found
	}
	found.samples = append(found.samples, sample{at, v})
	return key
}

// Querier implements storage.Queryable.
func (m *memory) Querier(from, to int64) (storage.Querier, error) { return &querier{m, from, to}, nil }

type querier struct {
	of       *memory
	from, to int64
}

// Select implements storage.Querier.
func (q *querier) Select(_ context.Context, _ bool, _ *storage.SelectHints, matchers ...*labels.Matcher) storage.SeriesSet {
	found := &set{at: -1}
	for _, k := range q.of.series {
		if slices.ContainsFunc(matchers, func(m *labels.Matcher) bool { return !m.Matches(k.labels.Get(m.Name)) }) {
			continue
		}
		from, _ := slices.BinarySearchFunc(k.samples, q.from, func(s chunks.Sample, at int64) int { return cmp.Compare(s.T(), at) })
		to, _ := slices.BinarySearchFunc(k.samples, q.to+1, func(s chunks.Sample, at int64) int { return cmp.Compare(s.T(), at) })
		if from < to {
			found.all = append(found.all, storage.NewListSeries(k.labels, k.samples[from:to]))
		}
	}
	slices.SortFunc(found.all, func(a, b storage.Series) int { return labels.Compare(a.Labels(), b.Labels()) })
	return found
}

// LabelValues implements storage.Querier; no rule asks for it.
func (q *querier) LabelValues(context.Context, string, *storage.LabelHints, ...*labels.Matcher) ([]string, annotations.Annotations, error) {
	return nil, nil, errors.ErrUnsupported
}

// LabelNames is the same.
func (q *querier) LabelNames(context.Context, *storage.LabelHints, ...*labels.Matcher) ([]string, annotations.Annotations, error) {
	return nil, nil, errors.ErrUnsupported
}

// Close implements storage.Querier.
func (q *querier) Close() error { return nil }

type set struct {
	all []storage.Series
	at  int
}

func (s *set) Next() bool                        { s.at++; return s.at < len(s.all) }
func (s *set) At() storage.Series                { return s.all[s.at] }
func (s *set) Err() error                        { return nil }
func (s *set) Warnings() annotations.Annotations { return nil }

// sample is one number at one time.
type sample struct {
	t int64
	f float64
}

func (s sample) T() int64                      { return s.t }
func (s sample) ST() int64                     { return 0 }
func (s sample) F() float64                    { return s.f }
func (s sample) H() *histogram.Histogram       { return nil }
func (s sample) FH() *histogram.FloatHistogram { return nil }
func (s sample) Type() chunkenc.ValueType      { return chunkenc.ValFloat }
func (s sample) Copy() chunks.Sample           { return s }
