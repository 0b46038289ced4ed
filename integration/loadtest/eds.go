//go:build linux

package main

// eds is the load of clients that subscribe to 100 of 10,000 load assignments.
func eds(clients int) load {
	return load{Clients: clients, Bytes: 1000, Clusters: 10_000, Names: 100}
}

func (l load) apart() load { l.Apart = true; return l }
func (l load) delta() load { l.Delta = true; return l }
