//go:build linux

package loadtest

// repeats is how many additional ACKs a response gets in every other round.
const repeats = 4

// measureAllocs divides a server's allocation for each client into sending a response and receiving
// its ACK. In every other round clients acknowledge several times, which shows the cost of one ACK.
func measureAllocs(b *bench) {
	var in []*contender
	for _, name := range []string{nameBare, nameRelay} {
		c := b.start(name, nil)
		c.connect()
		in = append(in, c)
	}
	for r := range warmups + b.rounds {
		for i := range in {
			c := in[(i+r)%len(in)]
			c.crowd.acks.Store(1)
			once := c.round().allocated
			c.crowd.acks.Store(1 + repeats)
			ack := (c.round().allocated - once) / repeats
			if r >= warmups {
				b.print(c.name, value{once - ack, "send-B/client"}, value{ack, "ack-B/client"})
			}
		}
	}
}

// measureHeld measures the memory that a server has taken for each client when all have a small change.
// grpc's writer takes a write buffer for it, and lets other goroutines run before it writes.
func measureHeld(b *bench) {
	for _, name := range []string{nameBare, nameRelay} {
		c := b.start(name, nil)
		c.connect()
		for r := range warmups + b.rounds {
			c.collect()
			before := c.metric("go_memstats_heap_alloc_bytes")
			s := c.round()
			held := c.metric("go_memstats_heap_alloc_bytes") - before
			if r >= warmups {
				clients := float64(b.load.Clients)
				b.print(c.name, value{held / clients, "held-B/client"}, value{float64(s.cpu) / clients, "cpu-ns/client"}, value{float64(s.elapsed), "elapsed-ns"})
			}
		}
		c.crowd.close()
		c.Kill()
	}
}
