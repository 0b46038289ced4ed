package fleet

// Counters count events since the client was made.
type Counters struct {
	Responses  uint64
	Bytes      uint64 // of responses
	Acks       uint64 // sent
	Nacks      uint64 // sent
	Added      uint64 // new resources
	Changed    uint64 // resources with another content than the held one
	Removed    uint64 // held resources that the server removed, or left out of a complete response
	Resends    uint64 // resources sent again with the held content
	Heartbeats uint64 // held resources sent without a body
	Late       uint64 // ignored resources: not subscribed, or no longer
	TimedOut   uint64 // clusters that became warm by WarmTimeout
	// Of the client; 0 for a type.
	Streams    uint64 // opened
	Reconnects uint64 // streams after the first
	Violations uint64
}

func (c *Counters) add(o Counters) {
	c.Responses += o.Responses
	c.Bytes += o.Bytes
	c.Acks += o.Acks
	c.Nacks += o.Nacks
	c.Added += o.Added
	c.Changed += o.Changed
	c.Removed += o.Removed
	c.Resends += o.Resends
	c.Heartbeats += o.Heartbeats
	c.Late += o.Late
	c.TimedOut += o.TimedOut
	c.Streams += o.Streams
	c.Reconnects += o.Reconnects
	c.Violations += o.Violations
}
