// Package promql checks the files in deploy/monitoring with Prometheus' own parser and engine, and
// against the metrics of a running relay. It is a module of its own, so that the relay does not
// depend on Prometheus.
package promql
