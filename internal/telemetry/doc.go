// Package telemetry is what the processes tell about themselves: structured
// logs and Prometheus metrics.
//
// It owns the form of a log line (JSON, one line, ids from the context,
// nothing secret), the name and labels of every metric, and the small server
// on whose port Prometheus scrapes. It refuses to keep anything global: the
// logger and the metrics are values that package app makes and passes on. It
// refuses labels and attributes without bound. Every package of the service
// logs through a *slog.Logger made here; prometheus is imported nowhere else.
package telemetry
