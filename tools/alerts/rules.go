package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/url"
	"slices"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/rulefmt"
	"github.com/prometheus/prometheus/model/timestamp"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/template"
)

// evaluator knows the rules, what was scraped and which alerts are active.
type evaluator struct {
	rules  []rulefmt.Rule
	engine *promql.Engine
	series *memory
	since  map[string]map[string]time.Time // by alert and labels
}

func newEvaluator(file string) (*evaluator, error) {
	p := parser.NewParser(parser.Options{})
	groups, errs := rulefmt.ParseFile(file, false, model.UTF8Validation, p, slog.New(slog.NewTextHandler(io.Discard, nil)))
	if len(errs) > 0 {
		return nil, errs[0]
	}
	e := &evaluator{
		engine: promql.NewEngine(promql.EngineOpts{MaxSamples: 50_000_000, Timeout: time.Minute, LookbackDelta: 5 * time.Minute, Parser: p}),
		series: newMemory(), since: map[string]map[string]time.Time{},
	}
	for _, g := range groups.Groups {
		e.rules = append(e.rules, g.Rules...)
	}
	return e, nil
}

// round takes what was scraped and evaluates every rule.
func (e *evaluator) round(ctx context.Context, r round) (firing map[string][]string, err error) {
	for _, s := range r.Scrapes {
		if err := e.series.append(r.At, s); err != nil {
			return nil, fmt.Errorf("scrape of %s: %w", s.Instance, err)
		}
	}
	firing = map[string][]string{}
	for _, rule := range e.rules {
		if rule.Alert == "" {
			continue
		}
		summaries, err := e.evaluate(ctx, rule, timestamp.Time(r.At))
		if err != nil {
			return nil, fmt.Errorf("%s: %w", rule.Alert, err)
		}
		if len(summaries) > 0 {
			firing[rule.Alert] = summaries
		}
	}
	return firing, nil
}

// evaluate returns the summaries of a rule's alerts that fire: those whose condition
// has held for as long as the rule says.
func (e *evaluator) evaluate(ctx context.Context, rule rulefmt.Rule, at time.Time) (summaries []string, err error) {
	q, err := e.engine.NewInstantQuery(ctx, e.series, nil, rule.Expr, at)
	if err != nil {
		return nil, err
	}
	defer q.Close()
	found, err := q.Exec(ctx).Vector()
	if err != nil {
		return nil, err
	}
	before, now := e.since[rule.Alert], map[string]time.Time{}
	for _, sample := range found {
		key := sample.Metric.String()
		since, active := before[key]
		if !active {
			since = at
		}
		now[key] = since
		if at.Sub(since) < time.Duration(rule.For) {
			continue
		}
		for _, text := range []string{rule.Annotations["summary"], rule.Annotations["description"]} {
			said, err := expand(ctx, text, sample)
			if err != nil {
				return nil, err
			}
			if said != "" && text == rule.Annotations["summary"] {
				summaries = append(summaries, said)
			}
		}
	}
	e.since[rule.Alert] = now
	slices.Sort(summaries)
	return summaries, nil
}

// expand fills in what an annotation says of a sample.
func expand(ctx context.Context, text string, sample promql.Sample) (string, error) {
	byName := map[string]string{}
	sample.Metric.Range(func(l labels.Label) { byName[l.Name] = l.Value })
	const names = "{{$labels := .Labels}}{{$externalLabels := .ExternalLabels}}{{$externalURL := .ExternalURL}}{{$value := .Value}}"
	return template.NewTemplateExpander(ctx, names+text, "annotation", template.AlertTemplateData(byName, nil, "", sample),
		model.Time(sample.T), nil, &url.URL{}, nil).Expand()
}
