// Command loadtest measures how fast one change reaches a crowd of clients
// through the relay, side by side with others that serve the same clients: the
// origin's own server (go-control-plane), a bare gRPC server that sends the
// same shared bytes and knows no protocol, and raw TCP. See
// docs/performance/README.md for how to run it and how to read its table.
//
// The program starts itself again for each server and for each server's crowd
// of clients (child.go), so that one process' CPU and memory are one part's. The
// clients discard cheaply (crowd.go): what they cost, all servers pay alike.
//
//	bench.go      the rounds: interleaved, what is measured of each
//	contender.go  the servers that are compared, and how each is started
//	relay.go      the relay's binary: built, configured, its metrics read
//	serve_*.go    the other servers, in processes of their own
//	crowd.go      the clients; h2.go and message.go are what they can read
//	load.go       what is sent
//	cases.go      the cases of docs/performance
//	study.go      what is no rounds of changes: its table and plot; a file each:
//	              allocs.go, unwanted.go, idle.go, arrive.go, scale.go,
//	              slow.go (and sockets.go, what the kernel holds)
//	ghz.go        the load that ghz makes (make load)
//	profile.go    what a server's CPU does, and what is on its heap
//	report.go     the table, the JSON, medians and ratios
package main
