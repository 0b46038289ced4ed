package fanout

import (
	"testing"

	"xdsrelay/internal/xds"
)

// Who gives up the wildcard and goes on to ask for a name was sent the
// wildcard's copy of it. If the other stream's is another one by then, it
// follows; if it is the same, nothing does.
func TestP50_TheNamesCopyFollowsTheWildcards(t *testing.T) {
	for _, url := range []xds.TypeURL{xds.ClusterType, xds.EndpointType} {
		for _, v := range variants {
			t.Run(xds.TypeOf(url).Short+"/"+v.String(), func(t *testing.T) {
				for _, differs := range []bool{true, false} {
					w := newWorld(t, url, v)
					w.sub("a", "*")
					w.wild("a")
					w.named("a")
					w.want("a")
					w.ack("a", "*")
					if differs {
						w.named("a=2")
					}
					w.want("")
					if v == xds.Delta {
						w.unsub("*")
					} else {
						w.sub("a")
					}
					if differs {
						w.want("a=2")
						w.ack("a")
					}
					w.want("")
				}
			})
		}
	}
}

// A set that was refused under the wildcard is repeated once anything of it
// changes, also to who has given up the wildcard since.
func TestP15_RefusedUnderTheWildcard(t *testing.T) {
	w := newWorld(t, xds.EndpointType, xds.SotW)
	w.named("a", "b")
	w.sub("a", "b", "*")
	w.wild("a", "b", "c")
	w.want("a b c")
	w.nack("a", "b", "*")
	w.want("")
	w.sub("a", "b")
	w.want("") // not by itself
	w.named("a=2")
	w.want("a=2 b")
	w.ack("a", "b")
	w.named("a")
	w.want("a")
}

// What was refused changes, and the change goes out ahead, since the name is
// asked for (P19): the rest follows.
func TestP15_TheRestFollowsWhatIsAnswered(t *testing.T) {
	w := newWorld(t, xds.EndpointType, xds.Delta)
	w.sub("*")
	w.wild("a", "f")
	w.want("a f")
	w.wild("c")
	w.pass(ackTimeout)
	w.want("c")
	w.send(request{nack: 1})
	w.wild("f=2")
	w.want("") // c is not answered
	w.sub("f")
	w.want("f=2")
	w.ack()
	w.want("a")
	w.ack()
	w.want("")
}
