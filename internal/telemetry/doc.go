// Package telemetry has the relay's metrics: handles that are made at the start, the Prometheus
// registry that has their values, and statsd.
//
// Names and labels of metrics are fixed; metrics.go has them with their help, and metrics_by_type.go those of a type. The values of
// labels are constants of types (labels.go), so an unknown reason or variant does not compile. No
// label has a node's or a resource's name. Only with Options.KeyLabel has a label a key, and only
// on the metrics of one key.
//
// Counters and gauges use tally's reporters for Prometheus and statsd, but not tally's Scope. A
// Scope reports its counts once in an interval, so a scrape would be late. It also starts its
// goroutine when it is made; its Close does not wait for that, and may report the last interval
// twice. Here a count is at the reporter when the call returns. Only the values for statsd are
// collected and sent in intervals, by Run. Histograms are client_golang's own, because tally
// records no sums. They are not sent to statsd.
//
// # Concurrency
//
// All handles are safe for concurrent use. Counting takes no lock and does not allocate.
// Metrics.Type, Key.Type and Metrics.Origin look their handle up: call them once for a stream or
// view, and keep the result. Run is called at most once; without it everything but statsd works.
package telemetry
