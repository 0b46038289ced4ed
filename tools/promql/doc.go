// Package promql holds what is in deploy/monitoring against Prometheus' own parser
// and engine, and against the metrics of a relay that runs. It is a module of its
// own, so that what Prometheus needs is no dependency of the relay.
package promql
