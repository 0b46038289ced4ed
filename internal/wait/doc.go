// Package wait waits until enough clients of a key acknowledged a version, and shows the progress. It
// asks a running relay, or all members of its cluster, again and again.
//
// A bad version may crash its clients. So clients that leave during the wait still count for a while,
// without the version.
//
// # Concurrency
//
// A wait runs on the goroutine of its caller, and ends with its context. It asks several members at
// once, as adminclient does.
package wait
