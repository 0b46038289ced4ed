package xds

import (
	"strings"
	"testing"
	"time"
)

// noted makes a builder's next snapshot and notes its version, as a group does.
func noted(b *Builder, prev *Snapshot, u Update) *Snapshot {
	b.Apply(u)
	s, names := b.Snapshot(prev, 1)
	if s != prev {
		NoteVersion(prev, s, names)
	}
	return s
}

func TestVersionProgressIsOneForAVersion(t *testing.T) {
	b := NewBuilder(TypeOf(ClusterType))
	up := func(version string, specs ...string) Update {
		u := Update{Type: ClusterType, Origin: "o", Version: version, Wildcard: true, Received: time.Now()}
		for _, s := range specs {
			name, content, _ := strings.Cut(s, "=")
			if content == "-" {
				u.Removed = append(u.Removed, name)
			} else {
				u.Changed = append(u.Changed, newRes(t, ClusterType, name, content))
			}
		}
		return u
	}
	first := noted(b, nil, up("v1", "a=1", "b=1"))
	if r := first.Progress; r.Version != "v1" || r.Given != "v1" || r.Newest() != first.Gen || r.Counts().Changed != 2 || !r.At.Equal(first.Received) {
		t.Errorf("%+v", r)
	}
	// The rest of the same version.
	more := noted(b, first, up("v1", "c=1", "b=-"))
	if r := more.Progress; r != first.Progress || r.Newest() != more.Gen || r.Counts().Changed != 3 || r.Counts().Removed != 1 {
		t.Errorf("%+v", r.Counts())
	}
	// Another version, also where nothing changed.
	next := noted(b, more, up("v2"))
	if r := next.Progress; r == more.Progress || r.Newest() != next.Gen || r.Counts().Changed != 0 || r.ID() == first.Progress.ID() {
		t.Errorf("%+v", r)
	}
	for _, v := range []string{"v2", next.sum.String()} {
		if !next.Progress.Is(v) {
			t.Errorf("it is not %s", v)
		}
	}
	if next.Progress.Is("v1") || next.Progress.Is("") {
		t.Error("it is another as well")
	}
}

// A heartbeat makes a snapshot, and no version: who has the one before is not
// behind by it.
func TestP62_HeartbeatsMakeNoVersion(t *testing.T) {
	b, now := NewBuilder(TypeOf(EndpointType)), time.Now()
	up := func(ttl time.Duration) Update {
		return Update{Type: EndpointType, Version: "v1", Changed: []*Resource{timed(t, "a", "1", ttl, now)}}
	}
	first := noted(b, nil, up(time.Minute))
	beat := noted(b, first, up(2*time.Minute))
	if beat == first || beat.Progress != first.Progress || beat.Progress.Newest() != first.Gen {
		t.Errorf("generation %d after %d: %+v", beat.Gen, first.Gen, beat.Progress)
	}
}

func TestAckQuantiles(t *testing.T) {
	r := new(VersionProgress)
	c := r.Counts()
	if q := c.Quantile(.5); q != 0 {
		t.Errorf("%v of nothing", q)
	}
	for range 98 {
		r.Time(3 * time.Millisecond)
	}
	r.Time(time.Second)
	r.Time(100 * time.Hour)
	c = r.Counts()
	if q := c.Quantile(.5); q <= 2*time.Millisecond || q > 4*time.Millisecond {
		t.Errorf("p50 %v", q)
	}
	if q := c.Quantile(.99); q <= 512*time.Millisecond || q > 1024*time.Millisecond {
		t.Errorf("p99 %v", q)
	}
	if c.Took[AckBuckets-1] != 1 || AckBound(AckBuckets-1) != 0 {
		t.Errorf("the last bucket has %d", c.Took[AckBuckets-1])
	}
	for i := range AckBuckets - 1 {
		at := AckBound(i)
		if ackBucket(at) != i || ackBucket(at+1) != i+1 {
			t.Errorf("%v is in %d, and what is longer in %d", at, ackBucket(at), ackBucket(at+1))
		}
	}
}

func TestNotedVersionIsBounded(t *testing.T) {
	b := NewBuilder(TypeOf(ClusterType))
	long := strings.Repeat("v", 100_000)
	s := noted(b, nil, Update{Type: ClusterType, Version: long, Wildcard: true})
	if n := len(s.Progress.Version); n != maxNotedVersion || !s.Progress.Is(long) {
		t.Errorf("%d bytes", n)
	}
}
