// Package upstreamtest helps the tests of upstream and its sub-packages. A Sink
// applies updates as a group does. Response encodes an origin's response in
// either variant. Show prints a request in one line.
//
// # Concurrency
//
// A Sink is safe for concurrent use. A test that reads its fields holds Mu.
package upstreamtest
