package upstream

import (
	"testing"

	"xdsrelay/internal/xds"
	"xdsrelay/internal/xds/snapshot"
	"xdsrelay/internal/xdstest"
)

// The relays of these tests have no node. The origin serves them as this cluster.
const noCluster = ""

func TestP50_NamesFromALinearCache(t *testing.T) {
	eachVariant(t, func(t *testing.T, v xds.Variant) {
		o := xdstest.StartOrigin(t, xdstest.OriginOptions{Cache: xdstest.Linear})
		o.Put(noCluster, xdstest.Endpoints("a", 1), xdstest.Endpoints("b", 1), xdstest.Endpoints("c", 1))
		r := startRelay(t, v, Options{}, o.Address)
		stream, sink := r.stream(named(eds, "a", "b", "new"))
		sink.UntilNames(t, eds, "a", "b")
		stream.SetInterest(sink.Want(named(eds, "b", "c", "new")))
		sink.UntilNames(t, eds, "b", "c")
		o.Put(noCluster, xdstest.Endpoints("new", 1))
		sink.UntilNames(t, eds, "b", "c", "new")
		was := sink.Newest(eds).Resource("b")
		o.Put(noCluster, xdstest.Endpoints("b", 7))
		sink.Until(t, "change", func() bool { return !sink.Snapshots[eds].Resource("b").Same(was) })
		stream.SetInterest(sink.Want(named(eds, "a", "b", "c", "new"))) // unsubscribed and subscribed again
		sink.UntilNames(t, eds, "a", "b", "c", "new")
		o.Remove(noCluster, string(eds), "c")
		if v == xds.Delta { // a SotW origin does not report it (P65)
			sink.Until(t, "removal", func() bool { return sink.Presence(eds, "c") == snapshot.Absent })
		} else {
			o.Put(noCluster, xdstest.Endpoints("a", 7))
			sink.Until(t, "change", func() bool { return len(sink.Updates) > 4 })
			sink.UntilNames(t, eds, "a", "b", "c", "new")
		}
		if _, ever := o.Streams(); ever != 1 {
			t.Errorf("%d streams", ever)
		}
	})
}

func TestP50_WildcardFromASnapshotCache(t *testing.T) {
	eachVariant(t, func(t *testing.T, v xds.Variant) {
		o := xdstest.StartOrigin(t, xdstest.OriginOptions{})
		o.Put(noCluster, xdstest.Cluster("a", 1), xdstest.Cluster("b", 1), xdstest.Cluster("c", 1))
		r := startRelay(t, v, Options{}, o.Address)
		_, sink := r.stream(all(cds))
		sink.UntilNames(t, cds, "a", "b", "c")
		o.Put(noCluster, xdstest.Cluster("d", 1))
		o.Remove(noCluster, string(cds), "a")
		sink.UntilNames(t, cds, "b", "c", "d")
		o.Remove(noCluster, string(cds), "b", "c", "d")
		sink.UntilNames(t, cds)
		o.Put(noCluster, xdstest.Cluster("b", 1), xdstest.Cluster("c", 1))
		sink.UntilNames(t, cds, "b", "c")
		sink.Until(t, "an answered wildcard", func() bool { return sink.Snapshots[cds].Answered })

		// The origin restarts. The relay lists the versions that it has (P55), and learns what was
		// removed meanwhile.
		o.Stop()
		sink.Until(t, "loss", func() bool { return !sink.lastStatus().Connected })
		held := sink.Newest(cds)
		o.Put(noCluster, xdstest.Cluster("e", 1))
		o.Remove(noCluster, string(cds), "c")
		o.Start()
		sink.UntilNames(t, cds, "b", "e")
		if v == xds.Delta && len(o.Requests(func(r xdstest.Request) bool { return r.Versions == 2 })) != 1 {
			t.Error("the relay did not list two versions")
		}
		if sink.Newest(cds).Resource("b") != held.Resource("b") {
			t.Error("an unchanged resource was rebuilt")
		}
	})
}

// One type's wildcard is subscribed and unsubscribed. The other types stay on the same stream.
func TestP64_WildcardEndsAtAControlPlane(t *testing.T) {
	eachVariant(t, func(t *testing.T, v xds.Variant) {
		o := xdstest.StartOrigin(t, xdstest.OriginOptions{Cache: xdstest.Linear})
		o.Put(noCluster, xdstest.Cluster("x", 1), xdstest.Endpoints("a", 1))
		r := startRelay(t, v, Options{}, o.Address)
		stream, sink := r.stream(named(eds, "a"), all(cds))
		sink.UntilNames(t, cds, "x")
		sink.UntilNames(t, eds, "a")
		o.Put(noCluster, xdstest.Endpoints("b", 1))
		stream.SetInterest(sink.Want(named(eds, "a", "b")))
		sink.UntilNames(t, eds, "a", "b")
		o.Put(noCluster, xdstest.Cluster("y", 1))
		opened := func() int {
			streams := make(map[uint64]bool)
			for _, st := range sink.statuses {
				if st.Connected {
					streams[st.Stream] = true
				}
			}
			return len(streams)
		}
		sink.Until(t, "one stream", func() bool { return opened() == 1 })
		stream.SetInterest(sink.Want(named(eds, "a", "b"), all(cds)))
		sink.Until(t, "a second stream", func() bool { return opened() == 2 })
		sink.UntilNames(t, cds, "x", "y")
		sink.UntilNames(t, eds, "a", "b")
		sink.Until(t, "no third one", func() bool { return opened() == 2 })
	})
}
