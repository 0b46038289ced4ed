// Package otlptest is an OpenTelemetry collector on loopback, for tests.
//
// # Concurrency
//
// A Collector is safe for concurrent use.
package otlptest
