package audience

import (
	"fmt"
	"runtime"
	"testing"

	"xdsrelay/internal/xds/snapshot"
)

// A subscription counts as one client's alone until another client has it.
func TestSoleUntilShared(t *testing.T) {
	var in Table
	one := in.Intern(subscription("a"))
	equal(t, "the first one's is its own", one.Unshared.Load(), true)
	if again := in.Intern(subscription("a")); again != one || one.Unshared.Load() {
		t.Errorf("a second one has %v, alone: %v", again, one.Unshared.Load())
	}
	equal(t, "another's is its own", in.Intern(subscription("b")).Unshared.Load(), true)
	equal(t, "nothing", in.Intern(snapshot.Nothing).Unshared.Load(), false)
}

// Clients with equal subscriptions share one, as long as one of them has it.
func TestInterning(t *testing.T) {
	var table Table
	a := table.Intern(subscription("x", "y"))
	if table.Intern(subscription("y", "x")) != a {
		t.Error("equal subscriptions are not shared")
	}
	for _, other := range []*snapshot.Subscription{subscription("x"), subscription("x", "y", "*"), subscription("*")} {
		if got := table.Intern(other); got == a || !got.Equal(other) {
			t.Errorf("interned as %v", got)
		}
	}
	equal(t, "nothing", table.Intern(subscription()), snapshot.Nothing)
	// A hash finds candidates; their content decides whether they are equal.
	x := subscription("collides")
	table.subs.Keep(x.Names.Sum()<<1, subscription("x", "y"), func(*snapshot.Subscription) bool { return false })
	if got := table.Intern(x); !got.Equal(x) {
		t.Error("interned by its hash")
	}
	// A subscription of another table is not shared with this one.
	var second Table
	if second.Intern(a) == a {
		t.Error("two tables share a subscription")
	}
	for i := range 1000 {
		table.Intern(subscription(fmt.Sprint(i))) // and nothing keeps it
	}
	for table.subs.Len() > 2 { // a's, and the one with the same hash
		runtime.GC()
		runtime.Gosched()
	}
	equal(t, "the one in use", table.Intern(subscription("x", "y")), a)
	runtime.KeepAlive(a)
}
