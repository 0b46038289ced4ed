// Command robust runs two origins, two relays and many clients, with a TCP proxy of
// internal/xdstest between each pair. It applies faults of processes and networks to them. It
// records what origins publish and clients receive, and checks that against the rules of package
// check. See docs/robustness/README.md.
//
// The origins and the relays are processes of their own. For each origin the program starts itself
// again as go-control-plane's server. For each relay it starts the built binary. The clients are
// internal/fleet's, in this process, so that the history has one order.
//
//	catalog.go      what all origins should have, and how it changes
//	feed.go         an origin's process and its input; origin.go is the code inside it
//	relay.go        a relay's process
//	client.go       a client that records its requests and receipts
//	plan.go         the faults of a round: a pure function of the seed
//	environment.go  starts all of these; run.go: rounds, and rest after each
//	soak.go         another run: churn, and the relay's resources afterwards
package main
