// Command alerts evaluates alert rules as Prometheus does, with Prometheus' own
// engine, over what it is told that was scraped when. `alerts RULES` reads one JSON
// object a line, a round of scrapes, and answers each with one: the alerts that fire.
//
// It is a module of its own, so that the product does not depend on Prometheus. The
// times are whatever the rounds say, so a rule that holds for five minutes is tried in
// a second.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
)

// round is what was scraped at one time.
type round struct {
	At      int64    `json:"at"` // ms
	Scrapes []scrape `json:"scrapes"`
}

// scrape is the answer of one process; nobody answered where Up is false.
type scrape struct {
	Instance string `json:"instance"`
	Up       bool   `json:"up"`
	Text     string `json:"text"`
}

// outcome is what Prometheus would send to its alert manager at that time: the
// summaries of the alerts that fire, by name.
type outcome struct {
	Firing map[string][]string `json:"firing"`
	Error  string              `json:"error,omitempty"`
}

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "alerts:", err)
		os.Exit(1)
	}
}

func run() error {
	if len(os.Args) != 2 {
		return fmt.Errorf("give the file of rules")
	}
	e, err := newEvaluator(os.Args[1])
	if err != nil {
		return err
	}
	in, out := json.NewDecoder(os.Stdin), json.NewEncoder(os.Stdout)
	for in.More() {
		var r round
		if err := in.Decode(&r); err != nil {
			return err
		}
		var o outcome
		if o.Firing, err = e.round(context.Background(), r); err != nil {
			o.Error = err.Error()
		}
		if err := out.Encode(o); err != nil {
			return err
		}
	}
	return nil
}
