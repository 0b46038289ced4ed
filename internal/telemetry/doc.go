// Package telemetry has the relay's metrics: counters, gauges and histograms (instruments.go), the
// Prometheus registry with their values, and statsd.
//
// Names and labels of metrics are fixed. metrics.go has them with their help, and
// metrics_by_type.go has those of a resource type. The values of labels are constants of types
// (labels.go), so an unknown reason or variant does not compile. No label has a node's or a
// resource's name. Only with Options.KeyLabel do metrics have a label with the key, and only those
// of one key.
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
// All metrics are safe for concurrent use. Counting takes no lock and does not allocate.
// Metrics.Type, Key.Type and Metrics.Origin search for their result: call them once for a stream or
// view, and keep the result. Run is called at most once; without it everything but statsd works.
package telemetry
