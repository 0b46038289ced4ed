// Package promql checks the files in deploy/monitoring with Prometheus' own parser and engine, and
// against the metrics of a running relay. It is a module of its own, so that the relay does not
// depend on Prometheus. For `promtool test rules` one would write by hand the series of a healthy
// relay and all texts of each alert, and it does not see whether a relay has these metrics.
package promql
