package snapshot

import (
	"strings"
	"testing"
	"time"

	"xdsrelay/internal/xds"
)

// snapshotWithProgress makes the builder's next snapshot and calls NoteVersion, as a group does.
func snapshotWithProgress(b *Builder, prev *Snapshot, u Update) *Snapshot {
	b.Apply(u)
	s, names := b.Snapshot(prev, 1)
	if s != prev {
		NoteVersion(prev, s, names, time.Now())
	}
	return s
}

func TestVersionProgressIsOneForAVersion(t *testing.T) {
	b := NewBuilder(xds.TypeOf(xds.ClusterType))
	up := func(version string, specs ...string) Update {
		u := Update{Type: xds.ClusterType, Origin: "o", Version: version, Wildcard: true, Received: time.Now()}
		for _, s := range specs {
			name, content, _ := strings.Cut(s, "=")
			if content == "-" {
				u.Removed = append(u.Removed, name)
			} else {
				u.Changed = append(u.Changed, newRes(t, xds.ClusterType, name, content))
			}
		}
		return u
	}
	first := snapshotWithProgress(b, nil, up("v1", "a=1", "b=1"))
	if r := first.Progress; r.Version != "v1" || r.Given != "v1" || r.Newest() != first.Gen || r.Counts().Changed != 2 || !r.At.Equal(first.Received) {
		t.Errorf("%+v", r)
	}
	// more of the same version
	more := snapshotWithProgress(b, first, up("v1", "c=1", "b=-"))
	if r := more.Progress; r != first.Progress || r.Newest() != more.Gen || r.Counts().Changed != 3 || r.Counts().Removed != 1 {
		t.Errorf("%+v", r.Counts())
	}
	// another version without a change
	next := snapshotWithProgress(b, more, up("v2"))
	if r := next.Progress; r == more.Progress || r.Newest() != next.Gen || r.Counts().Changed != 0 || r.ID() == first.Progress.ID() {
		t.Errorf("%+v", r)
	}
	for _, v := range []string{"v2", next.sum.String()} {
		if !next.Progress.Matches(v) {
			t.Errorf("Is(%s) is false", v)
		}
	}
	if next.Progress.Matches("v1") || next.Progress.Matches("") {
		t.Error("Is is true for another version, or for no text")
	}
}

// A heartbeat makes a snapshot but no version. A client with the snapshot before it has the version
// (P62).
func TestP62_HeartbeatsMakeNoVersion(t *testing.T) {
	b, now := NewBuilder(xds.TypeOf(xds.EndpointType)), time.Now()
	up := func(ttl time.Duration) Update {
		return Update{Type: xds.EndpointType, Version: "v1", Changed: []*xds.Resource{timed(t, "a", "1", ttl, now)}}
	}
	first := snapshotWithProgress(b, nil, up(time.Minute))
	beat := snapshotWithProgress(b, first, up(2*time.Minute))
	if beat == first || beat.Progress != first.Progress || beat.Progress.Newest() != first.Gen {
		t.Errorf("generation %d after %d: %+v", beat.Gen, first.Gen, beat.Progress)
	}
}

func TestAckQuantiles(t *testing.T) {
	r := new(VersionProgress)
	c := r.Counts()
	if q := c.QuantileBound(.5); q != 0 {
		t.Errorf("a quantile of %v without ACKs", q)
	}
	for range 98 {
		r.AckTime(3 * time.Millisecond)
	}
	r.AckTime(time.Second)
	r.AckTime(100 * time.Hour)
	c = r.Counts()
	if q := c.QuantileBound(.5); q != 4*time.Millisecond {
		t.Errorf("p50 %v", q)
	}
	if q := c.QuantileBound(.99); q != 1024*time.Millisecond {
		t.Errorf("p99 %v", q)
	}
	if q := c.QuantileBound(1); q != 2*AckBound(AckBuckets-2) {
		t.Errorf("p100 %v, but one took longer than all bounds", q)
	}
	if c.AckTimes[AckBuckets-1] != 1 || AckBound(AckBuckets-1) != 0 {
		t.Errorf("the last bucket has %d", c.AckTimes[AckBuckets-1])
	}
	for i := range AckBuckets - 1 {
		at := AckBound(i)
		if ackBucket(at) != i || ackBucket(at+1) != i+1 {
			t.Errorf("%v is in bucket %d, and 1 ns more in %d", at, ackBucket(at), ackBucket(at+1))
		}
	}
}

func TestNotedVersionIsBounded(t *testing.T) {
	b := NewBuilder(xds.TypeOf(xds.ClusterType))
	long := strings.Repeat("v", 100_000)
	s := snapshotWithProgress(b, nil, Update{Type: xds.ClusterType, Version: long, Wildcard: true})
	if n := len(s.Progress.Version); n != maxVersionText || !s.Progress.Matches(long) {
		t.Errorf("%d bytes", n)
	}
}
