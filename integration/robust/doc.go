// Command robust runs two origins, two relays and a crowd of clients, with a TCP
// proxy of internal/xdstest between each pair, does to them what happens to processes and networks,
// and holds what everybody published and received against the rules of package
// check. See docs/robustness/README.md.
//
// The origins and the relays are processes of their own: the program starts
// itself again for each origin, which is go-control-plane's server, and the
// built binary for each relay. The clients are internal/fleet's, in this process,
// so that the history has one order.
//
//	catalog.go what all origins are to have, and how it changes
//	feed.go    an origin's process, and how it is told; origin.go is the inside of it
//	relay.go   a relay's process
//	client.go  a client, whose requests and receipts are recorded
//	plan.go    which faults a round has: a pure function of the seed
//	stage.go   all of these put together; run.go: rounds, and rest after each
//	soak.go    another run: churn, and what the relay is left with
package main
