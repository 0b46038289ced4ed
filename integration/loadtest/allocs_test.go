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
