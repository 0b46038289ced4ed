package fleet

// Counters count events since the client was made.
type Counters struct {
	Responses uint64
	Acks      uint64 // sent
	Nacks     uint64 // sent
	Removed   uint64 // held resources that the server removed, or left out of a complete response
	Resends   uint64 // resources sent again with the held content
	// Of the client; 0 for a type.
	Streams    uint64 // opened
	Reconnects uint64 // streams after the first
}

func (c *Counters) add(o Counters) {
	c.Responses += o.Responses
	c.Acks += o.Acks
	c.Nacks += o.Nacks
	c.Removed += o.Removed
	c.Resends += o.Resends
	c.Streams += o.Streams
	c.Reconnects += o.Reconnects
}
