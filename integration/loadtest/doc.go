// Command loadtest measures how fast one change reaches many clients through the relay. It compares
// the relay with other servers that serve the same clients: the origin's own server
// (go-control-plane), a bare gRPC server that sends the same shared bytes without a protocol, and
// raw TCP. docs/performance/README.md explains how to run it and how to read its table.
//
// The program starts itself again for each server and for each server's crowd of clients
// (child.go), so that one process's CPU and memory belong to one part. The clients are cheap
// (crowd.go); their cost is the same for all servers.
//
//	bench.go      the rounds: interleaved, with their measurements
//	contender.go  the servers that are compared, and how each is started
//	relay.go      the relay's binary: built, configured, its metrics read
//	serve_*.go    the other servers, in processes of their own
//	crowd.go      the clients; h2.go and message.go parse their input
//	load.go       the messages that are sent
//	cases.go      the cases of docs/performance
//	study.go      measurements other than rounds, their table and plot; a file each:
//	              allocs.go, unwanted.go, idle.go, arrive.go, scale.go,
//	              slow.go (and sockets.go for the kernel's memory)
//	ghz.go        the load that ghz makes (make load)
//	profile.go    a server's CPU and heap profiles
//	report.go     the table, the JSON, medians and ratios
package main
