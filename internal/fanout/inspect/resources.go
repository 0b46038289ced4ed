package inspect

import (
	"iter"

	"xdsrelay/internal/fanout/session"
	"xdsrelay/internal/fanout/subscriber"
	"xdsrelay/internal/xds"
	"xdsrelay/internal/xds/snapshot"
)

// ClientConfig is a client whose resources can be listed, for CSDS.
type ClientConfig struct {
	Stream  uint64
	Node    *xds.Node
	Peer    string
	Variant string
	// Conn identifies the connection: it is equal for clients on one connection.
	Conn any

	// Types returns what the client has of each type at the moment. It takes the client's lock
	// for as long as it takes to copy what is out of step.
	Types func() []TypeConfig
}

// NameStatus says what a client has under a name that it requested.
type NameStatus = session.NameStatus

// The values of NameStatus, as CSDS names them.
const (
	StatusRequested     = session.StatusRequested
	StatusDoesNotExist  = session.StatusDoesNotExist
	StatusAcked         = session.StatusAcked
	StatusNacked        = session.StatusNacked
	StatusReceivedError = session.StatusReceivedError
	StatusUnknown       = session.StatusUnknown
)

// ResourceStatus is one name that a client requested.
type ResourceStatus struct {
	session.Resource
	// Nack is the client's NACK of the resource; nil: none.
	Nack *subscriber.Nack
}

// TypeConfig is a type that a client requested, at one moment. It keeps alive what it points to.
type TypeConfig struct {
	URL xds.TypeURL
	// Resources are all names that the client requested, and all resources that it has, by name. An
	// alias is listed under the name of the resource that it leads to. Iterating holds no lock.
	Resources iter.Seq[ResourceStatus]
}

// Config returns what the client has of the type; false if the type has no subscriber or no
// request.
func (t StreamType) Config() (TypeConfig, bool) {
	if t.Subscriber == nil || !t.Session.Began() {
		return TypeConfig{}, false
	}
	c := &config{session: t.Session.Copy(), newest: t.Subscriber.Newest(), acked: t.acks > 0, nack: t.lastNack()}
	c.unconfirmed = t.unconfirmed(c.newest)
	return TypeConfig{URL: t.Session.Type.URL, Resources: c.resources}, true
}

// config is a copy of the state of a type.
type config struct {
	session *session.Session
	newest  *snapshot.Snapshot // nil: nothing is known
	acked   bool               // the client acknowledged a response
	nack    *subscriber.Nack   // the last one; nil: none
	// unconfirmed: the client keeps what it brought under names that the origin has not answered.
	unconfirmed bool
}

func (c *config) resources(yield func(ResourceStatus) bool) {
	for _, name := range c.session.Known(c.newest) {
		r, ok := c.session.Resource(name, c.newest, c.acked)
		if !ok {
			continue
		}
		if c.unconfirmed && r.State == StateNotSent {
			r.State, r.NameStatus = StateUnconfirmed, StatusUnknown
		}
		out := ResourceStatus{Resource: r}
		if r.NameStatus == StatusNacked {
			out.Nack = c.nackOf(&r)
		}
		if !yield(out) {
			return
		}
	}
}

// nackOf returns the NACK of a resource. Only the last NACK's message is kept.
func (c *config) nackOf(r *session.Resource) *subscriber.Nack {
	var n subscriber.Nack
	if c.nack != nil {
		n = *c.nack
	}
	if r.NackedIn != "" && r.NackedIn != n.Version {
		n = subscriber.Nack{Version: r.NackedIn, Node: n.Node, Message: "(the relay keeps the message of the client's last NACK only)"}
	}
	if r.NackedVersion != "" {
		n.Version = r.NackedVersion
	}
	return &n
}
