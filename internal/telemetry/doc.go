// Package telemetry holds the relay's metrics: handles that are made at start,
// a Prometheus registry that they are read from, and statsd beside it.
//
// A metric's name and labels are fixed (metrics.go has them all, with their
// help). Labels come from lists that are types (labels.go): an unknown reason
// or variant does not compile. No label has a node or a resource's name; a key
// only with Options.KeyLabel, and then only where a metric is of one key.
//
// Counters and gauges go through tally's reporters, for Prometheus and for
// statsd. Not through tally's Scope: that hands over its counts once in an
// interval, so that a scrape is that much behind; it starts its goroutine when
// it is made, and its Close does not wait for it and may report the last
// interval twice. Here a count is at the reporter when the call returns, and
// only what statsd needs is collected and sent at an interval, by Run.
// Histograms are client_golang's own, since tally records the bounds of buckets
// and no sums, and are not sent to statsd.
//
// # Concurrency
//
// All handles are safe for concurrent use, and counting takes no lock and does
// not allocate. Metrics.Type, Key.Type and Metrics.Origin look their handle up:
// do it once for a stream or view and keep the result. Run is called at most
// once; without it everything but statsd works.
package telemetry
