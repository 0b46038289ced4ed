// Package loadtest measures how fast one change reaches many clients through the relay, and what it
// costs. It compares the relay with other servers for the same clients: go-control-plane with its
// snapshot cache and with its linear cache, a bare gRPC server that sends the same shared bytes
// without a protocol, and raw TCP. `make bench` prints lines that benchstat reads.
// docs/performance/README.md explains the cases and the units. `go test` runs one case of each
// kind once, with few clients.
//
// Each server is a process of its own, so that its CPU and memory are its own. The relay's origin and
// the clients are in the process of the test. The clients are cheap; their cost is the same for all
// servers.
//
//	load_test.go       the cases, and the lines that are printed
//	rounds_test.go     rounds of changes, in which the servers take turns
//	other cases        allocs_test.go, arrive_test.go, memory_test.go, names_test.go, slow_test.go, store_test.go,
//	                   unwanted_test.go
//	contender_test.go  a server with its clients: started, changed, measured
//	servers_test.go    the servers other than the relay
//	gcp_test.go        the caches of go-control-plane
//	crowd_test.go      the clients; h2_test.go and message_test.go parse their input
//	content_test.go    the messages that are sent
//
// # Concurrency
//
// A test uses a contender from its own goroutine.
package loadtest
