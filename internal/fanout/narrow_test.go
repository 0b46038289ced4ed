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
