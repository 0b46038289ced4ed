// Package xdstest is the kit of the tests: go-control-plane as an origin, an
// origin and client streams that do what the test says, the built relay as a
// process, a proxy with faults, HTTP and gRPC backends, resources, logs, and
// waiting for a state. Functions without a testing.TB also serve programs, such
// as integration/robust.
//
// It imports go-control-plane's types and nothing of the relay, so that tests
// do not share the relay's mistakes.
//
// # Concurrency
//
// An Origin and a Relay may be read from several goroutines. Starting and
// stopping them belongs to the test's goroutine.
package xdstest
