// Package otlptest is a collector of OpenTelemetry's traces on loopback, for tests.
//
// # Concurrency
//
// A Collector is safe for concurrent use.
package otlptest
